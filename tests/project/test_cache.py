"""The cache stays within its size, and nothing goes that somebody uses."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tiny_model import tiny_model

from utvm_deploy.base import cache, process
from utvm_deploy.boards.board import load_board
from utvm_deploy.project import build_image
from utvm_deploy.project.link_module import compile_module

ENTRY_BYTES = 1 << 16
DEADLINE_S = 60.0

HOLDER = """
import sys
from pathlib import Path
from utvm_deploy.base import cache
user = cache.User()
print(cache.hold(Path(sys.argv[1]), user), flush=True)
sys.stdin.read()
"""


def entries(folder: Path, count: int) -> list[Path]:
    """Entries of one size, the first of them the one that was used longest ago."""
    made = [folder / f"{number}" for number in range(count)]
    for number, entry in enumerate(made):
        (entry / "deep").mkdir(parents=True)
        (entry / "deep" / "content").write_bytes(os.urandom(ENTRY_BYTES))
        os.utime(entry, (number, number))
    return made


def room_for(count: int) -> int:
    """Bytes for so many entries, with their folders, and not for one more."""
    return count * ENTRY_BYTES + ENTRY_BYTES // 2


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.slow
def test_what_was_unused_longest_goes_first(tmp_path: Path) -> None:
    made = entries(tmp_path, 4)
    cache.trim(tmp_path, room_for(4))
    assert names(tmp_path) == ["0", "1", "2", "3"]
    user = cache.User()
    assert cache.hold(made[0], user)
    del user
    gc.collect()
    # It was used just now, so the next ones are the oldest.
    cache.trim(tmp_path, room_for(2))
    assert names(tmp_path) == ["0", "3"]


def test_what_another_process_uses_stays(tmp_path: Path) -> None:
    made = entries(tmp_path, 3)
    argv = [sys.executable, "-c", HOLDER, str(made[0])]
    with subprocess.Popen(
        argv,
        env={**os.environ, **process.child_environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            assert child.stdout.readline() == "True\n"
            os.utime(made[0] / "lock", (0, 0))
            cache.trim(tmp_path, 0)
            assert names(tmp_path) == ["0"]
        finally:
            child.stdin.close()
            child.wait(DEADLINE_S)
    cache.trim(tmp_path, 0)
    assert names(tmp_path) == []


@pytest.mark.tools
def test_an_image_is_held_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path))
    board = load_board("host")
    image = build_image(tiny_model(board), board)
    module = compile_module("int one(void) { return 1; }", board)
    for folder in ("images", "modules"):
        cache.trim(tmp_path / folder, 0)
    assert image.elf.is_file() and module.path.is_file()
    # Found again, and held for both of them.
    again = build_image(tiny_model(board), board)
    elf, path = image.elf, module.path
    del image, module
    gc.collect()
    for folder in ("images", "modules"):
        cache.trim(tmp_path / folder, 0)
    assert again.elf == elf and elf.is_file()
    assert not path.exists()
    del again
    gc.collect()
    cache.trim(tmp_path / "images", 0)
    assert names(tmp_path / "images") == []
    # Gone is not broken: it is built anew.
    assert build_image(tiny_model(board), board).elf.is_file()


def test_new_entries_bound_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cache.MOST_BYTES, "modules", room_for(3))  # type: ignore[arg-type]
    folder = tmp_path / "modules"
    entries(folder, 5)
    for key in ("1f", "0f"):  # not every entry looks
        fresh = folder / "new-x"
        fresh.mkdir()
        assert cache.keep(fresh, folder / key)
        assert len(names(folder)) == (6 if key == "1f" else 5)
    second = folder / "new-y"
    second.mkdir()
    (folder / "0f" / "content").write_bytes(b"whole")
    assert not cache.keep(second, folder / "0f")


def test_removing_and_using_at_once_never_shows_a_part(tmp_path: Path) -> None:
    """Users make what is missing; whoever holds an entry finds it whole until it lets go."""
    entry = tmp_path / "images" / "key"
    entry.parent.mkdir()
    is_over = threading.Event()
    broken: list[str] = []

    def remove() -> None:
        while not is_over.is_set():
            cache.trim(entry.parent, 0)

    def use(number: int) -> None:
        for turn in range(100):
            user = cache.User()
            if not cache.hold(entry, user):
                fresh = tmp_path / f"fresh-{number}-{turn}"
                fresh.mkdir()
                (fresh / "content").write_bytes(b"whole")
                cache.keep_held(fresh, entry, user)
            for _ in range(3):
                if not (entry / "content").is_file():
                    broken.append(f"user {number}, turn {turn}")
            del user

    remover = threading.Thread(target=remove)
    users = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in (remover, *users):
        thread.start()
    for thread in users:
        thread.join(DEADLINE_S)
    is_over.set()
    remover.join(DEADLINE_S)
    assert not broken


def test_one_process_at_a_time_is_in_a_folder_for_one(tmp_path: Path) -> None:
    folder = tmp_path / "zephyr" / "key"
    with cache.folder_for_one(folder):
        cache.trim(folder.parent, 0)
        assert folder.is_dir()
    cache.trim(folder.parent, 0)
    assert not folder.exists()


def test_a_cache_that_may_only_be_read_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = entries(tmp_path, 1)

    def refuse(*_arguments: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert cache.hold(entry, cache.User())
    assert not cache.hold(tmp_path / "absent", cache.User())
    cache.trim(tmp_path, 0)
    assert entry.is_dir()
