"""--kernels, --cmsis-nn and --scratch on the command line, with the stand-in for the library."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main

DIGITS = str(data_dir("models") / "digits.tflite")
BUILD_TIMEOUT_S = 120
#: Every verb that compiles a model, without its board.
COMPILING = (
    ["compile", DIGITS, "-o", "x.tar"],
    ["run", DIGITS],
    ["verify", DIGITS],
    ["profile", DIGITS],
    ["bundle", DIGITS, "-o", "bundle"],
    ["project", "create", DIGITS, "tree"],
)


def failure(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 1) -> str:
    assert main(argv) == code
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("argv", COMPILING, ids=lambda argv: argv[0])
def test_every_verb_wants_the_library_that_it_is_to_use(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = failure(capsys, *argv, "--board", "host", "--kernels", "cmsis-nn", code=2)
    assert "needs your own copy of CMSIS-NN" in said and "--cmsis-nn DIR" in said
    said = failure(capsys, *argv, "--board", "host", "--cmsis-nn", "anywhere", code=2)
    assert "--cmsis-nn works only with --kernels cmsis-nn" in said
    said = failure(capsys, *argv, "--board", "host", "--kernels=cmsis-nn", "--cmsis-nn=nowhere")
    assert "there is no CMSIS-NN at" in said and said.endswith("UTVM_CMSIS_NN)")


def test_a_library_for_another_machine(
    fake_library: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["compile", DIGITS, "-o", "x.tar", "--kernels", "cmsis-nn"]
    library = ["--cmsis-nn", str(fake_library())]
    said = failure(capsys, *argv, *library, "--board", "mps2_an500")
    assert "was built for another machine" in said and "cortex-m7" in said


def test_kernels_of_every_kind_give_the_same_bytes(
    small_model: Path,
    fake_library: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = [str(small_model), "--board", "host"]
    monkeypatch.setenv("UTVM_CMSIS_NN", str(fake_library()))
    engines = {}
    for kernels in ("best", "generic", "cmsis-nn"):
        assert main(["verify", *argv, "--samples", "1", "--kernels", kernels]) == 0
        capsys.readouterr()
        assert main(["profile", *argv, "--kernels", kernels, "--json"]) == 0
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        engines[kernels] = [(layer["engine"], layer["why"]) for layer in result["layers"]]
    assert {engine for engine, _ in engines["generic"]} == {"generic"}
    assert [engine for engine, _ in engines["cmsis-nn"]] == [
        *("CMSIS-NN", "CMSIS-NN", "generic", "CMSIS-NN")
    ]
    assert engines["cmsis-nn"][0][1] == "arm_convolve_wrapper_s8"
    assert engines["cmsis-nn"][2][1].endswith("no call of CMSIS-NN does RELU")


def test_a_library_that_fails_is_no_result(
    small_model: Path, fake_library: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    library = ["--kernels", "cmsis-nn", "--cmsis-nn", str(fake_library("FAKE_STATUS=-2"))]
    for verb in ("run", "verify", "profile"):
        said = failure(capsys, verb, str(small_model), "--board", "host", *library)
        assert "CMSIS-NN refused layer 0" in said and "no implementation" in said


@pytest.mark.tools
def test_an_archive_is_compiled_already(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(tmp_path / "x.tar")
    assert main(["compile", DIGITS, "--board", "host", "-o", archive]) == 0
    capsys.readouterr()
    create = ["project", "create", archive, "tree", "--board", "host"]
    said = failure(capsys, *create, "--kernels", "generic", code=2)
    assert "is compiled already, so --kernels would change nothing" in said
    assert main(create) == 0


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_bundle_takes_the_users_library(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A library that is wrong in a known way: the self-test must expect what it gives.
    library = fake_library("FAKE_ERROR=1")
    bundle = tmp_path / "bundle"
    argv = ["bundle", str(small_model), "--board", "host", "--samples", "1", "--no-latency"]
    argv += ["--kernels", "cmsis-nn", "--cmsis-nn", str(library)]
    assert main([*argv, "-o", str(bundle)]) == 0
    assert "CMSIS-NN gave other bytes than LiteRT" in capsys.readouterr().out
    assert not [path for path in bundle.rglob("*") if str(library) in _text(path)]
    build = ["cmake", "-S", str(bundle), "-B", str(tmp_path / "build")]
    done = subprocess.run(build, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    assert done.returncode != 0 and "needs CMSIS-NN" in done.stderr
    names = [f"-DCMSIS_NN_LIBRARY={library}/libcmsis-nn.a"]
    names += [f"-DCMSIS_NN_INCLUDE_DIRS={library}/Include"]
    for command in ([*build, *names], ["cmake", "--build", str(tmp_path / "build")]):
        subprocess.run(command, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
    done = subprocess.run(
        [str(tmp_path / "build" / "small_selftest")],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    assert done.stdout.startswith("PASS"), done.stdout
    said = failure(capsys, *argv, "-o", str(tmp_path / "other"), "--format", "arduino")
    assert "'arduino' cannot name your copy; choose one of cmake, zephyr" in said


def test_zephyr_builds_the_parts_that_are_called(
    small_model: Path, fake_library: Callable[..., Path], tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    argv = ["bundle", str(small_model), "--board", "host", "--format", "zephyr", "--no-latency"]
    argv += ["--kernels", "cmsis-nn", "--cmsis-nn", str(fake_library()), "-o", str(bundle)]
    assert main(argv) == 0
    kconfig = (bundle / "zephyr" / "Kconfig").read_text()
    selected = [line.split()[1] for line in kconfig.splitlines() if "select " in line]
    assert selected == [
        *("CMSIS_NN", "CMSIS_NN_NNSUPPORT", "CMSIS_NN_CONVOLUTION", "CMSIS_NN_FULLYCONNECTED")
    ]
    assert "`CONFIG_CMSIS_NN_CONVOLUTION`" in (bundle / "README.md").read_text()


@pytest.mark.tools
def test_where_scratch_lies_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    def sizes(*options: str) -> tuple[int, int, int]:
        argv = ["compile", DIGITS, "--board", "mps2_an500", "-o", "x.tar", "--kernels", "generic"]
        assert main([*argv, *options, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        in_pools = sum(pool["bytes"] for pool in result["pools"])
        return result["arena_bytes"], result["stack_bytes"], in_pools

    # Of the board's memories only the stack's is tightly coupled.
    less, stack, pool = sizes()
    assert stack == 0 and pool > 0 and sizes("--scratch", "auto") == (less, stack, pool)
    arena, *none = sizes("--scratch", "arena")
    assert less < arena and none == [0, 0]
    assert sizes("--scratch", "stack") == (less, pool, 0)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
