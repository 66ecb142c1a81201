"""Inputs from files have the model's shape, or that without its leading 1, as in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import checked_inputs
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import load_golden, load_input

SHAPE = (1, 4, 6, 2)
ACCEPTED = [SHAPE, SHAPE[1:]]
# As many elements, in another order: NCHW, flat, folded, more 1s.
REFUSED = [(1, 2, 4, 6), (2, 4, 6), (48,), (1, 48), (8, 6), (1, 1, 4, 6, 2), (4, 6, 2, 1), ()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One input of SHAPE."""
    m = ModelWriter()
    m.output(m.average_pool(m.input(SHAPE, scale=0.1), 2, stride=2))
    return m.save(tmp_path_factory.mktemp("model") / "pool.tflite")


def values(shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(SHAPE))
    return np.resize(np.arange(count, dtype=np.int8), shape)


@pytest.mark.parametrize("shape", [*ACCEPTED, *REFUSED])
def test_files_and_python_take_the_same_shapes(
    shape: tuple[int, ...], model: Path, tmp_path: Path
) -> None:
    graph, compiled = load_model(model), compile_model(model, load_board("host"))
    tensor, array = graph.tensors[graph.inputs[0]], values(shape)
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", inputs=np.stack([array, array]))
    if shape in ACCEPTED:
        (given,) = checked_inputs(compiled, [array])
        np.testing.assert_array_equal(given, values(SHAPE))
        np.testing.assert_array_equal(load_input(tmp_path / "x.npy", tensor), given)
        golden = load_golden(tmp_path / "x.npz", graph)
        np.testing.assert_array_equal(golden.inputs[1][0], given)
        return
    wanted = r"\(1, 4, 6, 2\) or \(4, 6, 2\)"
    with pytest.raises(ModelError, match=wanted):
        checked_inputs(compiled, [array])
    with pytest.raises(ModelError, match=wanted):
        load_input(tmp_path / "x.npy", tensor)
    with pytest.raises(ModelError, match=wanted):
        load_golden(tmp_path / "x.npz", graph)


def test_a_golden_array_without_a_first_axis(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", inputs=np.int8(3))
    with pytest.raises(ModelError, match="counted by the first axis"):
        load_golden(tmp_path / "x.npz", load_model(model))


def test_damaged_files(model: Path, tmp_path: Path) -> None:
    graph = load_model(model)
    np.save(tmp_path / "x.npy", values(SHAPE))
    np.savez(tmp_path / "x.npz", inputs=values(SHAPE)[None])
    whole = (tmp_path / "x.npy").read_bytes()
    # A header that does not end as Python.
    (tmp_path / "x.npy").write_bytes(whole.replace(b"}", b"(", 1))
    with pytest.raises(ModelError, match=r"x\.npy is no \.npy array; write"):
        load_input(tmp_path / "x.npy", graph.tensors[graph.inputs[0]])
    whole = (tmp_path / "x.npz").read_bytes()
    # Encrypted, of a later version of zip, and of a method that nobody knows.
    for offset, value in ((8, 1), (6, 163), (10, 99)):
        place = whole.index(b"PK\x01\x02") + offset
        damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
        (tmp_path / "x.npz").write_bytes(damaged)
        with pytest.raises(ModelError, match=r"x\.npz is no \.npz file of arrays; write"):
            load_golden(tmp_path / "x.npz", graph)
