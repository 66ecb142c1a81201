"""Bundles of the shared models, built by their own CMake outside the project, tested in QEMU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main

MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
BOARD = "mps2_an500"
TIMEOUT_S = 300


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_selftest_of_a_shared_model_passes(name: str, tmp_path: Path, shared_models: Path) -> None:
    emulator = load_board(BOARD).emulator
    assert emulator is not None
    if not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    bundle, built = tmp_path / "bundle", tmp_path / "built"
    golden = shared_models / f"{name}.golden.npz"
    model = shared_models / f"{name}.tflite"
    argv = ["bundle", str(model), "--board", BOARD, "-o", str(bundle), "--golden", str(golden)]
    assert main([*argv, "--name", "net", "--no-latency"]) == 0
    toolchain = bundle / "selftest" / "cortex_m" / "toolchain.cmake"
    run("cmake", "-S", bundle, "-B", built, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}")
    run("cmake", "--build", built)
    machine = [emulator.program, "-machine", emulator.machine, "-display", "none"]
    said = run(*machine, "-semihosting", "-kernel", built / "net_selftest.elf")
    assert said.strip().splitlines()[-1].startswith("PASS")
