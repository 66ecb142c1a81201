"""Model Library Format: round trip, reproducible bytes, hostile and damaged archives."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.compiler.budgets import Tradeoff
from utvm_deploy.compiler.compiled import library_format
from utvm_deploy.compiler.compiled.library_format import (
    SECTION_VERSION,
    read_library,
    write_library,
)
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel, Layer
from utvm_deploy.compiler.compiled.record import to_json

BUFFER = Buffer("in;put", "int8", (1, 4), 0.1, -3, 0, 4, None)
OUTPUT = Buffer("output", "float32", (2,), None, None, 16, 8, 7, channels=(1, 3))
LAYER = Layer(0, "ADD", "output", "tiny_add", "generic C", (0, 1), (OUTPUT,), 4, 0, 8, "generic")
COMPILED = CompiledModel(
    name="tiny",
    board="some_board",
    core="cortex-m4",
    sources={
        name: f"// {name} µ\n"
        for name in ("tiny.h", "tiny.c", "tiny_kernels.c", "tiny_weights.c", "tiny_private.h")
    },
    layers=(LAYER,),
    inputs=(BUFFER,),
    outputs=(OUTPUT,),
    arena_bytes=32,
    arena_alignment=16,
    weights_bytes=8,
    macs=4,
    model_digest="00" * 32,
    kernel_ir={"tiny_add": "def tiny_add(): ...\n"},
    seconds={"import": 0.1},
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.tar"
    write_library(COMPILED, path)
    return path


def repack(path: Path, *extra: tuple[tarfile.TarInfo, bytes], without: str = "") -> None:
    """Write the archive again with members added or taken away."""
    with tarfile.open(path) as old:
        kept = [(m, old.extractfile(m).read()) for m in old if m.name != without]  # type: ignore[union-attr]
    with tarfile.open(path, "w") as new:
        for info, data in [*kept, *extra]:
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))


def test_round_trip(archive: Path) -> None:
    read = read_library(archive)
    assert read == COMPILED
    assert list(read.sources) == list(COMPILED.sources)
    assert read.seconds == {}


def test_archives_of_before_the_unit_of_a_tradeoff(tmp_path: Path) -> None:
    """They lack the key, and where it says what it always was, it is still left out."""
    made = Tradeoff(32, 900, 64, 800, 16, 0.5)
    names = "arena_bytes cycles fastest_bytes fastest_cycles least_bytes measured streamed"
    assert list(to_json(made)) == names.split()
    path = tmp_path / "tiny.tar"
    for tradeoff in (made, replace(made, unit="instructions")):
        write_library(replace(COMPILED, tradeoff=tradeoff), path)
        assert read_library(path).tradeoff == tradeoff
    write_library(replace(COMPILED, tradeoff=replace(made, unit="a\x1bb")), path)
    with pytest.raises(ModelError, match="unit of the tradeoff"):
        read_library(path)


def test_a_packed_tensor_comes_back(tmp_path: Path) -> None:
    path, packed = (
        tmp_path / "packed.tar",
        replace(OUTPUT, dtype="int4", size_bytes=2, shape=(1, 3), channels=None),
    )
    layer = replace(LAYER, outputs=(packed,))
    compiled = replace(COMPILED, outputs=(packed,), layers=(layer,))
    write_library(compiled, path)
    assert read_library(path) == compiled
    unpacked = replace(packed, size_bytes=3)
    write_library(replace(compiled, outputs=(unpacked,)), path)
    with pytest.raises(ModelError, match="has 3 bytes, which its shape does not"):
        read_library(path)


def test_archive_is_reproducible_and_owned_by_root(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    write_library(COMPILED, again)
    assert again.read_bytes() == archive.read_bytes()
    with tarfile.open(archive) as tar:
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in tar} == {
            (0, 0, "root", "root", 0)
        }


def test_date_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    write_library(COMPILED, tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as tar:
        metadata = json.load(tar.extractfile("metadata.json"))  # type: ignore[arg-type]
    assert metadata["modules"]["tiny"]["export_datetime"] == "1970-01-02 00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(CompileError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        write_library(COMPILED, tmp_path / "y.tar")


def test_metadata_is_what_model_library_format_says(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        metadata = json.load(tar.extractfile("metadata.json"))  # type: ignore[arg-type]
    module = metadata["modules"]["tiny"]
    assert metadata["version"] == 7
    assert module["style"] == "full-model"
    (main,) = module["memory"]["functions"]["main"]
    assert main["workspace_size_bytes"] == 32
    assert main["constants_size_bytes"] == 8
    assert main["inputs"] == {"in;put": {"size": 4, "dtype": "int8"}}
    assert main["outputs"] == {"output": {"size": 8, "dtype": "float32"}}


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "codegen/host/src/../../../evil.c", "codegen/host/src/.evil", "x.so"],
)
def test_member_outside_is_refused(archive: Path, name: str) -> None:
    repack(archive, (tarfile.TarInfo(name), b"evil"))
    with pytest.raises(ModelError, match="unexpected member"):
        read_library(archive)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_link_or_device_is_refused(archive: Path, kind: bytes) -> None:
    link = tarfile.TarInfo("codegen/host/src/link.c")
    link.type, link.linkname = kind, "/etc/passwd"
    repack(archive, (link, b""))
    with pytest.raises(ModelError, match="unexpected member"):
        read_library(archive)


def test_duplicate_added_and_missing_members_are_refused(archive: Path) -> None:
    whole = archive.read_bytes()
    repack(archive, (tarfile.TarInfo("codegen/host/src/tiny.c"), b"// other"))
    with pytest.raises(ModelError, match=r"unexpected member 'codegen/host/src/tiny\.c'"):
        read_library(archive)
    archive.write_bytes(whole)
    repack(archive, (tarfile.TarInfo("codegen/host/src/more.c"), b"int more;"))
    with pytest.raises(ModelError, match="missing, was added or was altered"):
        read_library(archive)
    archive.write_bytes(whole)
    repack(archive, without="codegen/host/src/tiny.c")
    with pytest.raises(ModelError, match="missing, was added or was altered"):
        read_library(archive)


def test_any_flipped_byte_is_refused_or_harmless(archive: Path) -> None:
    """Padding and header fields that are not read may change; nothing that is used can."""
    whole = archive.read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for position in rng.choice(len(whole), 150, replace=False):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        archive.write_bytes(damaged)
        try:
            assert read_library(archive) == COMPILED
        except ModelError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arena_bytes": "32"}, "arena_bytes is not of type int"),
        ({"surprise": 1}, "missing or unknown keys: surprise"),
        ({"layers": 3}, "layers is not a list"),
        ({"inputs": [7]}, "Buffer is not an object"),
        ({"name": "../tiny"}, "cannot prefix C symbols"),
    ],
)
def test_wrong_metadata_is_refused(
    archive: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], message: str
) -> None:
    # An archive made on purpose has right digests.
    original = library_format.to_json
    monkeypatch.setattr(library_format, "to_json", lambda *a: {**original(*a), **change})
    write_library(COMPILED, archive)
    with pytest.raises(ModelError, match=message):
        read_library(archive)


def test_other_version_is_refused(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_format, "SECTION_VERSION", 99)
    write_library(COMPILED, archive)
    monkeypatch.undo()
    with pytest.raises(ModelError, match=f"has version 99, not {SECTION_VERSION}"):
        read_library(archive)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with pytest.raises(ModelError, match="cannot read"):
        read_library(path)
    for content in (b"", b"x" * 4096, b"\x1f\x8b" + b"\0" * 600):
        path.write_bytes(content)
        with pytest.raises(ModelError, match="is not a Model Library Format archive"):
            read_library(path)
