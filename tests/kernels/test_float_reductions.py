"""Reductions, normalizations and moves of float32 against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from kernel_harness import check_model

from utvm_deploy.graph.model import Array

RNG = np.random.default_rng(1513)
ODD = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, 3.4e38, -3.4e38], np.float32)
REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")


def plain(*shape: int) -> Array:
    return (RNG.normal(size=shape) * 4).astype(np.float32)


def odd(*shape: int) -> Array:
    array = plain(*shape).reshape(-1)
    array[::7] = RNG.choice(ODD, array[::7].shape)
    return array.reshape(shape)


def check(m: FloatWriter, directory: Path, *fills: object) -> int:
    samples = [
        [fill(*m.tensors[i].shape) for i in m.inputs]  # type: ignore[operator]
        for fill in fills or (plain, odd, odd)
    ]
    return check_model(m.save(directory / "model.tflite"), samples, directory)


@pytest.mark.tools
def test_reductions_along_any_axes(tmp_path: Path) -> None:
    m = FloatWriter()
    shape = (2, 5, 6, 3)
    x = m.input(shape)
    for axes in ([1, 2], [3], [0, 2], [0, 1, 2, 3]):
        constant = m.constant(np.array(axes, np.int32))
        for kind in REDUCTIONS:
            for keeps in (True, False):
                kept = [1 if i in axes else d for i, d in enumerate(shape)]
                left = [d for i, d in enumerate(shape) if i not in axes]
                options = ("ReducerOptions", {"KeepDims": keeps})
                m.output(m.node(kind, [x, constant], kept if keeps else left, options))
    assert check(m, tmp_path) == 4 * 5 * 2


@pytest.mark.tools
def test_extrema_over_all_axes_begin_with_the_first_element(tmp_path: Path) -> None:
    """Which counts where that is not a number, and where all elements are infinite."""
    m = FloatWriter()
    x = m.input((1, 3, 1))
    for kind in ("REDUCE_MAX", "REDUCE_MIN"):
        for axes in ((0, 1, 2), (1,)):
            shape = [1 if axis in axes else extent for axis, extent in enumerate((1, 3, 1))]
            operands = [x, m.constant(np.array(axes, np.int32))]
            m.output(m.node(kind, operands, shape, ("ReducerOptions", {"KeepDims": True})))
    nan, inf = np.nan, np.inf
    rows = [(nan, 1, 2), (1, nan, 2), (nan,) * 3, (-inf,) * 3, (inf,) * 3, (-0.0, 0, 0)]
    samples = [[np.array(row, np.float32).reshape(1, 3, 1)] for row in rows]
    assert check_model(m.save(tmp_path / "model.tflite"), samples, tmp_path) == 4


@pytest.mark.tools
def test_positions_of_extrema(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((4, 7, 3))
    for kind, name in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        for axis, left in ((2, (4, 7)), (1, (4, 3))):
            for dtype, number in (("int32", 2), ("int64", 4)):
                out = m.tensor(left, dtype)
                inputs = [x, m.constant(np.array([axis], np.int32))]
                m.operator(kind, inputs, [out], (name, {"OutputType": number}))
                m.output(out)
    # Rows with NaN are left out: there the reference depends on the instructions of this computer.
    fills = (plain, lambda *shape: np.nan_to_num(odd(*shape), nan=2.5, posinf=np.inf))
    assert check(m, tmp_path, *fills) == 8


@pytest.mark.tools
def test_rows_are_normalized(tmp_path: Path) -> None:
    m = FloatWriter()
    shape = (2, 3, 4, 11)
    x = m.input(shape)
    m.output(m.softmax(x), m.softmax(x, beta=0.5))
    m.output(m.node("LOG_SOFTMAX", [x], shape))
    options = ("L2NormOptions", {"FusedActivationFunction": 0})
    m.output(m.node("L2_NORMALIZATION", [x], shape, options))
    fields = {"Radius": 2, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.75}
    response = ("LocalResponseNormalizationOptions", fields)
    m.output(m.node("LOCAL_RESPONSE_NORMALIZATION", [x], shape, response))
    assert check(m, tmp_path, plain, plain) == 5


@pytest.mark.tools
def test_sums_along_an_axis(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((3, 9, 4))
    for axis in (0, 1, 2):
        for exclusive in (False, True):
            for reverse in (False, True):
                options = ("CumsumOptions", {"Exclusive": exclusive, "Reverse": reverse})
                constant = m.constant(np.array(axis, np.int32))
                m.output(m.node("CUMSUM", [x, constant], (3, 9, 4), options))
    assert check(m, tmp_path, plain, plain) == 12


@pytest.mark.tools
def test_movers_keep_all_bits(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 4, 6, 2))
    int32s = lambda *values: m.constant(np.array(values, np.int32))  # noqa: E731
    m.output(m.pad(x, [(0, 0), (1, 2), (0, 1), (3, 0)]))
    paddings = m.constant(np.array([(0, 0), (1, 1), (2, 0), (0, 1)], np.int32))
    value = m.constant(np.array(-2.5, np.float32))
    m.output(m.node("PADV2", [x, paddings, value], (1, 6, 8, 3)))
    mirrored = ("MirrorPadOptions", {"Mode": 0})
    m.output(m.node("MIRROR_PAD", [x, paddings], (1, 6, 8, 3), mirrored))
    m.output(m.node("TRANSPOSE", [x, int32s(0, 3, 1, 2)], (1, 2, 4, 6)))
    m.output(m.node("SLICE", [x, int32s(0, 1, 2, 0), int32s(1, 2, 3, 2)], (1, 2, 3, 2)))
    m.output(m.node("TILE", [x, int32s(1, 2, 1, 3)], (1, 8, 6, 6)))
    m.output(m.node("REVERSE_V2", [x, int32s(2)], (1, 4, 6, 2)))
    m.output(m.node("GATHER", [x, int32s(3, 0, 0)], (1, 3, 6, 2), ("GatherOptions", {"Axis": 1})))
    joined = ("ConcatenationOptions", {"Axis": 3, "FusedActivationFunction": 0})
    m.output(m.node("CONCATENATION", [x, m.reshape(x, (1, 4, 6, 2)), x], (1, 4, 6, 6), joined))
    m.output(
        m.node(
            "DEPTH_TO_SPACE",
            [m.reshape(x, (1, 2, 3, 8))],
            (1, 4, 6, 2),
            ("DepthToSpaceOptions", {"BlockSize": 2}),
        )
    )
    edges = m.constant(np.array([(0, 2), (1, 1)], np.int32))
    m.output(m.node("SPACE_TO_BATCH_ND", [x, int32s(2, 2), edges], (4, 3, 4, 2)))
    assert check(m, tmp_path) >= 13
