"""Models that once were computed wrongly, reduced to the smallest form: they stay right."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tflite

from random_models.command import REGRESSIONS
from random_models.runner import SAMPLE_SEED, Rig, Verdict, samples_of_shapes
from utvm_deploy.boards.board import load_board

FILES = sorted(REGRESSIONS.glob("*.tflite"))
#: What the oracle runs but does not define: we say so.
REFUSED = "refused_"
#: One core of each family of kernels.
BOARDS = ("host", "mps2_an500", "mps2_an386", "mps2_an385", "mps3_an547")


@pytest.fixture(scope="module", params=BOARDS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    emulator = load_board(request.param).emulator
    if emulator and not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    with Rig(request.param, fence=emulator is not None) as opened:
        yield opened


def file_samples(path: Path) -> tuple[tuple[np.ndarray, ...], ...]:
    """As in the run that found it; from the file, for we may refuse it."""
    subgraph = tflite.Model.GetRootAs(path.read_bytes(), 0).Subgraphs(0)
    tensors = [subgraph.Tensors(number) for number in subgraph.InputsAsNumpy()]
    types = {n: name.lower() for name, n in vars(tflite.TensorType).items() if isinstance(n, int)}
    shapes = [(tuple(t.ShapeAsNumpy().tolist()), types[t.Type()]) for t in tensors]
    return samples_of_shapes(np.random.default_rng(SAMPLE_SEED), shapes)


@pytest.mark.tools
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_regression(rig: Rig, path: Path) -> None:
    outcome = rig.check_file(path, file_samples(path))
    expected = Verdict.REFUSED if path.name.startswith(REFUSED) else Verdict.EQUAL
    assert outcome.verdict is expected, outcome


def test_there_are_some() -> None:
    assert FILES
