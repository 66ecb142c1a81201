"""Constants that are stored without zeros: those that TFLite's converter wrote, and all others.

The files ``sparse_converter_*`` are by the converter of TensorFlow 2.21 with the option
EXPERIMENTAL_SPARSITY, of two dense layers whose weights were pruned by hand: 64x32 and 32x10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sparse_writer import Sparsity, sparsified
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model, tflite_bytes
from utvm_deploy.oracle.program import Program
from utvm_deploy.oracle.samples import random_samples

HERE = Path(__file__).parent
RNG = np.random.default_rng(5)


def written(values: np.ndarray, sparsity: Sparsity, data: bytes) -> ModelWriter:
    """A fully connected layer with such weights."""
    m = ModelWriter()
    x = m.input((2, values.shape[1]), scale=0.05, zero_point=3)
    m.output(m.fully_connected(x, values, np.arange(len(values), dtype=np.int32), scale=0.4))
    weights = m.tensors[m.operators[0].inputs[1]]
    weights.data, weights.sparsity = data, sparsity
    return m


def pruned(*shape: int) -> np.ndarray:
    return (RNG.integers(-128, 128, shape) * (RNG.random(shape) < 0.2)).astype(np.int8)


@pytest.mark.parametrize(
    "file", sorted(HERE.glob("sparse_converter_*.tflite")), ids=lambda p: p.stem
)
def test_files_of_the_converter_compute_what_they_did(file: Path) -> None:
    """LiteRT has the same outputs of the file and of the file with its zeros."""
    dense = tflite_bytes(file)
    samples = random_samples(load_model(file), 4).inputs
    outputs = []
    for data in (file.read_bytes(), dense):
        program = Program(data, keeps_all=False)
        outputs.append([program.one(sample) for sample in samples])
        (number,) = program.outputs
        outputs[-1] = [one[number] for one in outputs[-1]]
    assert np.array_equal(*outputs)
    assert len(load_model(file).operators) == 2


@pytest.mark.tools
def test_a_file_of_the_converter_is_verified() -> None:
    assert utvm_deploy.verify(HERE / "sparse_converter_densify.tflite", "host", samples=2).ok


@pytest.mark.parametrize("index", [np.uint8, np.uint16, np.int32])
@pytest.mark.parametrize(
    ("compressed", "blocks", "order"),
    [
        ((1,), {}, ()),
        ((0,), {}, (1, 0)),
        ((0, 1), {}, ()),
        ((1,), {1: 4}, ()),
        ((0, 1), {0: 2, 1: 4}, ()),
        ((1,), {1: 4, 0: 3}, (0, 1, 3, 2)),
        ((), {1: 8}, ()),
    ],
)
def test_every_order_is_read(
    compressed: Sequence[int], blocks: dict[int, int], order: Sequence[int], index: Any,
    tmp_path: Path,
) -> None:  # fmt: skip
    values = pruned(12, 40)
    values[3:7] = 0
    path = written(values, *sparsified(values, compressed, blocks, order, index)).save(
        tmp_path / "model.tflite"
    )
    graph = load_model(path)
    data = graph.tensors[graph.operators[0].inputs[1] or 0].data
    assert data is not None and np.array_equal(data, values)


def test_weights_of_four_dimensions_and_of_zeros_only(tmp_path: Path) -> None:
    values = pruned(6, 3, 3, 8)
    values[2] = 0
    for one in (values, np.zeros_like(values)):
        m = ModelWriter()
        m.output(m.conv2d(m.input((1, 5, 5, 8)), one, np.arange(6, dtype=np.int32)))
        weights = m.tensors[m.operators[0].inputs[1]]
        weights.sparsity, weights.data = sparsified(one, (0, 3), {3: 4})
        graph = load_model(m.save(tmp_path / "model.tflite"))
        data = graph.tensors[graph.operators[0].inputs[1] or 0].data
        assert data is not None and np.array_equal(data, one)


GOOD = Sparsity([0, 1], [], [2, ([0, 1, 3], [2, 0, 3])])


@pytest.mark.parametrize(
    ("sparsity", "size", "told"),
    [
        (replace(GOOD, levels=[2, ([0, 1], [2, 0, 3])]), 3, "needs 3 segments .* 2 from 0 to 1"),
        (replace(GOOD, levels=[2, ([], [])]), 0, "needs 3 segments .* but has 0"),
        (replace(GOOD, levels=[2, ([0, 2, 1], [2, 0, 3])]), 3, "needs 3 segments from 0 upwards"),
        (replace(GOOD, levels=[2, ([0, 1, 3], [2, 0])]), 3, "has 2 indices .* segments end at 3"),
        (replace(GOOD, levels=[2, ([0, 1, 3], [2, 0, 4])]), 3, "has the index 4 .* of 4"),
        (replace(GOOD, levels=[2, ([0, 0, 5], [0, 1, 2, 3, 3])]), 5, "has the index 3 twice"),
        (replace(GOOD, levels=[2, ([0, 1, 3], [2, 1, 1])]), 3, "has the index 1 twice in a seg"),
        (GOOD, 2, "has 3 elements of int8, but its buffer has 2 bytes"),
        (replace(GOOD, order=[0, 0]), 3, r"in the order \[0, 0\], but 2 are needed"),
        (replace(GOOD, levels=[2]), 3, "has 1 stored dimensions"),
        (replace(GOOD, levels=[3, *GOOD.levels[1:]]), 3, "a dense dimension of 3 .* has 2"),
        (replace(GOOD, formats=[0, 2]), 3, "a dimension of format 2"),
        (replace(GOOD, levels=[2, 4], formats=[0, 1]), 8, "without its lists"),
        (Sparsity([0, 1, 2], [1], [2, ([0, 0, 0], []), 3]), 0, "blocks of 3 in dimension 1"),
        (Sparsity([0, 1, 2], [5], [2, ([0, 0, 0], []), 2]), 0, "blocks of 2 in dimension 5"),
        (Sparsity([0, 1, 2], [1], [2, ([0, 0, 0], []), 0]), 0, "blocks of 0 in dimension 1"),
    ],
)  # fmt: skip
def test_damage_is_told_in_a_sentence(
    sparsity: Sparsity, size: int, told: str, tmp_path: Path
) -> None:
    path = written(np.zeros((2, 4), np.int8), sparsity, bytes(range(size)) or b"\0").save(
        tmp_path / "model.tflite"
    )
    with pytest.raises(ModelError, match=f"the sparse tensor 'tensor_1' .*{told}"):
        load_model(path)


def test_a_small_file_cannot_ask_for_much(tmp_path: Path) -> None:
    sparsity = Sparsity([0, 1], [], [8000, 8000])
    m = written(np.zeros((2, 4), np.int8), sparsity, b"\1")
    m.tensors[1].shape = (8000, 8000)
    with pytest.raises(ModelError, match="has only 1 elements"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_int4_without_zeros_is_refused(tmp_path: Path) -> None:
    m = written(np.zeros((2, 4), np.int8), GOOD, b"\1\2")
    m.tensors[1].dtype = "int4"
    with pytest.raises(ModelError, match="is sparse and of int4"):
        load_model(m.save(tmp_path / "model.tflite"))
