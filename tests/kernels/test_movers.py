"""What repeats, reverses, gathers or cuts into blocks, against the reference."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import Compiled, check, check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower

Shape = tuple[int, ...]


def ints(m: ModelWriter, *values: Any) -> list[int]:
    return [m.constant(np.array(value, np.int32)) for value in values]


def source(m: ModelWriter, shape: Shape, dtype: str = "int8") -> int:
    scale = {"int8": 0.05, "int16": 0.0005}.get(dtype)
    number = m.tensor(shape, dtype, scale, -7 if dtype == "int8" else 0)
    m.inputs.append(number)
    return number


def _fill(m: ModelWriter, value: int, shape: Shape) -> int:
    spec = m.tensors[value]
    made = m.tensor(shape, spec.dtype, spec.scales or None, spec.zero_points or 0)
    m.operator("FILL", [*ints(m, list(shape)), value], [made], ("FillOptions", {}))
    return made


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "int32", "int64"])
def test_repeated_and_reversed(dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    for shape, times in (((3,), [4]), ((2, 3), [1, 2]), ((1, 2, 3, 2), [2, 3, 1, 2])):
        made = tuple(d * t for d, t in zip(shape, times, strict=True))
        m.output(m.node("TILE", [source(m, shape, dtype), *ints(m, times)], made))
    for shape, made in (((3,), (4, 3)), ((2, 1, 3), (2, 5, 3)), ((1,), (2, 3)), ((2, 3), (2, 3))):
        x = source(m, shape, dtype)
        m.output(m.node("BROADCAST_TO", [x, *ints(m, list(made))], made))
    for made in ((4,), (2, 3, 1, 5)):
        m.output(_fill(m, source(m, (), dtype), made))
    for shape, axes in (((5,), [0]), ((2, 3, 4), [1]), ((2, 3, 4), [-1, 1]), ((4, 5), [0, 1])):
        m.output(m.node("REVERSE_V2", [source(m, shape, dtype), *ints(m, axes)], shape))
    assert check(m, tmp_path) == len(m.inputs)


# shape, axis, batch dimensions, shape of the indices
GATHERS = [
    ((2, 5, 3), 1, 1, (2, 4)),
    ((2, 5), 1, 1, (2, 1)),
    ((2, 3, 4, 2), 2, 2, (2, 3, 6)),
    ((2, 3, 4, 2), 2, -1, (2, 3, 6)),
    ((3, 4, 2), -2, 1, (3, 2, 2)),
]


def test_gathered_in_batches(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    m = ModelWriter()
    for shape, axis, batches, places in GATHERS:
        indices = m.constant(rng.integers(0, shape[axis], places).astype(np.int32))
        count = batches % len(places)
        made = (*shape[:axis], *places[count:], *shape[axis % len(shape) + 1 :])
        options = ("GatherOptions", {"Axis": axis, "BatchDims": batches})
        m.output(m.node("GATHER", [source(m, shape), indices], made, options))
    assert check(m, tmp_path) == len(GATHERS)


def test_gathered_places(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    m = ModelWriter()
    cases = [
        ((5,), (3, 1)),
        ((4, 5), (3, 2)),
        ((4, 5), (2, 3, 1)),
        ((2, 3, 4), (2,)),
        ((2, 3), (1,)),
    ]
    for shape, places in cases:
        leading = shape[: places[-1]]
        indices = rng.integers(0, leading, (*places[:-1], len(leading))).astype(np.int32)
        made = (*places[:-1], *shape[len(leading) :]) or (1,)
        x = source(m, shape)
        m.output(m.node("GATHER_ND", [x, m.constant(indices)], made, ("GatherNdOptions", {})))
    assert check(m, tmp_path) == len(cases)


# image, blocks, paddings
BLOCKS = [
    ((1, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]),
    ((2, 5, 3, 2), [2, 2], [[1, 0], [0, 1]]),
    ((1, 7, 1, 4), [4, 1], [[2, 3], [0, 0]]),
    ((1, 9, 5), [3], [[0, 0]]),
    ((3, 9, 2), [4], [[2, 1]]),
    ((1, 1, 1, 1), [2, 2], [[1, 0], [0, 1]]),
]


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_blocks(dtype: str, tmp_path: Path) -> None:
    """Cut, and put together again with what was added cropped off."""
    m = ModelWriter()
    operators = 0
    for shape, blocks, margins in BLOCKS:
        count = math.prod(blocks)
        parts = [
            (d + sum(margin)) // b
            for d, b, margin in zip(shape[1:-1], blocks, margins, strict=True)
        ]
        made = (shape[0] * count, *parts, shape[-1])
        operands = ints(m, blocks, margins)
        y = m.node("SPACE_TO_BATCH_ND", [source(m, shape, dtype), *operands], made)
        m.output(y, m.node("BATCH_TO_SPACE_ND", [y, *operands], shape))
        operators += 4 if np.any(margins) else 2
    assert check(m, tmp_path) == operators


def test_blocks_of_whole_numbers_move_but_are_not_padded(tmp_path: Path) -> None:
    m = ModelWriter()
    for blocks, margins, made in (([2, 2], [[0, 0]] * 2, (4, 2, 3, 1)),):
        x = source(m, (1, 4, 6, 1), "int32")
        m.output(m.node("SPACE_TO_BATCH_ND", [x, *ints(m, blocks, margins)], made))
    assert check(m, tmp_path) == 1
    x = source(m, (1, 3, 5, 1), "int32")
    m.output(m.node("SPACE_TO_BATCH_ND", [x, *ints(m, [2, 2], [[1, 0], [0, 1]])], (4, 2, 3, 1)))
    with pytest.raises(UnsupportedOperator, match="pads int32"):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize(
    ("kind", "shape", "operands", "made", "why"),
    [
        ("TILE", (3,), ([2**20],), (6,), "makes"),
        ("TILE", (3,), ([0],), (6,), "repeats"),
        ("BROADCAST_TO", (3,), ([2, 4],), (2, 4), "cannot be broadcast"),
        ("BROADCAST_TO", (3,), ([2**30, 3],), (2, 3), "makes"),
        ("REVERSE_V2", (3,), ([1],), (3,), "axis 1"),
        ("GATHER_ND", (3, 4), ([[3, 0]],), (1,), "not within"),
        ("GATHER_ND", (3, 4), ([[-1]],), (1, 4), "not within"),
        ("SPACE_TO_BATCH_ND", (1, 5, 4), ([2], [[0, 0]]), (2, 2, 4), "divide"),
        ("SPACE_TO_BATCH_ND", (1, 4, 4), ([0], [[0, 0]]), (2, 2, 4), "negative"),
        ("BATCH_TO_SPACE_ND", (3, 4, 4), ([2], [[0, 0]]), (2, 8, 4), "divide"),
        ("BATCH_TO_SPACE_ND", (2, 2, 4), ([2], [[2, 2]]), (1, 1, 4), "nothing"),
        ("BATCH_TO_SPACE_ND", (2, 2, 4, 1), ([2], [[2, 2]]), (1, 1, 4, 1), "do not fit"),
    ],
)
def test_what_contradicts_itself_is_refused(
    kind: str, shape: Shape, operands: tuple[Any, ...], made: Shape, why: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    x = source(m, shape)
    m.output(m.node(kind, [x, *ints(m, *operands)], made))
    with pytest.raises(ModelError, match=why):
        load_model(m.save(tmp_path / "model.tflite"))


# shape, axis, batch dimensions, shape of the positions
COMPUTED = [
    ((9, 4), 0, 0, (1, 7)),
    ((9, 4, 2), 0, 0, (3,)),
    ((2, 9), 1, 0, (4, 2)),
    ((2, 3, 9, 2), 2, 1, (2, 5)),
    ((2, 3, 9), -1, -1, (2, 3, 4)),
]


@pytest.mark.parametrize("positions", ["int32", "int64"])
def test_gathered_by_computed_positions(positions: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    m = ModelWriter()
    inputs = []
    for (shape, axis, batches, places), dtype in itertools.product(COMPUTED, ("int8", "int16")):
        where = m.tensor(places, positions)
        m.inputs.append(where)
        inputs.append(rng.integers(0, shape[axis], places).astype(positions))
        table = m.constant(rng.integers(-100, 100, shape).astype(dtype), 0.05, 0)
        count = batches % len(places) if batches < 0 else batches
        made = (*shape[: axis % len(shape)], *places[count:], *shape[axis % len(shape) + 1 :])
        options = ("GatherOptions", {"Axis": axis, "BatchDims": batches})
        m.output(m.node("GATHER", [table, where], made, options))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [inputs], tmp_path) == len(inputs)


def test_looked_up_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    m = ModelWriter()
    inputs = []
    for shape, count in (((9, 4), 7), ((5, 2, 3), 1)):
        where = m.tensor((count,), "int32")
        m.inputs.append(where)
        inputs.append(rng.integers(0, shape[0], count).astype(np.int32))
        table = m.constant(rng.integers(-100, 100, shape).astype(np.int8), 0.05, 3)
        rows = m.tensor((count, *shape[1:]), "int8", 0.05, 3)
        m.operator("EMBEDDING_LOOKUP", [where, table], [rows])
        m.output(rows)
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [inputs], tmp_path) == 2


def test_no_position_is_out_of_range(tmp_path: Path) -> None:
    """Where the reference gives up, the nearest row is taken, and nothing else is read."""
    m = ModelWriter()
    where = m.tensor((4,), "int64")
    m.inputs.append(where)
    rows = np.arange(6, dtype=np.int8).reshape(3, 2)
    options = ("GatherOptions", {"Axis": 0, "BatchDims": 0})
    m.output(m.node("GATHER", [m.constant(rows, 0.05, 0), where], (4, 2), options))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    (operator,) = graph.operators
    kernels = Compiled()
    kernels.build([lower(graph, operator).kernel], tmp_path, "host")
    positions = np.array([-(2**40), -1, 3, 2**40])
    made = kernels.run(graph, operator, {graph.inputs[0]: positions})
    assert made.tolist() == [[0, 1], [0, 1], [4, 5], [4, 5]]
