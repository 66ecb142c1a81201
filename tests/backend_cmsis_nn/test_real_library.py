"""The real CMSIS-NN on an emulated Cortex-M7; UTVM_CMSIS_NN names the user's copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from covered_models import covered_bytes, covered_halfwords
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import find_cmsis_nn_builds
from utvm_deploy.results.comparing.engines import compare_builds
from utvm_deploy.results.comparing.facts import ModelComparison

# Read before the tests' clean environment takes it away.
LIBRARY = os.environ.get("UTVM_CMSIS_NN")

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(
        LIBRARY is None, reason="UTVM_CMSIS_NN names no CMSIS-NN built for a Cortex-M7"
    ),
    pytest.mark.skipif(
        shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed"
    ),
]


@pytest.mark.parametrize("model", ["digits", "cifar10_cnn"])
def test_all_but_dense_layers_are_equal(model: str) -> None:
    found = compared(data_dir("models") / f"{model}.tflite")
    assert all(layer.their_kernel for layer in found.layers)
    assert {layer.kind for layer in found.differing_layers} <= {"FULLY_CONNECTED"}
    assert found.our_placement == found.their_placement


@pytest.mark.parametrize("make", [covered_bytes, covered_halfwords])
def test_every_call_gives_our_bytes(make: Callable[[], ModelWriter], tmp_path: Path) -> None:
    found = compared(make().save(tmp_path / "m.tflite"))
    assert all(layer.their_kernel for layer in found.layers)
    assert {layer.kind for layer in found.differing_layers} <= {"FULLY_CONNECTED"}


def compared(path: Path) -> ModelComparison:
    board = load_board("mps2_an500")
    assert LIBRARY is not None
    ours = utvm_deploy.compile(path, board)
    # All builds that the folder holds, as `utvm bench` takes them.
    theirs = {
        library.label: utvm_deploy.compile(path, board, kernels="cmsis-nn", cmsis_nn=library)
        for library in find_cmsis_nn_builds(Path(LIBRARY), board)
    }
    with utvm_deploy.connect(board) as device:
        found = compare_builds(device, ours, theirs, random_samples(load_model(path), 1))
    differing = tuple(layer.index for layer in found.differing_layers)
    assert all(build.differing_layers == differing for build in found.builds)
    return found
