"""What LiteRT refuses when it prepares a file, operator by operator, is refused at import."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_serializer import OperatorSpec
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.prepared import CHECKS, GREATEST_VERSION, OPERANDS
from utvm_deploy.frontend.tflite import load_bytes


def _ints(m: ModelWriter, values: Any) -> int:
    return m.constant(np.array(values, np.int32))


def _one(
    kind: str,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    options: dict[str, Any] | None = None,
    table: str | None = None,
    *,
    dtype: str | None = None,
    scale: float | None = None,
    zero_point: int | None = None,
    numbers: tuple[Any, ...] = (),
) -> Callable[[], ModelWriter]:
    """A model of one operator of int8, whose further inputs are constants of int32."""

    def build() -> ModelWriter:
        m = ModelWriter()
        x = m.input(shape, 0.05, 3)
        operands = [x, *(_ints(m, one) for one in numbers)]
        told = None if options is None else (table or f"{kind.title()}Options", options)
        y = m.node(kind, operands, out, told, scale=scale, zero_point=zero_point, dtype=dtype)
        m.output(y)
        return m

    return build


def _conv() -> ModelWriter:
    m = ModelWriter()
    x = m.input((1, 4, 4, 2), 0.05, 0)
    m.output(m.conv2d(x, np.ones((3, 1, 1, 2), np.int8), np.zeros(3, np.int32)))
    return m


def _dense() -> ModelWriter:
    m = ModelWriter()
    x = m.input((1, 8), 0.05, 0)
    m.output(m.fully_connected(x, np.ones((3, 8), np.int8), np.zeros(3, np.int32)))
    bias = m.operators[0].inputs[2]
    m.tensors[bias] = replace(m.tensors[bias], scales=(0.0005,), zero_points=(0,))
    return m


def _transposed() -> ModelWriter:
    m = ModelWriter()
    x = m.tensor((1, 2, 2, 2), "int16", 0.05, 0)
    m.inputs.append(x)
    weights = m.constant(np.ones((3, 1, 1, 2), np.int8), 0.01)
    y = m.tensor((1, 2, 2, 3), "int16", 0.1, 0)
    options = {"Padding": 1, "StrideW": 1, "StrideH": 1}
    operands = [_ints(m, [1, 2, 2, 3]), weights, x, m.constant(np.zeros(3, np.int64), 0.0005)]
    m.operator("TRANSPOSE_CONV", operands, [y], ("TransposeConvOptions", options))
    m.output(y)
    return m


def _pair(kind: str, out: tuple[int, ...], table: str, options: Any) -> Callable[[], ModelWriter]:
    def build() -> ModelWriter:
        m = ModelWriter()
        one, other = m.input((1, 4), 0.05, 3), m.input((1, 4), 0.05, 3)
        m.output(m.node(kind, [one, other], out, (table, options)))
        return m

    return build


def _prelu() -> ModelWriter:
    m = ModelWriter()
    x = m.input((1, 4, 4), 0.05, 3)
    m.output(m.node("PRELU", [x, m.constant(np.ones(4, np.int8), 0.1)], (1, 4, 4)))
    return m


def _padv2() -> ModelWriter:
    m = ModelWriter()
    x = m.input((1, 4), 0.05, 3)
    value = m.constant(np.array(1, np.int8), 0.05, 3)
    m.output(m.node("PADV2", [x, _ints(m, [[0, 0], [1, 1]]), value], (1, 6), ("PadV2Options", {})))
    return m


def _top() -> ModelWriter:
    m = ModelWriter()
    x = m.input((1, 4), 0.05, 3)
    values, places = m.tensor((1, 2), "int8", 0.05, 3), m.tensor((1, 2), "int32")
    m.operator("TOPK_V2", [x, _ints(m, 2)], [values, places], ("TopKV2Options", {}))
    m.output(values, places)
    return m


def _unpack() -> ModelWriter:
    m = ModelWriter()
    x = m.input((2, 4), 0.05, 3)
    parts = [m.tensor((4,), "int8", 0.05, 3) for _ in range(2)]
    m.operator("UNPACK", [x], parts, ("UnpackOptions", {"Num": 2, "Axis": 0}))
    m.output(*parts)
    return m


def _shape() -> ModelWriter:
    m = ModelWriter()
    x = m.input((2, 3), 0.05, 3)
    found = m.tensor((2,), "int32")
    m.operator("SHAPE", [x], [found], ("ShapeOptions", {"OutType": 2}))
    m.output(m.node("RESHAPE", [x, found], (2, 3)))
    return m


_SLICED = {"BeginMask": 0, "EndMask": 0, "EllipsisMask": 0, "NewAxisMask": 0, "ShrinkAxisMask": 0}
_BLOCKS: dict[str, Any] = {"numbers": ([2, 2], [[0, 0], [0, 0]])}
_RESIZED = {"AlignCorners": False, "HalfPixelCenters": False}

#: Kind -> a model of it that LiteRT takes.
GOOD: dict[str, Callable[[], ModelWriter]] = {
    "ARG_MAX": _one(
        "ARG_MAX", (2, 4), (2,), {"OutputType": 2}, "ArgMaxOptions", dtype="int32", numbers=(1,)
    ),
    "ARG_MIN": _one(
        "ARG_MIN", (2, 4), (2,), {"OutputType": 2}, "ArgMinOptions", dtype="int32", numbers=(1,)
    ),
    "BATCH_TO_SPACE_ND": _one(
        "BATCH_TO_SPACE_ND", (4, 2, 2, 1), (1, 4, 4, 1), {}, "BatchToSpaceNDOptions", **_BLOCKS
    ),
    "CONCATENATION": _pair("CONCATENATION", (1, 8), "ConcatenationOptions", {"Axis": 1}),
    "CONV_2D": _conv,
    "EXPAND_DIMS": _one("EXPAND_DIMS", (2, 4), (2, 1, 4), {}, "ExpandDimsOptions", numbers=(1,)),
    "FULLY_CONNECTED": _dense,
    "L2_NORMALIZATION": _one(
        "L2_NORMALIZATION", (2, 4), (2, 4), {}, "L2NormOptions", scale=1 / 128, zero_point=0
    ),
    "MIRROR_PAD": _one(
        "MIRROR_PAD", (2, 4), (2, 6), {"Mode": 0}, "MirrorPadOptions", numbers=([[0, 0], [1, 1]],)
    ),
    "PACK": _pair("PACK", (2, 1, 4), "PackOptions", {"ValuesCount": 2}),
    "PADV2": _padv2,
    "PRELU": _prelu,
    "RESHAPE": _one("RESHAPE", (2, 4), (4, 2), {"NewShape": [4, 2]}, numbers=([4, 2],)),
    "RESIZE_BILINEAR": _one(
        *("RESIZE_BILINEAR", (1, 2, 2, 1), (1, 4, 4, 1), _RESIZED, "ResizeBilinearOptions"),
        numbers=([4, 4],),
    ),
    "RESIZE_NEAREST_NEIGHBOR": _one(
        *("RESIZE_NEAREST_NEIGHBOR", (1, 2, 2, 1), (1, 4, 4, 1), _RESIZED),
        "ResizeNearestNeighborOptions",
        numbers=([4, 4],),
    ),
    "REVERSE_V2": _one("REVERSE_V2", (2, 4), (2, 4), {}, "ReverseV2Options", numbers=([1],)),
    "SHAPE": _shape,
    "SLICE": _one("SLICE", (2, 4), (2, 2), {}, numbers=([0, 1], [2, 2])),
    "SOFTMAX": _one("SOFTMAX", (2, 4), (2, 4), {"Beta": 1.0}, scale=1 / 256, zero_point=-128),
    "SPACE_TO_BATCH_ND": _one(
        "SPACE_TO_BATCH_ND", (1, 4, 4, 1), (4, 2, 2, 1), {}, "SpaceToBatchNDOptions", **_BLOCKS
    ),
    "SQUEEZE": _one("SQUEEZE", (2, 1, 4), (2, 4), {"SqueezeDims": [1]}),
    "STRIDED_SLICE": _one(
        *("STRIDED_SLICE", (2, 4), (2, 2), _SLICED, "StridedSliceOptions"),
        numbers=([0, 0], [2, 2], [1, 1]),
    ),
    "TOPK_V2": _top,
    "TRANSPOSE_CONV": _transposed,
    "UNPACK": _unpack,
    **{
        kind: _one(kind, (2, 4), (2,), {"KeepDims": False}, "ReducerOptions", numbers=([1],))
        for kind in ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM")
    },
}


@dataclass(frozen=True)
class _Breaks:
    """One change that LiteRT refuses, and what the import says."""

    kind: str
    change: Callable[[Any, Any, Callable[[int], Any]], None]
    said: str


def _option(name: str, value: Any) -> Callable[..., None]:
    return lambda m, op, tensor: setattr(op.builtinOptions, name, value)


def _shaped(position: int, *shape: int) -> Callable[..., None]:
    def change(m: Any, op: Any, tensor: Any) -> None:
        tensor(position).shape = np.array(shape, np.int32)

    return change


def _long(position: int) -> Callable[..., None]:
    def change(m: Any, op: Any, tensor: Any) -> None:
        data = schema.constant(m, tensor(position))
        tensor(position).type = schema.INT64
        schema.set_constant(m, tensor(position), data.astype(np.int64))

    return change


def _scaled(position: int) -> Callable[..., None]:
    def change(m: Any, op: Any, tensor: Any) -> None:
        tensor(position).quantization = schema.quantization([0.7], [0])

    return change


def _kept(m: Any, op: Any, tensor: Any) -> None:
    tensor(0).shape = np.array([2, 4], np.int32)
    op.builtinOptions.keepNumDims = True


def _repeated(m: Any, op: Any, tensor: Any) -> None:
    tensor(1).shape = np.array([2], np.int32)
    schema.set_constant(m, tensor(1), np.array([1, 1], np.int32))


def _wide_alpha(m: Any, op: Any, tensor: Any) -> None:
    tensor(0).shape = np.array([1, 1, 4], np.int32)


def _narrow(m: Any, op: Any, tensor: Any) -> None:
    tensor(0).quantization = schema.quantization([1e-8], [0])


BROKEN = [
    _Breaks("ARG_MAX", _option("outputType", 4), "OutputType says int64, but it makes int32"),
    _Breaks("ARG_MIN", _option("outputType", -1), "OutputType is -1, which names no element type"),
    _Breaks("BATCH_TO_SPACE_ND", _long(1), "takes int32 there"),
    _Breaks("CONCATENATION", _option("fusedActivationFunction", 2), "a fused activation"),
    _Breaks("EXPAND_DIMS", _scaled(-1), "quantized differently"),
    _Breaks("FULLY_CONNECTED", _scaled(2), "its bias has the scale 0.7, but its sums have 0.0005"),
    _Breaks("FULLY_CONNECTED", _kept, "whose rows do not fit its weights"),
    _Breaks("L2_NORMALIZATION", _option("fusedActivationFunction", 2), "a fused activation"),
    _Breaks("BATCH_TO_SPACE_ND", _shaped(1, 2, 1), "not one dimension"),
    _Breaks("MIRROR_PAD", _scaled(-1), "quantized differently"),
    _Breaks("PACK", _option("valuesCount", 3), "ValuesCount is 3, but it has 2 inputs"),
    _Breaks("PACK", _scaled(0), "quantized differently"),
    _Breaks("PADV2", _scaled(2), "quantized differently"),
    _Breaks("PRELU", _wide_alpha, "they must be equal"),
    _Breaks("RESIZE_BILINEAR", _long(1), "takes int32 there"),
    _Breaks("RESIZE_NEAREST_NEIGHBOR", _shaped(1, 1, 2), "not one dimension"),
    _Breaks("REVERSE_V2", _shaped(1, 1, 1), "not one dimension"),
    _Breaks("REVERSE_V2", _repeated, "repeat"),
    _Breaks("SHAPE", _option("outType", 4), "OutType says int64, but it makes int32"),
    _Breaks("SLICE", _shaped(1, 1, 2), "not one dimension"),
    _Breaks("SOFTMAX", _narrow, "must be above 2\\*\\*-26"),
    _Breaks("SPACE_TO_BATCH_ND", _long(2), "takes int32 there"),
    _Breaks("SQUEEZE", _option("squeezeDims", [0]), "removes dimension 0"),
    _Breaks("STRIDED_SLICE", _shaped(3, 1, 2), "not one dimension"),
    _Breaks("TOPK_V2", _long(1), "takes int32 there"),
    _Breaks("TRANSPOSE_CONV", _option("quantizedBiasType", 7), "a bias is int32 or int64"),
    _Breaks("UNPACK", _scaled(-1), "quantized differently"),
    *(
        _Breaks(kind, _option("keepDims", True), "KeepDims is True")
        for kind in ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM")
    ),
]


@pytest.mark.parametrize("kind", GOOD)
def test_what_is_right_is_taken(kind: str) -> None:
    assert load_bytes(GOOD[kind]().to_bytes(), "right").operators


@pytest.mark.parametrize("broken", BROKEN, ids=[f"{b.kind} {b.said[:20]}" for b in BROKEN])
def test_what_prepare_refuses(broken: _Breaks) -> None:
    model = schema.read_model(GOOD[broken.kind]().to_bytes())
    graph = model.subgraphs[0]
    op = graph.operators[0]

    def tensor(position: int) -> Any:
        """An input of the operator; its first output is before them."""
        return graph.tensors[op.outputs[0] if position < 0 else op.inputs[position]]

    broken.change(model, op, tensor)
    with pytest.raises(ModelError, match=broken.said):
        load_bytes(schema.model_bytes(model), "broken")


def test_each_check_has_a_test() -> None:
    booleans = {"REDUCE_ALL", "REDUCE_ANY", "REDUCE_PROD"}  # checked as the other reductions
    assert set(CHECKS) == {one.kind for one in BROKEN} | booleans | {"RESHAPE"}


@pytest.mark.parametrize("kind", ["RESHAPE", "CONV_2D", "UNPACK"])
def test_versions(kind: str) -> None:
    model = schema.read_model(GOOD[kind]().to_bytes())
    for version in (0, GREATEST_VERSION[kind] + 1):
        model.operatorCodes[0].version = version
        with pytest.raises(ModelError, match=f"the file has version {version} of {kind}"):
            load_bytes(schema.model_bytes(model), "broken")


@pytest.mark.parametrize("kind", [kind for kind in GOOD if kind not in ("PACK", "CONCATENATION")])
def test_counts(kind: str) -> None:
    for inputs, outputs in ((2, 0), (0, 1)):
        m = GOOD[kind]()
        found: OperatorSpec = m.operators[0]
        if inputs:
            found.inputs += [found.inputs[-1]] * inputs
        if outputs:
            found.outputs.append(m.tensor((1,), "int8", 0.05, 3))
        with pytest.raises(ModelError, match=r"it has \d+ (in|out)puts, and LiteRT"):
            load_bytes(m.to_bytes(), "broken")
    assert kind in OPERANDS


def test_a_shape_that_is_no_row() -> None:
    """Without one, the option has the shape."""
    m = GOOD["RESHAPE"]()
    model = schema.read_model(m.to_bytes())
    model.subgraphs[0].tensors[1].shape = np.array([2, 1], np.int32)
    assert load_bytes(schema.model_bytes(model), "right").operators
    model.subgraphs[0].operators[0].builtinOptions.newShape = [2, 4]
    with pytest.raises(ModelError, match=r"NewShape is \(2, 4\), but it makes \(4, 2\)"):
        load_bytes(schema.model_bytes(model), "broken")


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (1, {"isVariable": True}, "is a variable and has data"),
        (0, {"isVariable": True}, "model input 'tensor_0' is a variable"),
    ],
)
def test_variables(number: int, change: dict[str, Any], said: str) -> None:
    model = schema.read_model(_conv().to_bytes())
    for name, value in change.items():
        setattr(model.subgraphs[0].tensors[number], name, value)
    with pytest.raises(ModelError, match=said):
        load_bytes(schema.model_bytes(model), "broken")


def test_a_dimension_beyond_the_rank() -> None:
    model = schema.read_model(_conv().to_bytes())
    model.subgraphs[0].tensors[0].quantization.quantizedDimension = 4
    with pytest.raises(ModelError, match="has 4 dimensions and is quantized along dimension 4"):
        load_bytes(schema.model_bytes(model), "broken")


def test_a_convolution_without_a_bias(caplog: pytest.LogCaptureFixture) -> None:
    """Other runtimes take it, so it is only warned of."""
    m = _conv()
    m.operators[0].inputs[2] = -1
    assert load_bytes(m.to_bytes(), "odd").operators
    assert "LiteRT refuses a CONV_2D of integers without a bias" in caplog.text


def test_a_zero_point_of_a_bias() -> None:
    model = schema.read_model(_dense().to_bytes())
    model.subgraphs[0].tensors[2].quantization.zeroPoint = np.array([1])
    with pytest.raises(ModelError, match="has a zero point other than 0"):
        load_bytes(schema.model_bytes(model), "broken")


@pytest.mark.tools
def test_mutants_that_are_taken() -> None:
    """A short run; LiteRT takes all that the import takes."""
    script = Path(__file__).parents[1] / "soak" / "refused_mutants.py"
    done = subprocess.run(
        [sys.executable, str(script), "--count", "250"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    taken = re.search(r"(\d+) taken, LiteRT takes", done.stdout)
    assert taken is not None and int(taken[1]) > 60
