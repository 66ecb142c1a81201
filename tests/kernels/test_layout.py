"""Operators that only move elements, against the reference; numpy says what shapes they make."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Rearrange
from utvm_deploy.graph.constant_folding import rearranged
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.portable.layout import loops_of

Shape = tuple[int, ...]


def constants(m: ModelWriter, *values: Any) -> list[int]:
    return [m.constant(np.array(value, np.int32)) for value in values]


def source(m: ModelWriter, shape: Shape) -> int:
    return m.input(shape, 0.05, 3)


@dataclass(frozen=True)
class Case:
    """An operator of one input, what it has beside it, and the shape that it makes."""

    kind: str
    shape: Shape
    parameters: Sequence[Any]
    result: Shape
    options: tuple[str, dict[str, Any]] | None = None
    position: int = 0  # of the input among the operator's inputs

    def write(self, m: ModelWriter) -> None:
        x = source(m, self.shape)
        inputs = constants(m, *self.parameters)
        inputs.insert(self.position, x)
        if self.position:
            out = m.tensor(self.result, "int8", 0.05, 3)
            m.operator(self.kind, inputs, [out], self.options)
            m.output(out)
        else:
            m.output(m.node(self.kind, inputs, self.result, self.options))


def transposed(shape: Shape, *order: int) -> Case:
    result = np.zeros(shape).transpose(order).shape
    return Case("TRANSPOSE", shape, [order], result, ("TransposeOptions", {}))


TRANSPOSES = [
    transposed((5,), 0),
    transposed((4, 7), 1, 0),
    transposed((4, 7), 0, 1),
    transposed((1, 7), 1, 0),
    transposed((2, 3, 4), 2, 0, 1),
    transposed((2, 3, 4), 0, 2, 1),
    transposed((2, 5, 1, 4), 0, 2, 1, 3),
    transposed((2, 3, 4, 5), 0, 3, 1, 2),
    transposed((2, 3, 4, 5), 3, 1, 0, 2),
    transposed((1, 6, 4, 8), 0, 2, 1, 3),
    transposed((2, 3, 2, 3, 2), 4, 2, 0, 1, 3),
]


def sliced(shape: Shape, begin: Shape, size: Shape) -> Case:
    ends = [d if s == -1 else b + s for b, s, d in zip(begin, size, shape, strict=True)]
    taken = tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))
    return Case("SLICE", shape, [begin, size], np.zeros(shape)[taken].shape, ("SliceOptions", {}))


SLICES = [
    sliced((9,), (2,), (4,)),
    sliced((9,), (2,), (-1,)),
    sliced((4, 6), (0, 1), (4, 3)),
    sliced((4, 6), (1, 0), (2, 6)),
    sliced((1, 5, 6, 3), (0, 1, 2, 0), (1, 3, -1, 2)),
    sliced((2, 3, 4, 5, 2), (1, 0, 1, 2, 0), (1, 2, 2, 2, 1)),
]


def strided(shape: Shape, begin: Shape, end: Shape, strides: Shape, **masks: int) -> Case:
    """Masks are bits, as numpy's indices say them."""
    index: list[Any] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        if masks.get("Ellipsis", 0) >> i & 1:
            index.append(Ellipsis)
        elif masks.get("NewAxis", 0) >> i & 1:
            index.append(None)
        elif masks.get("ShrinkAxis", 0) >> i & 1:
            index.append(b)
        else:
            first = None if masks.get("Begin", 0) >> i & 1 else b
            index.append(slice(first, None if masks.get("End", 0) >> i & 1 else e, s))
    options = {f"{name}Mask": masks.get(name, 0) for name in MASKS}
    result = np.zeros(shape)[tuple(index)].shape
    parameters = [begin, end, strides]
    return Case("STRIDED_SLICE", shape, parameters, result, ("StridedSliceOptions", options))


MASKS = ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
STRIDED_SLICES = [
    strided((9,), (1,), (8,), (2,)),
    strided((9,), (-1,), (-10,), (-1,)),
    strided((9,), (-2,), (0,), (-3,)),
    strided((9,), (0,), (100,), (4,)),
    strided((4, 6), (0, 0), (0, 0), (1, 2), Begin=3, End=3),
    strided((4, 6), (2, 0), (3, 6), (1, 1), ShrinkAxis=1),
    strided((4, 6), (-1, 1), (0, -1), (1, 1), ShrinkAxis=1),
    strided((2, 5, 6, 3), (0, 1, 0, 1), (2, 5, 6, 2), (1, 2, 3, 1)),
    strided((2, 5, 6, 3), (0, 0, 0, 1), (0, 0, 0, 2), (1, 1, 1, 1), Begin=7, End=7, ShrinkAxis=8),
    strided((2, 5, 6, 3), (0, 1), (0, 3), (1, 1), Ellipsis=1),
    strided((2, 5, 6, 3), (0, 0, 1), (1, 0, 3), (1, 1, 1), Ellipsis=2),
    strided((5, 6), (1, 0, 2), (4, 0, 6), (1, 1, 2), NewAxis=2),
    strided((5, 6), (0, 3), (0, 0), (1, -1), Begin=1, End=3),
    strided((2, 5, 6), (1,), (2,), (1,)),
]


def gathered(shape: Shape, indices: Any, axis: int) -> Case:
    result = np.take(np.zeros(shape), np.array(indices), axis=axis).shape
    options = ("GatherOptions", {"Axis": axis, "BatchDims": 0})
    return Case("GATHER", shape, [indices], result, options)


GATHERS = [
    gathered((9,), [3, 1, 1, 8], 0),
    gathered((9, 4), [5, 0, 2], 0),
    gathered((9, 4), [2, 0, 1], 1),
    gathered((4, 6), 3, 1),
    gathered((2, 7, 3), [[0, 6], [5, 2]], 1),
    gathered((2, 7, 3), [0, 2, 4, 6], 1),
    gathered((2, 3, 7, 2), [6, 1, 5], -2),
]


def mirrored(shape: Shape, paddings: Any, mode: int) -> Case:
    result = np.pad(np.zeros(shape), paddings).shape
    return Case("MIRROR_PAD", shape, [paddings], result, ("MirrorPadOptions", {"Mode": mode}))


MIRRORS = [
    mirrored((5,), [[2, 3]], 0),
    mirrored((5,), [[5, 4]], 1),
    mirrored((1, 5, 6, 3), [[0, 0], [1, 2], [3, 1], [0, 0]], 0),
    mirrored((1, 5, 6, 3), [[0, 0], [2, 1], [0, 4], [0, 2]], 1),
    mirrored((3, 4), [[0, 0], [0, 0]], 0),
]


def blocks(kind: str, shape: Shape, size: int) -> Case:
    n, h, w, c = shape
    result = (n, h // size, w // size, c * size * size)
    if kind == "DEPTH_TO_SPACE":
        result = (n, h * size, w * size, c // size // size)
    name = "SpaceToDepthOptions" if kind == "SPACE_TO_DEPTH" else "DepthToSpaceOptions"
    return Case(kind, shape, [], result, (name, {"BlockSize": size}))


BLOCKS = [
    blocks("SPACE_TO_DEPTH", (1, 4, 6, 3), 2),
    blocks("SPACE_TO_DEPTH", (2, 6, 3, 1), 3),
    blocks("SPACE_TO_DEPTH", (1, 2, 2, 2), 2),
    blocks("DEPTH_TO_SPACE", (1, 3, 2, 8), 2),
    blocks("DEPTH_TO_SPACE", (2, 2, 3, 9), 3),
    blocks("DEPTH_TO_SPACE", (1, 1, 1, 4), 2),
]


def resized(
    image: tuple[int, int], size: tuple[int, int], corners: bool, centers: bool, channels: int = 3
) -> Case:
    options = {"AlignCorners": corners, "HalfPixelCenters": centers}
    return Case(
        "RESIZE_NEAREST_NEIGHBOR",
        (1, *image, channels),
        [size],
        (1, *size, channels),
        ("ResizeNearestNeighborOptions", options),
    )


SIZES = [((4, 5), (8, 10)), ((7, 5), (3, 9)), ((5, 3), (11, 2)), ((1, 1), (3, 4)), ((6, 8), (1, 5))]
RESIZES = [
    resized(image, size, corners, centers, channels)
    for (image, size), channels in itertools.product(SIZES, (3, 5, 10))
    for corners, centers in ((False, False), (True, False), (False, True))
]
VIEWS = [
    Case("SQUEEZE", (1, 4, 1, 3), [], (4, 3), ("SqueezeOptions", {})),
    Case("EXPAND_DIMS", (4, 3), [1], (4, 1, 3), ("ExpandDimsOptions", {})),
    Case("EXPAND_DIMS", (4, 3), [-1], (4, 3, 1), ("ExpandDimsOptions", {})),
]

GROUPS = {
    "transpose": TRANSPOSES,
    "slice": SLICES,
    "strided_slice": STRIDED_SLICES,
    "gather": GATHERS,
    "mirror_pad": MIRRORS,
    "blocks": BLOCKS,
    "resize": RESIZES,
    "views": VIEWS,
}


@pytest.mark.tools
@pytest.mark.parametrize("name", GROUPS)
def test_movers_of_one_tensor(name: str, tmp_path: Path) -> None:
    m = ModelWriter()
    for case in GROUPS[name]:
        case.write(m)
    assert check(m, tmp_path, samples=2) == len(GROUPS[name])


def _split(m: ModelWriter, shape: Shape, axis: int, count: int) -> None:
    (axis_number,) = constants(m, axis)
    sizes = list(shape)
    sizes[axis] //= count
    outputs = [m.tensor(sizes, "int8", 0.05, 3) for _ in range(count)]
    inputs = [axis_number, source(m, shape)]
    m.operator("SPLIT", inputs, outputs, ("SplitOptions", {"NumSplits": count}))
    m.output(*outputs)


def _split_v(m: ModelWriter, shape: Shape, axis: int, sizes: Sequence[int]) -> None:
    x = source(m, shape)
    inputs = [x, *constants(m, sizes, axis)]
    left = shape[axis] - sum(s for s in sizes if s != -1)
    outputs = []
    for size in sizes:
        part = list(shape)
        part[axis] = left if size == -1 else size
        outputs.append(m.tensor(part, "int8", 0.05, 3))
    m.operator("SPLIT_V", inputs, outputs, ("SplitVOptions", {"NumSplits": len(sizes)}))
    m.output(*outputs)


def _unpack(m: ModelWriter, shape: Shape, axis: int) -> None:
    rest = [d for i, d in enumerate(shape) if i != axis % len(shape)]
    outputs = [m.tensor(rest, "int8", 0.05, 3) for _ in range(shape[axis])]
    options = ("UnpackOptions", {"Num": len(outputs), "Axis": axis})
    m.operator("UNPACK", [source(m, shape)], outputs, options)
    m.output(*outputs)


@pytest.mark.tools
def test_splitting(tmp_path: Path) -> None:
    m = ModelWriter()
    _split(m, (1, 4, 6), 2, 3)
    _split(m, (4, 6), 0, 2)
    _split(m, (2, 3, 4, 5), -2, 4)
    _split_v(m, (3, 7), 1, [2, -1, 1])
    _split_v(m, (6, 2, 2), 0, [1, 5])
    _split_v(m, (6,), 0, [4, 2])
    _unpack(m, (2, 3, 4), 1)
    _unpack(m, (2, 3, 4), -1)
    _unpack(m, (3, 5), 0)
    assert check(m, tmp_path, samples=2) == 3 + 2 + 4 + 3 + 2 + 2 + 3 + 4 + 3


@pytest.mark.tools
def test_joining(tmp_path: Path) -> None:
    m = ModelWriter()
    rng = np.random.default_rng(5)

    def concatenation(axis: int, *shapes: Shape, constant: int | None = None) -> None:
        xs = [
            m.constant(rng.integers(-128, 128, shape).astype(np.int8), 0.05, 3)
            if i == constant
            else source(m, shape)
            for i, shape in enumerate(shapes)
        ]
        shape = np.concatenate([np.zeros(s) for s in shapes], axis).shape
        options = ("ConcatenationOptions", {"Axis": axis})
        m.output(m.node("CONCATENATION", xs, shape, options))

    def pack(axis: int, shape: Shape, count: int) -> None:
        xs = [source(m, shape) for _ in range(count)]
        out = np.stack([np.zeros(shape)] * count, axis).shape
        m.output(m.node("PACK", xs, out, ("PackOptions", {"Axis": axis, "ValuesCount": count})))

    concatenation(3, (1, 3, 4, 2), (1, 3, 4, 5), (1, 3, 4, 1))
    concatenation(-1, (2, 3), (2, 1))
    concatenation(0, (2, 3), (4, 3))
    concatenation(1, (2, 3, 2), (2, 1, 2), constant=0)
    concatenation(1, (2, 3, 2, 2, 2), (2, 1, 2, 2, 2), constant=1)
    concatenation(0, (7,))
    pack(0, (2, 3), 3)
    pack(-1, (2, 3), 2)
    pack(1, (4,), 2)
    twice = source(m, (2, 2))
    m.output(m.node("CONCATENATION", [twice, twice], (4, 2), ("ConcatenationOptions", {"Axis": 0})))
    assert check(m, tmp_path, samples=2) == 10


@pytest.mark.tools
def test_padv2(tmp_path: Path) -> None:
    m = ModelWriter()
    for value, paddings in ((-128, [[0, 0], [1, 2], [0, 1], [0, 0]]), (9, [[1, 0], [0, 0]] * 2)):
        x = source(m, (1, 3, 4, 2))
        constant = m.constant(np.array([value], np.int8), 0.05, 3)
        shape = np.pad(np.zeros((1, 3, 4, 2)), paddings).shape
        m.output(m.node("PADV2", [x, *constants(m, paddings), constant], shape))
    assert check(m, tmp_path) == 2


@pytest.mark.tools
@pytest.mark.parametrize("dtype", ["int16", "uint8"])
def test_other_types_are_moved_too(dtype: str, tmp_path: Path) -> None:
    m = ModelWriter()
    numbers = []
    for shape in ((2, 3, 4), (2, 1, 4)):
        numbers.append(m.tensor(shape, dtype, 0.05, 0))
    m.inputs += numbers
    joined = m.node("CONCATENATION", numbers, (2, 4, 4), ("ConcatenationOptions", {"Axis": 1}))
    order = constants(m, (2, 0, 1))
    m.output(m.node("TRANSPOSE", [joined, *order], (4, 2, 4), ("TransposeOptions", {})))
    assert check(m, tmp_path) == 2


def test_loops_are_few() -> None:
    """Blocks, steps and repeats need no table; what is whole is one loop."""

    def steps(view: Shape, order: Shape, **indices: Sequence[int]) -> list[tuple[int, int]]:
        taken = tuple(tuple(indices.get(f"d{i}", range(d))) for i, d in enumerate(view))
        start, loops = loops_of(Rearrange(view, taken, order, ()))
        assert start == 0
        return [(n, int(offsets[1])) for n, offsets in loops]

    assert steps((2, 3, 4), (0, 1, 2)) == [(24, 1)]
    assert steps((2, 3, 4), (2, 0, 1)) == [(4, 1), (6, 4)]
    assert steps((4, 3), (0, 1), d0=(0, 0, 1, 1, 2, 2, 3, 3)) == [(4, 3), (2, 0), (3, 1)]
    assert steps((9, 2), (0, 1), d0=(0, 3, 6)) == [(3, 6), (2, 1)]


def test_loops_take_what_numpy_takes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        view = tuple(int(d) for d in rng.integers(1, 6, rng.integers(1, 5)))
        order = tuple(int(i) for i in rng.permutation(len(view)))
        indices = tuple(
            tuple(range(d))
            if rng.random() < 0.4
            else tuple(int(i) for i in rng.integers(0, d, rng.integers(1, 7)))
            for d in view
        )
        shape = (int(np.prod([len(i) for i in indices])),)
        arrangement = Rearrange(view, indices, order, shape)
        start, loops = loops_of(arrangement)
        places = np.array([start])
        for _, offsets in loops:
            places = (places[:, None] + offsets).reshape(-1)
        everything = np.arange(np.prod(view))
        np.testing.assert_array_equal(everything[places], rearranged(everything, arrangement))


def test_what_moves_nothing_becomes_a_reshape(tmp_path: Path) -> None:
    m = ModelWriter()
    for case in (*VIEWS, transposed((1, 7), 1, 0), transposed((4, 7), 0, 1)):
        case.write(m)
    graph = simplify(load_model(m.save(tmp_path / "model.tflite")))
    assert {operator.kind for operator in graph.operators} == {"RESHAPE"}
