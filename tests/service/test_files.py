"""Files by digest: whole or absent, also on a full disk and after a kill."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from small_disk import small_disk

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.refusals import NoRoom

ROOT = Path(__file__).parents[2]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    files = Files(tmp_path)
    digest = files.add(b"content")
    assert digest == hashlib.sha256(b"content").hexdigest() == files.add(b"content")
    assert files.path(digest).read_bytes() == b"content"
    assert files.total_bytes == size_of(tmp_path) == 7
    assert Files(tmp_path).total_bytes == 7


def test_a_block_that_fails_keeps_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with pytest.raises(ZeroDivisionError), files.writing() as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert size_of(tmp_path) == files.total_bytes == 0


@pytest.mark.parametrize("digest", ["", "ab", "../" * 21 + "a", "A" * 64, "0" * 63 + "\n"])
def test_only_a_digest_names_a_file(tmp_path: Path, digest: str) -> None:
    with pytest.raises(UtvmError, match="64 hexadecimal digits"):
        Files(tmp_path).path(digest)


def test_what_is_used_or_held_is_not_removed(tmp_path: Path) -> None:
    files = Files(tmp_path)
    used, unused = files.add(b"used"), files.add(b"unused")
    with files.holding():
        held = files.add(b"held")
        assert files.remove([held], lambda _: False) == 0
        with files.holding():
            inner = files.add(b"inner")
        assert files.remove([inner], lambda _: False) == 0
    assert files.remove([inner], lambda _: False) == 5
    assert files.remove([used, unused, "0" * 64], lambda digest: digest == used) == 6
    assert sorted(files.digests()) == sorted([used, held])
    assert files.remove([held], lambda _: False) == 4
    assert files.total_bytes == size_of(tmp_path) == 4


def test_content_of_two_writers_is_held_until_both_are_done(tmp_path: Path) -> None:
    files = Files(tmp_path)

    def add_too() -> None:
        with files.holding():
            files.add(b"both")

    with files.holding():
        both = files.add(b"both")
        other = threading.Thread(target=add_too)
        other.start()
        other.join()
        assert files.remove([both], lambda _: False) == 0
    assert files.remove([both], lambda _: False) == 4


def test_adding_and_removing_at_once_loses_nothing(tmp_path: Path) -> None:
    """Threads add the same contents, name them, and check that they are there."""
    files = Files(tmp_path)
    named, lost, is_over = set[str](), list[str](), threading.Event()

    def remove() -> None:
        while not is_over.is_set():
            files.remove(files.digests(), named.__contains__)

    def add(number: int) -> None:
        for turn in range(40):
            with files.holding():
                digest = files.add(b"%d" % (turn * 10 + number % 2))
                named.add(digest)
            if not files.path(digest).exists():
                lost.append(digest)

    remover = threading.Thread(target=remove)
    adders = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in (remover, *adders):
        thread.start()
    for thread in adders:
        thread.join()
    is_over.set()
    remover.join()
    assert lost == [] and set(files.digests()) == named
    assert files.total_bytes == size_of(tmp_path)


def test_a_full_disk_keeps_nothing_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path)
    kept = files.add(b"kept")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(NoRoom, match="make room"):
            files.add(b"more")
    assert files.digests() == [kept] and files.total_bytes == size_of(tmp_path) == 4
    # There is room again.
    assert len(files.digests()) + 1 == len({*files.digests(), files.add(b"more")})


def test_a_real_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 256 << 10) as place:
        files = Files(place)
        first = files.add(bytes(100_000))
        with pytest.raises(NoRoom, match="make room"):
            files.add(os.urandom(300_000))
        assert files.digests() == [first] and files.total_bytes == size_of(place) == 100_000
        files.remove([first], lambda _: False)
        assert files.path(files.add(b"1" * 100_000)).stat().st_size == 100_000


_WRITER = """
import os, sys
from pathlib import Path
from utvm_deploy.service.server.store.files import Files
files = Files(Path(sys.argv[1]))
while True:
    print(files.add(os.urandom(200_000)), flush=True)
"""


def test_a_killed_writer_leaves_whole_files(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with writer:
        assert writer.stdout is not None
        told = {writer.stdout.readline().strip() for _ in range(20)}
        writer.send_signal(signal.SIGKILL)
    files = Files(tmp_path)
    assert told <= set(files.digests())
    for digest in files.digests():
        assert hashlib.sha256(files.path(digest).read_bytes()).hexdigest() == digest
    assert files.total_bytes == size_of(tmp_path)
