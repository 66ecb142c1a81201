"""Operators that ai-edge-quantizer leaves float, or quantizes so that nothing can compute them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from float_writer import FloatWriter
from kernels.kernel_harness import check_model

import utvm_deploy
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.quantizing.facts import QuantizedModel, Recipe
from utvm_deploy.quality.quantizing.model_steps import calibrated, opened, quantize_with_recipe

pytestmark = pytest.mark.tools

SHAPE = (1, 4, 4, 4)
SAMPLES = np.random.default_rng(5).normal(size=(40, *SHAPE[1:])).astype(np.float32)


class Case(NamedTuple):
    """An operator on the output of a convolution; constants follow that as further inputs."""

    constants: tuple[Any, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = (SHAPE,)
    options: tuple[str, Mapping[str, Any]] | None = None
    order: Callable[[list[int]], list[int]] = list
    least_db: float = 30.0
    stays_float: tuple[str, ...] = ()  # the schemes that it has no integer kernel for


def floats(*values: float, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return np.array(values, np.float32).reshape(shape)


def integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


AXIS = ("ReducerOptions", {"KeepDims": False})
WIDE = ("int16x8",)
CASES: Mapping[str, Case] = {
    "ABS": Case(options=("AbsOptions", {})),
    "BATCH_MATMUL": Case((SAMPLES[:1],), options=("BatchMatMulOptions", {})),
    "DEPTH_TO_SPACE": Case(
        shapes=((1, 8, 8, 1),), options=("DepthToSpaceOptions", {"BlockSize": 2}), stays_float=WIDE
    ),
    "DIV": Case((floats(3.0, -2.0, 0.5, 1.0),), options=("DivOptions", {})),
    "EXP": Case(options=("ExpOptions", {}), least_db=25.0),
    "EXPAND_DIMS": Case((integers(1),), ((1, 1, 4, 4, 4),), ("ExpandDimsOptions", {})),
    "HARD_SWISH": Case(stays_float=WIDE),
    "L2_NORMALIZATION": Case(options=("L2NormOptions", {}), stays_float=WIDE),
    "LEAKY_RELU": Case(options=("LeakyReluOptions", {"Alpha": 0.1})),
    "LOG_SOFTMAX": Case(options=("LogSoftmaxOptions", {}), stays_float=WIDE),
    "MAXIMUM": Case((floats(-0.5),), options=("MaximumMinimumOptions", {})),
    "MINIMUM": Case((floats(0.5),), options=("MaximumMinimumOptions", {})),
    "NEG": Case(options=("NegOptions", {})),
    "PACK": Case((SAMPLES[:1],), ((2, *SHAPE),), ("PackOptions", {"ValuesCount": 2})),
    "PADV2": Case(
        (integers([0, 0], [1, 1], [1, 1], [0, 0]), floats(0.5)),
        ((1, 6, 6, 4),),
        ("PadV2Options", {}),
    ),
    "PRELU": Case((floats(0.1, -0.2, 0.3, 0.4, shape=(1, 1, 4)),), stays_float=WIDE),
    "REDUCE_MAX": Case((integers(3),), ((1, 4, 4),), AXIS),
    "RELU6": Case(),
    "RELU_N1_TO_1": Case(stays_float=WIDE),
    "REVERSE_V2": Case((integers(2),), options=("ReverseV2Options", {})),
    "SELECT_V2": Case(
        (np.array([True, False, True, True]), floats(0.25)),
        options=("SelectV2Options", {}),
        order=lambda inputs: [inputs[1], inputs[0], inputs[2]],
    ),
    "SPACE_TO_DEPTH": Case(
        shapes=((1, 2, 2, 16),), options=("SpaceToDepthOptions", {"BlockSize": 2}), stays_float=WIDE
    ),
    "SPLIT_V": Case(
        (integers(1, 3), integers(3)),
        ((1, 4, 4, 1), (1, 4, 4, 3)),
        ("SplitVOptions", {"NumSplits": 2}),
    ),
    "SQUARE": Case(options=("SquareOptions", {})),
    "SQUARED_DIFFERENCE": Case(
        (floats(0.1, 0.2, 0.3, 0.4),), options=("SquaredDifferenceOptions", {}), stays_float=WIDE
    ),
    "SQUEEZE": Case(shapes=((4, 4, 4),), options=("SqueezeOptions", {"SqueezeDims": [0]})),
    "SUM": Case((integers(3),), ((1, 4, 4),), AXIS),
    "TILE": Case((integers(1, 1, 2, 1),), ((1, 4, 8, 4),), ("TileOptions", {})),
    "SIN": Case(stays_float=("int8", "int16x8")),
}


def convolution(m: FloatWriter) -> int:
    rng = np.random.default_rng(6)
    weights = rng.normal(0.0, 0.5, (4, 1, 1, 4)).astype(np.float32)
    return m.conv2d(m.input(SHAPE), weights, np.full(4, 0.1, np.float32))


def add(m: FloatWriter, kind: str, x: int) -> list[int]:
    """The outputs of the operator on ``x``."""
    case = CASES[kind]
    inputs = case.order([x, *(m.constant(one) for one in case.constants)])
    outputs = [m.tensor(shape, "float32") for shape in case.shapes]
    m.operator(kind, inputs, outputs, case.options)
    return outputs


@pytest.fixture(scope="module", params=["int8", "int16x8"])
def every(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, QuantizedModel, list[str]]:
    """A model in which each operator works on the same convolution: its scheme, the result, and
    the operator that makes each output."""
    m = FloatWriter()
    x, makers = convolution(m), []
    for kind in CASES:
        outputs = add(m, kind, x)
        m.output(*outputs)
        makers += [kind] * len(outputs)
    path = m.save(tmp_path_factory.mktemp("operators") / "every.tflite")
    scheme: str = request.param
    return scheme, utvm_deploy.quantize(path, SAMPLES, scheme=scheme), makers


def test_what_has_an_integer_kernel_is_quantized(
    every: tuple[str, QuantizedModel, list[str]],
) -> None:
    scheme, made, makers = every
    floating = {kind for kind, case in CASES.items() if scheme in case.stays_float}
    assert {one.kind for one in made.float_operators} == floating
    for kind, error in zip(makers, made.outputs, strict=True):
        assert error.sqnr_db is not None and error.sqnr_db > CASES[kind].least_db, kind


def test_the_quantized_operators_compute_the_same_bytes_here(
    every: tuple[str, QuantizedModel, list[str]], tmp_path: Path
) -> None:
    scheme, made, _ = every
    made.save(tmp_path / "made.tflite")
    graph = load_model(tmp_path / "made.tflite")
    info = np.iinfo(graph.tensors[graph.inputs[0]].dtype)
    assert info.bits == (16 if scheme == "int16x8" else 8)
    sample = np.random.default_rng(7).integers(info.min, info.max, SHAPE, info.dtype)
    assert check_model(tmp_path / "made.tflite", [[sample]], tmp_path) >= len(CASES)


def test_no_float_tensor_remains_between_two_rewritten_operators(tmp_path: Path) -> None:
    m = FloatWriter()
    (y,) = add(m, "LEAKY_RELU", convolution(m))
    (y,) = add(m, "ABS", y)
    m.output(*add(m, "REVERSE_V2", y))
    made = utvm_deploy.quantize(m.save(tmp_path / "chain.tflite"), SAMPLES)
    made.save(tmp_path / "made.tflite")
    kinds = [one.kind for one in load_model(tmp_path / "made.tflite").operators]
    assert kinds == ["CONV_2D", "LEAKY_RELU", "ABS", "REVERSE_V2"]
    assert made.rewritten == ("LEAKY_RELU", "ABS", "REVERSE_V2")


@pytest.mark.parametrize(("side", "kind"), [(4, "MEAN"), (2, "AVERAGE_POOL_2D")])
def test_only_a_pool_over_the_whole_image_gets_a_scale_of_its_own(
    side: int, kind: str, tmp_path: Path
) -> None:
    """An integer AVERAGE_POOL_2D keeps the scale of its input, which is coarse for a mean."""
    m = FloatWriter()
    window = {"Padding": 1, "StrideH": side, "StrideW": side}
    window |= {"FilterHeight": side, "FilterWidth": side}
    pooled = m.tensor((1, 4 // side, 4 // side, 4), "float32")
    m.operator("AVERAGE_POOL_2D", [convolution(m)], [pooled], ("Pool2DOptions", window))
    m.output(pooled)
    made = utvm_deploy.quantize(m.save(tmp_path / "pool.tflite"), SAMPLES)
    made.save(tmp_path / "made.tflite")
    graph = load_model(tmp_path / "made.tflite")
    last = graph.operators[-1]
    assert last.kind == kind and not made.float_operators
    scales = [graph.tensors[n].quantization for n in (last.inputs[0], last.outputs[0])]
    assert (scales[0] == scales[1]) is (kind == "AVERAGE_POOL_2D")
    sample = np.random.default_rng(7).integers(-128, 128, SHAPE).astype(np.int8)
    assert check_model(tmp_path / "made.tflite", [[sample]], tmp_path) >= 2


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
def test_sums_of_int16_take_scales_that_are_nearly_powers_of_two(kind: str, tmp_path: Path) -> None:
    m = FloatWriter()
    x, y = m.input(SHAPE), m.input(SHAPE)
    m.output(m.node(kind, [x, y], SHAPE, (f"{kind.capitalize()}Options", {})))
    # Both inputs reach 1 and the output 2, so the scales are 1 and 2 by 32,767.
    ones = np.where(SAMPLES > 0, 1, -1).astype(np.float32)
    data = (ones, -ones if kind == "SUB" else ones)
    made = utvm_deploy.quantize(m.save(tmp_path / "sum.tflite"), data, scheme="int16x8")
    assert not made.float_operators
    made.save(tmp_path / "made.tflite")
    steps = np.random.default_rng(7).integers(-32768, 32768, (2, *SHAPE)).astype(np.int16)
    assert check_model(tmp_path / "made.tflite", [list(steps)], tmp_path) >= 1


def test_operators_of_a_recipe_have_their_own_schemes(tmp_path: Path) -> None:
    m = FloatWriter()
    (y,) = add(m, "LEAKY_RELU", convolution(m))
    m.output(*add(m, "ABS", y))
    calibration = calibrated(opened(m.save(tmp_path / "chain.tflite")), SAMPLES)
    names = {kind: output for kind, output in calibration.operators}
    recipe = Recipe("int8", {names["LEAKY_RELU"]: "int16x8", names["ABS"]: "float"})
    made = quantize_with_recipe(calibration, recipe)
    made.save(tmp_path / "made.tflite")
    graph = load_model(tmp_path / "made.tflite")
    types = {one.kind: graph.tensors[one.outputs[0]].dtype for one in graph.operators}
    assert types["CONV_2D"] == "int8" and types["LEAKY_RELU"] == "int16"
    assert [one.kind for one in made.float_operators] == ["ABS"]


def test_no_float_ends_with_1_and_writes_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    m = FloatWriter()
    m.output(*add(m, "SIN", convolution(m)))
    path, out = m.save(tmp_path / "sin.tflite"), tmp_path / "out.tflite"
    np.savez(tmp_path / "calib.npz", inputs=SAMPLES)
    argv = ["quantize", str(path), "--data", str(tmp_path / "calib.npz"), "-o", str(out)]
    assert main(argv) == 0
    out.unlink()
    capsys.readouterr()
    assert main([*argv, "--no-float", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"] and [one["kind"] for one in found["float_operators"]] == ["SIN"]
    assert out.exists()
