"""utvm quantize of float .tflite files: scales, errors, what is said of bad data and files."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.errors import DataError, ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.quality.quantizing.child_steps import quantize_with_recipes
from utvm_deploy.quality.quantizing.facts import Calibration, QuantizedModel, Range, Recipe
from utvm_deploy.quality.quantizing.model_steps import calibrated, opened, quantize_with_recipe

pytestmark = pytest.mark.tools

MODELS = Path(__file__).resolve().parents[2] / "models"
DIGITS, SAMPLES = MODELS / "digits_float.tflite", MODELS / "digits_calib.npz"
#: Signal to noise of the outputs, at least.
LEAST_DB = {"int8": 20.0, "int16x8": 35.0}
RNG = np.random.default_rng(16)


@pytest.fixture(scope="module")
def digits() -> Calibration:
    return calibrated(opened(DIGITS), SAMPLES)


@pytest.mark.parametrize("scheme", LEAST_DB)
@pytest.mark.parametrize("float_ends", [False, True])
def test_digits_keep_their_accuracy(
    digits: Calibration, scheme: str, float_ends: bool, tmp_path: Path
) -> None:
    made = quantize_with_recipe(digits, Recipe(scheme, float_ends=float_ends))
    made.save(tmp_path / "digits.tflite")
    graph = load_model(tmp_path / "digits.tflite")
    ends = {graph.tensors[number].dtype for number in (*graph.inputs, *graph.outputs)}
    assert ends == {"float32" if float_ends else scheme.removesuffix("x8")}
    assert not made.float_operators
    (error,) = made.outputs
    assert error.sqnr_db is not None and error.sqnr_db > LEAST_DB[scheme]
    held_out = np.load(MODELS / "digits_labelled.npz")
    inputs = held_out["inputs"][:100]
    if not float_ends:
        known = graph.tensors[graph.inputs[0]].quantization
        assert known is not None
        steps = np.rint(inputs / np.float32(known.scale)) + known.zero_point
        info = np.iinfo(graph.tensors[graph.inputs[0]].dtype)
        inputs = np.clip(steps, info.min, info.max).astype(info.dtype)
    shape = graph.tensors[graph.inputs[0]].shape
    run = run_reference(tmp_path / "digits.tflite", [one.reshape(shape) for one in inputs])
    right = [
        int(np.argmax(one[0])) == label
        for one, label in zip(run.outputs, held_out["labels"], strict=False)
    ]
    assert sum(right) >= 96


def test_the_calibration_takes_the_largest_value_whatever_the_order(
    digits: Calibration,
) -> None:
    inputs = np.load(SAMPLES)["inputs"]
    ranges = set(digits.ranges.values())
    assert Range(float(inputs.min()), float(inputs.max())) in ranges
    again = calibrated(opened(DIGITS), inputs[::-1])
    assert again.ranges == digits.ranges


def test_a_declared_range_replaces_that_of_the_samples(tmp_path: Path) -> None:
    inputs = np.load(SAMPLES)["inputs"]
    made = utvm_deploy.quantize(DIGITS, inputs, input_range=(0.0, 0.5))
    made.save(tmp_path / "digits.tflite")
    graph = load_model(tmp_path / "digits.tflite")
    known = graph.tensors[graph.inputs[0]].quantization
    assert known is not None and known.scale == pytest.approx(0.5 / 255)
    warning, *_ = made.warnings
    assert "200 of 200 samples" in warning and "declared range 0 to 0.5: from 0 to 1" in warning


def test_one_child_makes_many_files_of_one_calibration(digits: Calibration) -> None:
    kind, output = digits.operators[1]
    assert kind == "CONV_2D"
    recipes = [Recipe(), Recipe(operators={output: "float"}), Recipe(ranges={output: Range(0, 1)})]
    files = [result.data for result in quantize_with_recipes(digits, recipes, is_final=True)]
    assert len(set(files)) == 3
    # The first file is the same as when it is made alone.
    assert quantize_with_recipe(digits, Recipe()).data == files[0]


def test_a_dead_channel_keeps_a_sane_scale(tmp_path: Path) -> None:
    m = FloatWriter()
    weights = RNG.normal(0.0, 0.1, (4, 3, 3, 2)).astype(np.float32)
    weights[1] = 0.0
    weights[2] *= 1e-9
    bias = np.array([0.1, 0.9, -0.7, 0.2], np.float32)
    m.output(m.conv2d(m.input((1, 6, 6, 2)), weights, bias))
    file = m.save(tmp_path / "dead.tflite")
    data = RNG.normal(size=(40, 6, 6, 2)).astype(np.float32)
    for scheme in LEAST_DB:
        made = utvm_deploy.quantize(file, data, scheme=scheme)
        # With the scale of 1e-11 that the library gives, the second output is off by 0.9.
        assert made.outputs[0].largest < 0.05, scheme
        made.save(tmp_path / "made.tflite")
        graph = load_model(tmp_path / "made.tflite")
        (weights_scales,) = (
            one.quantization.scales
            for one in graph.tensors
            if one.quantization is not None and one.quantization.axis is not None
            if one.dtype == "int8"
        )
        kept = sorted((weights_scales[0], weights_scales[3]))
        assert kept[0] <= weights_scales[1] <= kept[1]
        assert min(weights_scales) > 1e-12


def test_a_bias_far_above_its_weights_is_kept_in_int16x8(tmp_path: Path) -> None:
    """The library cuts a bias of int64 off at the limits of int32."""
    m = FloatWriter()
    weights = RNG.normal(0.0, 0.1, (3, 8)).astype(np.float32)
    weights[1] *= 1e-5
    bias = np.array([0.1, 0.9, -0.7], np.float32)
    m.output(m.fully_connected(m.input((1, 8)), weights, bias))
    data = RNG.normal(size=(40, 8)).astype(np.float32)
    made = utvm_deploy.quantize(m.save(tmp_path / "m.tflite"), data, scheme="int16x8")
    assert made.outputs[0].largest < 0.01


def test_a_layer_that_is_always_zero_is_quantized(tmp_path: Path) -> None:
    m = FloatWriter()
    weights = RNG.normal(0.0, 0.1, (4, 8)).astype(np.float32)
    x = m.fully_connected(m.input((1, 8)), weights, np.full(4, -9, np.float32), activation="RELU")
    m.output(m.fully_connected(x, weights[:, :4].copy(), np.arange(1, 5, dtype=np.float32)))
    data = RNG.normal(size=(40, 8)).astype(np.float32)
    for scheme in LEAST_DB:
        made = utvm_deploy.quantize(m.save(tmp_path / "m.tflite"), data, scheme=scheme)
        assert made.outputs[0].largest < 0.02, scheme


def net(folder: Path) -> Path:
    """A convolution of two channels, the smallest file that there is anything to say of."""
    m = FloatWriter()
    weights, bias = np.ones((3, 1, 1, 2), np.float32), np.zeros(3, np.float32)
    m.output(m.conv2d(m.input((1, 4, 4, 2), name="picture"), weights, bias))
    return m.save(folder / "net.tflite")


PICTURES = RNG.normal(size=(40, 4, 4, 2)).astype(np.float32)


def spoiled(value: float) -> np.ndarray:
    data = PICTURES.copy()
    data[3, 0, 0, 0] = value
    return data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (PICTURES[:1], "hold one sample, too few to calibrate with"),
        (PICTURES.transpose(0, 3, 1, 2), "its channels come first (NCHW)"),
        (PICTURES[:, :3], "has samples of shape (3, 4, 2)"),
        (spoiled(np.nan), "sample 3, holds nan"),
        (spoiled(np.inf), "sample 3, holds inf"),
        ((PICTURES, PICTURES), "the model has 1 inputs, but the data have 2 arrays"),
        (PICTURES.astype(np.complex64), "is complex64"),
    ],
    ids=["one-sample", "layout", "size", "nan", "infinite", "count", "type"],
)
def test_bad_data_are_refused(data: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        utvm_deploy.quantize(net(tmp_path), data)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (PICTURES[:5], ["5 samples are few"]),
        (np.broadcast_to(PICTURES[:1], PICTURES.shape), ["all samples are equal"]),
        (
            np.full_like(PICTURES, 0.5),
            ["all samples are equal", "input 'picture' is 0.5 everywhere"],
        ),
    ],
    ids=["few", "equal", "constant"],
)
def test_doubtful_data_are_told(data: np.ndarray, says: list[str], tmp_path: Path) -> None:
    warnings = utvm_deploy.quantize(net(tmp_path), data).warnings
    assert len(warnings) == len(says)
    assert all(part in told for part, told in zip(says, warnings, strict=True))


@pytest.mark.parametrize("value", [0.0, 1e-42, 0.5])
def test_constant_data_give_no_figure(value: float, tmp_path: Path) -> None:
    made = utvm_deploy.quantize(net(tmp_path), np.full_like(PICTURES, value))
    assert [one.sqnr_db for one in made.outputs] == [None] * len(made.outputs)
    assert "dB" not in made.headline
    assert "everywhere in all samples" in made.warnings[1]


def test_an_output_of_truth_values(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 4))
    weights, bias = m.constant(np.eye(4, dtype=np.float32)), m.constant(np.zeros(4, np.float32))
    y = m.node("FULLY_CONNECTED", [x, weights, bias], (1, 4), ("FullyConnectedOptions", {}))
    m.output(m.node("GREATER", [y, x], (1, 4), ("GreaterOptions", {}), dtype="bool"), y)
    data = RNG.normal(size=(4, 4)).astype(np.float32)
    made = utvm_deploy.quantize(m.save(tmp_path / "greater.tflite"), data)
    assert len(made.outputs) == 2


def test_data_of_denormals_give_no_figure(tmp_path: Path) -> None:
    made = utvm_deploy.quantize(net(tmp_path), PICTURES * np.float32(1e-42))
    assert "dB" not in made.headline
    assert "which no scale in float32 can tell apart" in made.warnings[0]


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    m = FloatWriter()
    weights = np.ones((3, 1, 1, 2), np.float32)
    weights[1, 0, 0, 1] = np.inf
    m.output(m.conv2d(m.input((1, 4, 4, 2)), weights, np.zeros(3, np.float32)))
    with pytest.raises(ModelError, match=r"the weights '.*' hold infinity"):
        utvm_deploy.quantize(m.save(tmp_path / "net.tflite"), PICTURES)


def test_a_long_name_of_a_tensor_is_shortened() -> None:
    with np.load(SAMPLES) as file:
        huge = file["inputs"][:3] * np.float32(1e38)
    with pytest.raises(ModelError, match="becomes NaN on sample") as caught:
        utvm_deploy.quantize(DIGITS, huge)  # its tensors have names of 400 characters
    assert len(str(caught.value)) < 250


def test_weights_of_float16_are_widened(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 4, 4, 2))
    halves = m.widened(RNG.normal(size=(3, 1, 1, 2)).astype(np.float16))
    out = m.tensor((1, 4, 4, 3), "float32")
    zeros = m.constant(np.zeros(3, np.float32))
    options = ("Conv2DOptions", {"StrideH": 1, "StrideW": 1})
    m.operator("CONV_2D", [x, halves, zeros], [out], options)
    m.output(out)
    made = utvm_deploy.quantize(m.save(tmp_path / "net.tflite"), PICTURES)
    assert not made.float_operators and (made.outputs[0].sqnr_db or 0) > 30


def test_a_quantized_model_is_refused() -> None:
    with pytest.raises(ModelError, match="is quantized already: 'serving_default"):
        utvm_deploy.quantize(MODELS / "digits_int8.tflite", np.zeros((40, 8, 8, 1), np.float32))


@pytest.mark.parametrize(("scheme", "least"), [("int8", 10.0), ("int16x8", 25.0)])
def test_a_hybrid_model_is_quantized(shared_models: Path, scheme: str, least: float) -> None:
    samples = np.random.default_rng(5).normal(-40, 30, (40, 49, 10, 1)).astype(np.float32)
    made = utvm_deploy.quantize(
        shared_models / "float" / "kws_ref_model_hybrid.tflite", samples, scheme=scheme
    )
    assert isinstance(made, QuantizedModel) and not made.float_operators
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > least
    (warning,) = (one for one in made.warnings if "int8 weights already" in one)
    assert warning.startswith("kws_ref_model_hybrid.tflite has")


def test_a_model_that_has_other_faults_than_hybrid_weights_is_refused(tmp_path: Path) -> None:
    m = FloatWriter()
    weights = m.constant(np.ones((2, 3), np.float16))
    m.output(m.node("FULLY_CONNECTED", [m.input((1, 3)), weights], (1, 2), None))
    with pytest.raises(ModelError, match="float16"):
        utvm_deploy.quantize(m.save(tmp_path / "half.tflite"), np.zeros((4, 3), np.float32))


def test_the_command_that_installs_the_quantizer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ModelError, match=r"pip install 'utvm-deploy\[quantize\]'"):
        utvm_deploy.quantize(net(tmp_path), PICTURES)


def told(capsys: pytest.CaptureFixture[str], argv: list[str], code: int) -> Mapping[str, Any]:
    assert main([*argv, "--json"]) == code
    found: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, out = net(tmp_path), tmp_path / "out.tflite"
    np.savez(tmp_path / "calib.npz", inputs=PICTURES)
    argv = ["quantize", str(file), "--data", str(tmp_path / "calib.npz"), "-o", str(out)]
    found = told(capsys, [*argv, "--dry-run"], 0)
    assert found["ok"] and not out.exists()
    found = told(capsys, argv, 0)
    assert found["bytes"] == out.stat().st_size and found["samples"] == 40
    assert found["outputs"][0]["sqnr_db"] > LEAST_DB["int8"]
    before = out.read_bytes()
    np.savez(tmp_path / "calib.npz", inputs=spoiled(np.nan))
    assert "holds nan" in told(capsys, argv, 1)["error"]
    assert out.read_bytes() == before
    left = {"net.tflite", "calib.npz", "out.tflite"}
    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["-o", "out.npz"], "does not end in .tflite"),
        (["-o", "out.tflite", "--input-range", "1"], "'1' is not a range"),
        (["-o", "out.tflite", "--input-range", "1,0"], "not a range from a lower to a higher"),
        (["-o", "out.tflite", "--input-range", "-1,-2"], "not a range from a lower to a higher"),
        (["-o", "out.tflite", "--scheme", "int3"], "invalid choice: 'int3'"),
        (["-o", "out.tflite", "--board", "host"], "is the same for all boards; leave out --board"),
    ],
)
def test_a_wrong_command_line(
    option: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, ["quantize", str(DIGITS), "--data", str(SAMPLES), *option], 2)
    assert says in found["error"]


@pytest.mark.parametrize("scheme", LEAST_DB)
def test_a_quantized_file_computes_the_same_bytes_here(
    digits: Calibration, scheme: str, tmp_path: Path
) -> None:
    quantize_with_recipe(digits, Recipe(scheme)).save(tmp_path / "digits.tflite")
    argv = ["verify", str(tmp_path / "digits.tflite"), "--board", "host", "--samples", "2"]
    assert main(argv) == 0


def test_a_bad_sample_has_its_number_in_the_data_that_were_given(tmp_path: Path) -> None:
    m = FloatWriter()
    m.output(m.node("EXP", [m.input((1, 2))], (1, 2), ("ExpOptions", {})))
    values = np.zeros((80, 2), np.float32)
    values[79] = 1000
    data = {"inputs": values, "labels": np.repeat([0, 1], 40)}
    with pytest.raises(ModelError, match="becomes infinite on sample 79; remove"):
        utvm_deploy.quantize(m.save(tmp_path / "net.tflite"), data)


def test_a_quantized_file_keeps_the_name_of_the_signature(tmp_path: Path) -> None:
    """So --signature means the same for the quantized file and for its float reference."""
    model = schema.read_model(DIGITS.read_bytes())
    schema.write_signature(model)
    model.signatureDefs[0].signatureKey = b"encode"
    (tmp_path / "signed.tflite").write_bytes(schema.model_bytes(model))
    made = quantize_with_recipe(calibrated(opened(tmp_path / "signed.tflite"), SAMPLES), Recipe())
    made.save(tmp_path / "made.tflite")
    found = schema.read_model((tmp_path / "made.tflite").read_bytes())
    assert [one.signatureKey for one in found.signatureDefs] == [b"encode"]
