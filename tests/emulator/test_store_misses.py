"""Stores that miss: they allocate their line, and the core waits only where the bus is behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.emulator.conftest import HERE, QEMU
from utvm_deploy.boards.board import load_board
from utvm_deploy.targets.emulator import CycleModel, arguments, counters

GCC = "arm-none-eabi-gcc"
RUN_TIMEOUT_S = 60.0
MISS = 22
ENTRIES = 5
#: Cycles of the core that lie between two stores of a row.
SLACK = 4

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(GCC) is None:
        pytest.skip(f"{GCC} is not installed")
    elf = tmp_path_factory.mktemp("stores") / "stores.elf"
    subprocess.run(
        [GCC, "-mcpu=cortex-m4", "-mthumb", "-nostdlib", "-Wl,-Ttext=0", "-Wl,-e,start",
         "-o", str(elf), str(HERE / "stores.s")],
        check=True,
    )  # fmt: skip
    return elf


def measured(plugin: Path, image: Path, folder: Path, name: str) -> list[counters.Counters]:
    board = load_board(name)
    assert board.emulator is not None
    snapshots = folder / "snapshots"
    loaded = arguments(plugin, CycleModel.for_board(board), snapshots=snapshots)
    subprocess.run(
        [QEMU, "-machine", board.emulator.machine, "-nographic", "-monitor", "none",
         "-serial", "none", "-semihosting-config", "enable=on,target=native",
         "-kernel", str(image), *loaded, *board.emulator.arguments],
        check=True, timeout=RUN_TIMEOUT_S, capture_output=True,
    )  # fmt: skip
    taken = counters.read_snapshots(snapshots)
    return [after - before for before, after in zip(taken[::2], taken[1::2], strict=True)]


@pytest.fixture(scope="module")
def m7(
    plugin: Path, stores: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[counters.Counters]:
    return measured(plugin, stores, tmp_path_factory.mktemp("m7"), "mps2_an500")


def of(one: counters.Counters) -> tuple[int, int, int]:
    """Misses of loads, misses of stores, cycles waited for linefills of others."""
    return one["dcache_misses_ram"], one["dcache_store_misses"], one["linefill_waits"]


def test_a_row_of_stores_is_as_fast_as_the_bus(m7: list[counters.Counters]) -> None:
    loads, misses, waits = of(m7[0])
    assert (loads, misses) == (0, 16)
    # The last linefill goes on when the core has made its last store.
    assert 15 * (MISS - SLACK) <= waits < 15 * MISS


def test_lines_that_are_there_cost_nothing(m7: list[counters.Counters]) -> None:
    assert of(m7[1]) == (0, 0, 0)


def test_tightly_coupled_memory_costs_nothing(m7: list[counters.Counters]) -> None:
    assert of(m7[2]) == (0, 0, 0)


def test_the_store_buffer_hides_what_it_can_hold(m7: list[counters.Counters]) -> None:
    assert of(m7[3]) == (0, 1, 0)


def test_a_full_store_buffer_waits_for_the_line(m7: list[counters.Counters]) -> None:
    loads, misses, waits = of(m7[4])
    assert (loads, misses) == (0, 2)
    # The sixth store of each line.
    assert 2 * (MISS - ENTRIES - 1) <= waits <= 2 * (MISS - ENTRIES)


def test_a_load_waits_for_the_linefill_of_a_store(m7: list[counters.Counters]) -> None:
    loads, misses, waits = of(m7[5])
    assert (loads, misses) == (1, 1)
    assert MISS - SLACK <= waits <= MISS


def test_what_is_forgotten_keeps_nobody_waiting(m7: list[counters.Counters]) -> None:
    assert of(m7[6]) == (1, 0, 0)


def test_a_load_hits_the_line_that_a_store_allocated(m7: list[counters.Counters]) -> None:
    assert of(m7[7]) == (0, 1, 0)


def test_a_store_over_the_end_of_a_line_allocates_two(m7: list[counters.Counters]) -> None:
    loads, misses, waits = of(m7[8])
    assert (loads, misses) == (0, 2)
    assert waits == MISS


def test_waiting_is_in_every_figure_with_memory(m7: list[counters.Counters]) -> None:
    for one in m7:
        memory = MISS * one["dcache_misses_ram"] + one["linefill_waits"]
        assert one["memory"] == one["core"] + memory
        assert one["pessimistic"] >= one["core"] + memory
        assert one["rich"] >= one["core"] + memory


def test_a_core_without_a_cache_is_as_it_was(plugin: Path, stores: Path, tmp_path: Path) -> None:
    found = measured(plugin, stores, tmp_path, "mps2_an386")
    assert [of(one) for one in found] == [(0, 0, 0)] * 9
    assert all(one["memory"] == one["core"] for one in found)
    # Sixteen stores of a cycle each, and the markers' frame, the same in each.
    assert found[0]["core"] == found[1]["core"] == found[2]["core"] == found[4]["core"]
    assert found[0]["core"] - found[3]["core"] == 11
