"""The cycle model of the Cortex-M55: it equals llvm-mca's reading of LLVM's schedule, and knows all
that networks run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "cycle_model" / "llvm_mca.py"

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))),
    reason="needs arm-none-eabi-gcc and qemu-system-arm; sudo apt install gcc-arm-none-eabi "
    "qemu-system-arm",
)


@pytest.mark.tools
@needs_tools
def test_two_hundred_sequences_take_what_llvm_mca_said() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 differ" in done.stdout


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
def test_a_profile_is_in_modelled_cycles_and_every_instruction_is_known() -> None:
    model = data_dir("models") / "digits.tflite"
    found = utvm_deploy.profile(model, "mps3_an547").found
    assert found.tick_unit == "cycles" and found.is_modelled
    for layer in found.layers:
        figures = layer.figures
        assert figures is not None
        # Tightly coupled memories, and one figure for all.
        assert figures["cycles"] == figures["core"] == figures["pessimistic"] == figures["rich"]
        assert figures["mix_unknown"] == 0
