"""The digest of the cycle model: changes with what decides cycles, and with nothing else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import load_board
from utvm_deploy.targets.contract.timing import Timing
from utvm_deploy.targets.emulator import cycle_model_digest, digest
from utvm_deploy.targets.table import TIMINGS

BOARD = load_board("mps2_an500")
M7 = TIMINGS["cortex-m7"]


def test_it_is_twelve_digits_and_the_same_again() -> None:
    found = cycle_model_digest(BOARD)
    assert len(found) == 12 and int(found, 16) >= 0
    assert cycle_model_digest(load_board("mps2_an500")) == found


def test_boards_with_equal_cores_and_caches_share_it() -> None:
    """Neither the clock nor the addresses of the memory enter."""
    assert cycle_model_digest(load_board("stm32f746g_disco")) == cycle_model_digest(BOARD)
    faster = replace(BOARD, cpu=replace(BOARD.cpu, clock_hz=2 * BOARD.cpu.clock_hz))
    assert cycle_model_digest(faster) == cycle_model_digest(BOARD)


@pytest.mark.parametrize("key", ["dcache_bytes", "icache_bytes"])
def test_another_cache_is_another_model(key: str) -> None:
    larger = replace(BOARD, cpu=replace(BOARD.cpu, **{key: 16384}))
    assert cycle_model_digest(larger) != cycle_model_digest(BOARD)


def test_slower_memory_is_another_model() -> None:
    slow = tuple(replace(one, miss_cycles=40) for one in BOARD.memory)
    assert cycle_model_digest(replace(BOARD, memory=slow)) != cycle_model_digest(BOARD)


@pytest.mark.parametrize("name", ["mps2_an386", "mps2_an385", "mps3_an547"])
def test_cores_differ(name: str) -> None:
    assert cycle_model_digest(load_board(name)) != cycle_model_digest(BOARD)


def test_a_core_without_a_model_has_none() -> None:
    with pytest.raises(BoardError, match="no cycle model"):
        cycle_model_digest(load_board("mps2_an521"))


def _with(monkeypatch: pytest.MonkeyPatch, timing: Timing) -> str:
    monkeypatch.setattr(digest, "TIMINGS", {timing.core: timing})
    digest._core_timing.cache_clear()
    try:
        return cycle_model_digest(BOARD)
    finally:
        digest._core_timing.cache_clear()


def test_a_changed_row_changes_it_and_a_changed_source_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = cycle_model_digest(BOARD)
    retold = tuple(replace(row, source="told anew") for row in M7.rows)
    assert _with(monkeypatch, replace(M7, rows=retold)) == found
    slower = (replace(M7.rows[0], cycles=M7.rows[0].cycles + 1), *M7.rows[1:])
    assert _with(monkeypatch, replace(M7, rows=slower)) != found
    assert _with(monkeypatch, replace(M7, exclusions=M7.exclusions[1:])) != found


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("cache.c", "// A set-associative cache", "/* What the core\nkeeps */ // A cache", False),
        ("cache.c", "    const uint32_t here", "\n        const  uint32_t here", False),
        ("cache.c", "return true;", "return false;", True),
        ("abi_3.h", "size_t", "unsigned long", False),
    ],
)
def test_comments_and_layout_of_the_plugin_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, changes: bool
) -> None:
    edited = tmp_path / "plugin"
    shutil.copytree(digest.SOURCES, edited)
    code = (edited / file).read_text()
    assert old in code
    (edited / file).write_text(code.replace(old, new))
    before = cycle_model_digest(BOARD)
    monkeypatch.setattr(digest, "SOURCES", edited)
    assert (cycle_model_digest(BOARD) != before) == changes


def test_a_comment_in_a_string_is_no_comment() -> None:
    assert digest.without_comments('a = "x//y"; // z\nb /* " */ = 1;') == 'a = "x//y"; b = 1;'
