"""DYNAMIC_UPDATE_SLICE of every type and place, byte for byte with the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from host_model import HostModel
from kernel_harness import check_model
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.user_arrays import greatest_places

#: A tensor and the part of it that is replaced: rows of a cache, a column, everything, a block.
SHAPES = (
    ((1, 2, 8, 5), (1, 2, 1, 5)),
    ((4, 3), (4, 1)),
    ((3, 4), (3, 4)),
    ((3, 5, 4, 2), (2, 5, 2, 1)),
    ((7,), (3,)),
)


def updated(m: ModelWriter, x: int, part: int, starts: int) -> int:
    options = ("DynamicUpdateSliceOptions", {})
    return m.node("DYNAMIC_UPDATE_SLICE", [x, part, starts], m.tensors[x].shape, options)


@pytest.mark.tools
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32"])
def test_every_type_and_place(dtype: str, tmp_path: Path) -> None:
    m, rng, places = ModelWriter(), np.random.default_rng(3), set[int]()
    scale = 0.1 if dtype in ("int8", "int16") else None
    for number, (shape, size) in enumerate(SHAPES):
        x, part = m.tensor(shape, dtype, scale), m.tensor(size, dtype, scale)
        starts = m.tensor((len(shape),), ("int32", "int64")[number % 2])
        m.inputs += [x, part, starts]
        places.add(starts)
        constant = m.constant(np.minimum(2, np.array(shape) - np.array(size)).astype(np.int32))
        m.output(updated(m, x, part, starts), updated(m, x, part, constant))
    samples = [
        [
            rng.integers(-reach if number in places else 0, reach, spec.shape).astype(spec.dtype)
            for number, spec in ((number, m.tensors[number]) for number in m.inputs)
        ]
        for reach in (2, 9, 120, 2**31 - 1)
    ]
    assert check_model(m.save(tmp_path / "model.tflite"), samples, tmp_path) == 2 * len(SHAPES)


def test_what_differs_is_refused(tmp_path: Path) -> None:
    m = ModelWriter()
    x, part = m.input((4, 3), 0.1, 3), m.input((1, 3), 0.2, 3)
    m.output(updated(m, x, part, m.constant(np.zeros(2, np.int32))))
    with pytest.raises(UnsupportedOperator, match=r"differs from .* in type or quantization"):
        load_model(m.save(tmp_path / "scales.tflite"))
    m = ModelWriter()
    x, part = m.input((4, 3), 0.1, 3), m.input((5, 3), 0.1, 3)
    m.output(updated(m, x, part, m.constant(np.zeros(2, np.int32))))
    with pytest.raises(ModelError, match=r"a part of shape \(5, 3\) .* does not fit into \(4, 3\)"):
        load_model(m.save(tmp_path / "shapes.tflite"))


def cache_step(folder: Path) -> Path:
    """A row of a table, at a position in a cache that the model keeps."""
    m = ModelWriter()
    token, position = m.tensor((1,), "int64"), m.tensor((1,), "int32")
    m.inputs += [token, position]
    table = m.constant(np.arange(15, dtype=np.int8).reshape(5, 3), 0.1)
    gathered = ("GatherOptions", {"Axis": 0, "BatchDims": 0})
    row = m.node("GATHER", [table, token], (1, 3), gathered)
    handle = m.variable("rows", np.zeros((4, 3), np.int8), 0.1)
    joined = ("ConcatenationOptions", {"Axis": 0, "FusedActivationFunction": 0})
    starts = m.node(
        "CONCATENATION", [position, m.constant(np.zeros(1, np.int32))], (2,), joined, dtype="int32"
    )
    rows = updated(m, m.read(handle, (4, 3), 0.1), row, starts)
    m.assign(handle, rows)
    m.output(m.node("ABS", [rows], (4, 3), scale=0.1))
    return m.save(folder / "cache.tflite")


@pytest.mark.tools
def test_places_outside_are_told_before_a_run(tmp_path: Path) -> None:
    path = cache_step(tmp_path)
    assert utvm_deploy.verify(path, "host", samples=6).ok
    compiled = utvm_deploy.compile(path, "host")
    assert [one.most for one in compiled.inputs] == [4, 3]
    assert {layer.kind for layer in compiled.layers}.isdisjoint(
        {"READ_VARIABLE", "ASSIGN_VARIABLE"}
    )

    def given(token: int, position: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array([token], np.int64), np.array([position], np.int32)

    with utvm_deploy.connect("host") as device:
        model = device.load(compiled)
        before = model(*given(4, 3))
        for token, position, name in ((5, 0, "says 5, and there are 0 to 4"), (0, 4, "0 to 3")):
            with pytest.raises(ModelError, match=name):
                model(*given(token, position))
        again = model(*given(4, 0))
        assert (again[3] == before[3]).all()  # nothing was lost
    own = HostModel(compiled, tmp_path)
    asked = [own.outside(given(*places)) for places in ((4, 3), (5, 0), (0, 4), (-1, -1))]
    assert asked == [-1, 0, 1, 0]


@pytest.mark.parametrize(
    ("added", "places", "most"),
    [
        ([0, 1], 1, 3),
        ([1, 0], 1, 3),
        ([0, 1], 2, 4),  # the first place may be the last row
        ([1, 2], 1, None),
        ([-2, 0], 1, None),
        (None, 1, None),
    ],
)
def test_only_sums_that_begin_at_the_place_limit_it(
    added: list[int] | None, places: int, most: int | None, tmp_path: Path
) -> None:
    m = ModelWriter()
    position, other = m.tensor((places,), "int32"), m.tensor((2,), "int32")
    m.inputs += [position, other]
    table = m.constant(np.arange(15, dtype=np.int8).reshape(5, 3), 0.1)
    term = other if added is None else m.constant(np.array(added, np.int32))
    rows = m.node("ADD", [position, term], (2,), ("AddOptions", {}), dtype="int32")
    gathered = ("GatherOptions", {"Axis": 0, "BatchDims": 0})
    m.output(
        m.node("GATHER", [table, rows], (2, 3), gathered),
        m.node("NEG", [other], (2,), dtype="int32"),
    )
    graph = load_model(m.save(tmp_path / "model.tflite"))
    assert greatest_places(graph) == ({} if most is None else {graph.inputs[0]: most})
