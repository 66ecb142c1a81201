"""Bundles: what is in them, that damage is found, and that nobody's files are overwritten."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bundle_cases import BOARD, LIBRARIES, Case, write

from utvm_deploy.base.errors import BundleError, UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.bundling import check_bundle
from utvm_deploy.bundling.external import external_kconfig
from utvm_deploy.bundling.manifest import MANIFEST
from utvm_deploy.kernels.contract.external_library import ExternalLibrary


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("form", LIBRARIES)
@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_what_is_written_is_found_whole(
    form_case: Case, tmp_path: Path, form: str, suffix: str
) -> None:
    path = write(form_case, tmp_path / f"b{suffix}", format=form)
    check_bundle(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name], "left something beside it"


def test_manifest_tells_what_is_inside(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b", report={"ticks": 12})
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["schema"] == "utvm.bundle/1"
    assert manifest["model"] == {"file": "net.tflite", "sha256": case.compiled.model_digest}
    assert manifest["arena_bytes"] == case.compiled.arena_bytes
    assert manifest["weights_bytes"] == case.compiled.weights_bytes
    assert manifest["inputs"][0]["shape"] == [1, 6, 6, 2]
    assert manifest["report"] == {"ticks": 12}
    assert set(manifest["versions"]) == {"utvm_deploy", "apache-tvm"}
    assert manifest["golden"]["samples"] == len(case.inputs)
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files == {*manifest["files"], MANIFEST}


def test_no_path_of_this_machine_is_inside(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b")
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert str(tmp_path) not in text
            assert str(Path.home()) + "/" not in text
            assert "@NAME@" not in text
            assert "@UPPER@" not in text


@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_equal_models_give_equal_bundles(case: Case, tmp_path: Path, suffix: str) -> None:
    first, second = (write(case, tmp_path / f"{n}{suffix}") for n in "ab")
    if suffix:
        assert first.read_bytes() == second.read_bytes()
    else:
        assert (first / MANIFEST).read_bytes() == (second / MANIFEST).read_bytes()


def test_flipped_byte_in_any_file_is_found(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b")
    rng = np.random.default_rng(8)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        whole = path.read_bytes()
        positions = {0, len(whole) - 1, *(int(i) for i in rng.integers(0, len(whole), 12))}
        for position in positions:
            flip(path, position, int(rng.integers(8)))
            with pytest.raises(BundleError, match=path.name.replace(".", r"\.")):
                check_bundle(folder)
            path.write_bytes(whole)
    check_bundle(folder)


def test_flipped_byte_in_a_zip_is_found_or_changes_no_file(case: Case, tmp_path: Path) -> None:
    path = write(case, tmp_path / "b.zip")

    def contents() -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {m.filename.split("/", 1)[1]: archive.read(m) for m in archive.infolist()}

    whole, expected = path.read_bytes(), contents()
    rng = np.random.default_rng(9)
    refused = 0
    for position in rng.choice(len(whole), 120, replace=False):
        flip(path, int(position), int(rng.integers(8)))
        try:
            check_bundle(path)
        except BundleError:
            refused += 1
        else:
            # Dates, attributes and the like in the archive's own tables.
            assert contents() == expected
        path.write_bytes(whole)
    assert refused > 60


def test_missing_extra_and_odd_files_are_named(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b")
    header = folder / "include" / "net.h"
    text = header.read_bytes()
    header.unlink()
    with pytest.raises(BundleError, match=r"include is an empty folder"):
        check_bundle(folder)
    header.parent.rmdir()
    with pytest.raises(BundleError, match=r"include/net\.h is missing"):
        check_bundle(folder)
    header.parent.mkdir()
    header.write_bytes(text)
    (folder / "note.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"note\.txt does not belong"):
        check_bundle(folder)
    (folder / "note.txt").unlink()
    header.rename(tmp_path / "net.h")
    header.symlink_to(tmp_path / "net.h")
    with pytest.raises(BundleError, match=r"include/net\.h is neither a file nor a folder"):
        check_bundle(folder)


def test_manifest_that_is_altered_on_purpose_is_found(case: Case, tmp_path: Path) -> None:
    path = write(case, tmp_path / "b") / MANIFEST
    manifest = json.loads(path.read_text())
    for change in ({"arena_bytes": 1}, {"schema": "utvm.bundle/9"}, {"digest": 3}, {"files": {}}):
        path.write_text(json.dumps({**manifest, **change}, indent=2) + "\n")
        with pytest.raises(BundleError, match=r"manifest\.json"):
            check_bundle(path.parent)
    for text in ("", "[]", "{}", "[" * 100_000, json.dumps(manifest), '{"schema": NaN}'):
        path.write_text(text)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            check_bundle(path.parent)
    path.unlink()
    with pytest.raises(BundleError, match=r"manifest\.json is missing"):
        check_bundle(path.parent)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no bundle"):
        check_bundle(tmp_path / "nowhere")
    path = tmp_path / "x.zip"
    path.write_bytes(b"no archive")
    with pytest.raises(BundleError, match=r"no \.zip file, or a damaged one"):
        check_bundle(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/manifest.json", "{}")
        archive.writestr("../evil", "{}")
    with pytest.raises(BundleError, match="evil does not belong"):
        check_bundle(path)


def test_older_bundle_is_replaced(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b", format="arduino")
    write(case, folder, format="cmake")
    check_bundle(folder)
    assert not (folder / "library.properties").exists()
    (tmp_path / "empty").mkdir()
    check_bundle(write(case, tmp_path / "empty"))


def test_other_peoples_files_are_not_overwritten(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match="would be replaced, and is not an unchanged bundle"):
        write(case, folder)
    bundle = write(case, tmp_path / "b")
    (bundle / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"thesis\.txt does not belong"):
        write(case, bundle)
    file = tmp_path / "file"
    file.write_text("years of work")
    with pytest.raises(BundleError, match="is not a folder"):
        write(case, file)
    (tmp_path / "dir.zip").mkdir()
    with pytest.raises(UtvmError, match="is a folder"):
        write(case, tmp_path / "dir.zip")
    with pytest.raises(BundleError, match="cannot write next to"):
        write(case, tmp_path / "no" / "such" / "folder")
    for path in (folder / "thesis.txt", bundle / "thesis.txt", file):
        assert path.read_text() == "years of work"


def test_interrupted_write_leaves_the_old_bundle(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(case, tmp_path / "b")
    old = (folder / MANIFEST).read_bytes()
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(case, folder, report={"new": True})
    assert (folder / MANIFEST).read_bytes() == old
    check_bundle(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_wrong_requests_are_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no bundle format 'cmak'; choose one of cmake"):
        write(case, tmp_path / "b", format="cmak")
    with pytest.raises(BundleError, match="was compiled for"):
        write(replace(case, board=load_board("host")), tmp_path / "b")
    with pytest.raises(BundleError, match="give at least one sample"):
        write(replace(case, inputs=[], expected=[]), tmp_path / "b")
    with pytest.raises(BundleError, match="0 inputs and 2 expected"):
        write(replace(case, inputs=[]), tmp_path / "b")
    with pytest.raises(BundleError, match=r"sample 0 has 2 input\(s\), the model 1"):
        write(replace(case, inputs=[[*i, *i] for i in case.inputs]), tmp_path / "b")
    halves = [[i[0][..., :1]] for i in case.inputs]
    with pytest.raises(BundleError, match=r"input 0 of sample 0 is int8 \[1, 6, 6, 1\]"):
        write(replace(case, inputs=halves), tmp_path / "b")
    with pytest.raises(BundleError, match="cannot be written as JSON"):
        write(case, tmp_path / "b", report={"x": object()})
    assert not (tmp_path / "b").exists()


def test_arduino_library_has_all_code_in_src(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b", format="arduino")
    src = {p.name for p in (folder / "src").iterdir()}
    assert src == {"net.h", "net.c", "net_kernels.c", "net_weights.c", "net_private.h"}
    properties = dict(
        line.split("=", 1) for line in (folder / "library.properties").read_text().splitlines()
    )
    assert properties["name"] == "net"
    assert properties["includes"] == "net.h"
    assert {"version", "author", "maintainer", "sentence", "paragraph", "category"} <= {*properties}
    assert (folder / "examples" / "net" / "net.ino").is_file()


def test_platformio_library_is_described(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b", format="platformio")
    library = json.loads((folder / "library.json").read_text())
    assert library["name"] == "net"
    assert (folder / library["build"]["includeDir"] / library["headers"]).is_file()
    assert (folder / library["build"]["srcDir"] / "net.c").is_file()


@pytest.mark.parametrize(
    ("place", "depends"), [("host", ""), ("mps2_an500", "\tdepends on CPU_CORTEX_M\n")]
)
def test_zephyr_options_of_a_library(place: str, depends: str) -> None:
    """A core that Zephyr has no symbol for gives no line, rather than one without its word."""
    library = ExternalLibrary("lib", "", (), "", "00", "", ("f",), zephyr_config=("LIB",))
    assert external_kconfig((library,), load_board(place)) == f"{depends}\tselect LIB\n"


def test_zephyr_module_names_its_own_files(case: Case, tmp_path: Path) -> None:
    folder = write(case, tmp_path / "b", format="zephyr")
    assert "kconfig: zephyr/Kconfig" in (folder / "zephyr" / "module.yml").read_text()
    assert "config NET\n" in (folder / "zephyr" / "Kconfig").read_text()
    cmake = (folder / "zephyr" / "CMakeLists.txt").read_text()
    for line in cmake.splitlines():
        if line.strip().startswith("../src/"):
            assert (folder / "zephyr" / line.strip().rstrip(")")).is_file()
    assert cmake.count("../src/") == 3


def test_bundle_for_the_host_has_no_start_up_code(host_case: Case, tmp_path: Path) -> None:
    folder = write(host_case, tmp_path / "b")
    assert not (folder / "selftest" / "cortex_m").exists()
    assert BOARD not in (folder / "README.md").read_text()


def test_checked_copy_is_still_whole(case: Case, tmp_path: Path) -> None:
    copied = shutil.copytree(write(case, tmp_path / "b"), tmp_path / "copy")
    check_bundle(copied)


def test_the_stack_of_the_selftest_holds_scratch(case: Case, tmp_path: Path) -> None:
    compiled = replace(case.compiled, stack_bytes=12_000)
    bundle = write(replace(case, compiled=compiled), tmp_path / "bundle")
    script = (bundle / "selftest" / "cortex_m" / "selftest.ld").read_text()
    reserved = re.search(r"\. \+= (\d+);", script)
    assert reserved and int(reserved[1]) >= 12_000 + case.board.project.stack_bytes
    readme = (bundle / "README.md").read_text()
    assert "13,024 bytes" in readme
    assert "-mcpu=cortex-m7" in readme
