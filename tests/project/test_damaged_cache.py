"""What is damaged in the cache is made again, with a line that says so, and never used."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from tiny_model import tiny_model

from utvm_deploy.base import cache, files
from utvm_deploy.base.errors import BuildError, UtvmError
from utvm_deploy.base.files import write_text
from utvm_deploy.boards.board import load_board
from utvm_deploy.project import build_image
from utvm_deploy.project.image import Image
from utvm_deploy.project.link_module import compile_module
from utvm_deploy.targets.emulator import plugin as plugins

pytestmark = pytest.mark.tools


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def image() -> Path:
    board = load_board("host")
    return build_image(tiny_model(board), board).elf


def module() -> Path:
    return compile_module("int one(void) { return 1; }", load_board("host")).path


def plugin() -> Path:
    return plugins.build_plugin("7.2.22")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in random.Random(1).sample(range(len(data)), 64):
        data[at] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("make", [image, module, plugin])
def test_what_is_damaged_is_made_again(
    make: Callable[[], Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is built five times; what optimizes it takes most of the time.
    slow = ("-O3", "-flto")
    assert {*slow} <= {*plugins.FLAGS}
    monkeypatch.setattr(plugins, "FLAGS", tuple(f for f in plugins.FLAGS if f not in slow))
    path = make()
    whole = path.read_bytes()
    for damage in (flip, cut, empty, Path.unlink):
        caplog.clear()
        assert make() == path and not caplog.records
        damage(path)
        assert make() == path
        assert path.read_bytes() == whole, damage
        (line,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert line.getMessage().endswith("it is made again"), damage
        assert str(path.parent)[:40] in caplog.text
    caplog.clear()
    make()
    assert not caplog.records


@pytest.mark.parametrize("sums", ["", "no sums\n", "x y z\n", "\0", None])
def test_an_entry_whose_sums_are_damaged_is_made_again(own_cache: Path, sums: str | None) -> None:
    path = module()
    file = path.parent / cache.SUMS
    if sums is None:
        file.unlink()
    else:
        file.write_text(sums)
    assert module() == path
    assert len(file.read_text().splitlines()) == 1


def test_an_entry_of_0_1_0_is_not_called_damaged(caplog: pytest.LogCaptureFixture) -> None:
    """It had no sums."""
    path = module()
    (path.parent / cache.SUMS).unlink()
    caplog.clear()
    assert module() == path and (path.parent / cache.SUMS).is_file()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_what_another_process_made_again_stays(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two find an entry damaged; one puts a whole one in its place while the other still looks."""
    path = module()
    entry = path.parent
    flip(path)
    look = cache._damage

    def slowly(one: Path) -> str | None:
        reason = look(one)
        monkeypatch.setattr(cache, "_damage", look)
        module()
        return reason

    monkeypatch.setattr(cache, "_damage", slowly)
    assert not cache.take(entry, cache.User())
    assert entry.is_dir() and cache.take(entry, cache.User())


def test_a_damaged_object_of_the_runtime_gets_into_no_image(own_cache: Path) -> None:
    good = image().read_bytes()
    objects = sorted((own_cache / "objects").rglob("utvm*.o*"))
    assert objects
    for path in objects:
        flip(path)
    board = load_board("host")
    cache.trim(own_cache / "images", 0)
    assert image().read_bytes() == good
    assert build_image(None, board).elf.stat().st_size > 0


def test_what_is_renamed_into_place_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is synced before its name changes, and the folder after."""
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        events.append(("rename", str(self)))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_text(tmp_path / "out", "text")
    (first, synced), (second, renamed), last = events
    assert (first, second) == ("sync", "rename") and synced == renamed
    assert last == ("sync", str(tmp_path))
    events.clear()
    path = module()
    assert {name.rpartition("/")[2] for what, name in events if what == "sync"} >= {
        path.name,
        cache.SUMS,
        "modules",
    }


def test_a_disk_that_cannot_sync_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    write_text(tmp_path / "out", "text")
    assert (tmp_path / "out").read_text() == "text"


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(_file: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UtvmError, match="No space left"):
        files.write_atomically(tmp_path / "out", fail)
    assert list(tmp_path.glob(".*")) == []


def test_an_image_with_damaged_symbols_is_refused(tmp_path: Path) -> None:
    whole, path = bytearray(module().read_bytes()), tmp_path / "image.elf"
    path.write_bytes(whole)
    assert "one" in Image(path, load_board("host")).symbols
    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        header = elf["e_shoff"] + elf["e_shentsize"] * elf.get_section_index(".symtab")
        # A name behind all names; and a table of which the file's last bytes are the only ones.
        first, begin = table["sh_offset"] + table["sh_entsize"], header + 24
    for at, value, said in (
        (first, 1 << 24, "the name of a symbol is at 16,777,216"),
        (begin, len(whole) - 8, "multiple of 24 bytes"),
    ):
        damaged = bytearray(whole)
        damaged[at : at + 4] = value.to_bytes(4, "little")
        path.write_bytes(damaged)
        with pytest.raises(BuildError, match=f"cannot be read as an ELF file: .*{said}"):
            _ = Image(path, load_board("host")).symbols
