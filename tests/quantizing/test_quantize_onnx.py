"""utvm quantize of float ONNX files: by onnxruntime, then converted to .tflite."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from fork_server import EndedRun
from other_formats.onnx_writer import OnnxWriter

import utvm_deploy
from utvm_deploy.base.errors import DataError, ModelError
from utvm_deploy.base.process import Completed
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.quality.quantizing import child_steps
from utvm_deploy.quality.quantizing.facts import Calibration, Range, Recipe
from utvm_deploy.quality.quantizing.model_steps import calibrated, opened, quantize_with_recipe

pytestmark = pytest.mark.tools

SAMPLES = np.random.default_rng(3).normal(size=(40, 3, 8, 8)).astype(np.float32)
LEAST_DB = {"int8": 20.0, "int16x8": 35.0}


def network(*, dimensions: tuple[int | str, ...] = (1, 3, 8, 8)) -> tuple[OnnxWriter, str]:
    """Two convolutions, a pool and a dense layer."""
    w = OnnxWriter(dimensions, seed=2)
    y = w.add("Relu", w.conv("x", 3, 8, 3, 3, pads=[1, 1, 1, 1]))
    y = w.add("GlobalAveragePool", w.conv(y, 8, 8, 3, 3))
    return w, w.add("LeakyRelu", w.add("Gemm", w.add("Flatten", y), w.normal(8, 4)), alpha=0.1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    w, y = network(dimensions=("batch", 3, 8, 8))
    return w.save(tmp_path_factory.mktemp("onnx") / "net.onnx", y)


@pytest.fixture(scope="module")
def calibration(path: Path) -> Calibration:
    return calibrated(opened(path), SAMPLES)


@pytest.mark.parametrize("scheme", LEAST_DB)
def test_the_outputs_are_close_and_the_bytes_are_those_of_the_reference(
    calibration: Calibration, scheme: str, tmp_path: Path
) -> None:
    made = quantize_with_recipe(calibration, Recipe(scheme))
    (error,) = made.outputs
    assert error.sqnr_db is not None and error.sqnr_db > LEAST_DB[scheme]
    assert not made.float_operators
    made.save(tmp_path / "net.tflite")
    graph = load_model(tmp_path / "net.tflite")
    ends = {graph.tensors[number].dtype for number in (*graph.inputs, *graph.outputs)}
    assert ends == {scheme.removesuffix("x8")}
    # The shapes are those of the ONNX file.
    assert graph.tensors[graph.inputs[0]].shape == (1, 3, 8, 8)
    argv = ["verify", str(tmp_path / "net.tflite"), "--board", "host", "--samples", "2"]
    assert main(argv) == 0


def test_float_ends_stay(calibration: Calibration, tmp_path: Path) -> None:
    made = quantize_with_recipe(calibration, Recipe(float_ends=True))
    made.save(tmp_path / "net.tflite")
    graph = load_model(tmp_path / "net.tflite")
    ends = {graph.tensors[number].dtype for number in (*graph.inputs, *graph.outputs)}
    assert ends == {"float32"} and not made.float_operators


def test_the_ranges_are_those_of_all_samples(calibration: Calibration) -> None:
    assert calibration.ranges["x"] == Range(float(SAMPLES.min()), float(SAMPLES.max()))
    made = quantize_with_recipe(calibration, Recipe(ranges={"x": Range(-1.0, 1.0)}))
    assert (made.outputs[0].sqnr_db or 0) < LEAST_DB["int8"]
    bound, warning = made.warnings
    assert bound == "the batch of input 'x' is bound to 1"
    assert "below 20 dB; --sensitivity shows which layers cause it" in warning


def test_an_operator_that_the_recipe_leaves_float_is_listed(calibration: Calibration) -> None:
    output = next(output for kind, output in calibration.operators if kind == "Gemm")
    made = quantize_with_recipe(calibration, Recipe(operators={output: "float"}))
    assert "FULLY_CONNECTED" in [one.kind for one in made.float_operators]


def test_two_schemes_in_one_onnx_file_are_refused(calibration: Calibration) -> None:
    recipe = Recipe(operators={calibration.operators[0][1]: "int16x8"})
    with pytest.raises(ModelError, match="one scheme for all operators"):
        quantize_with_recipe(calibration, recipe)


def changed(path: Path, folder: Path, change: object) -> Path:
    model = onnx.load(path)
    assert callable(change)
    change(model)
    onnx.save(model, folder / "changed.onnx")
    return folder / "changed.onnx"


def infinite_weights(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    array = onnx.numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[0] = np.inf
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def free_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (infinite_weights, "hold infinity; train the model again"),
        (free_size, "input 'x' has a shape that is not fixed"),
    ],
)
def test_bad_files_are_refused(path: Path, tmp_path: Path, change: object, says: str) -> None:
    with pytest.raises(ModelError) as caught:
        utvm_deploy.quantize(changed(path, tmp_path, change), SAMPLES)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_quantized_file_and_other_files_are_refused(tmp_path: Path) -> None:
    w, y = network()
    with pytest.raises(ModelError, match="it is quantized already"):
        utvm_deploy.quantize(w.quantized(tmp_path, y), SAMPLES)
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelError, match="it is not an ONNX file"):
        utvm_deploy.quantize(tmp_path / "text.onnx", SAMPLES)
    (tmp_path / "net.relax").write_text("no model")
    with pytest.raises(ModelError, match=r"give a float \.tflite, \.onnx or \.pt2 file"):
        utvm_deploy.quantize(tmp_path / "net.relax", SAMPLES)


def test_samples_with_channels_last_are_refused(path: Path) -> None:
    with pytest.raises(DataError, match=r"its channels come last \(NHWC\)"):
        utvm_deploy.quantize(path, SAMPLES.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        (("Cos", "Elu"), r"net\.onnx: none of its operators \(Cos, Elu\) can be quantized to int8"),
        (("Asinh", "Relu"), r"net\.onnx: .*operator \d+ \(Asinh\)"),
    ],
)
def test_what_cannot_be_quantized_is_said_of_the_users_file(
    kinds: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    w = OnnxWriter((1, 3, 8, 8))
    y = "x" if "Asinh" not in kinds else w.conv("x", 3, 3, 1, 1)
    for kind in kinds:
        y = w.add(kind, y)
    with pytest.raises(ModelError, match=says) as caught:
        utvm_deploy.quantize(w.save(tmp_path / "net.onnx", y), SAMPLES)
    assert "qdq.onnx" not in str(caught.value)


def test_a_resize_that_the_preparation_fails_on_is_quantized(tmp_path: Path) -> None:
    w = OnnxWriter((1, 3, 8, 8))
    scales = w.constant(np.array([1, 1, 2, 2], np.float32))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    y = w.add("Resize", w.conv("x", 3, 4, 1, 1), "", scales, mode="nearest", **how)
    made = utvm_deploy.quantize(w.save(tmp_path / "net.onnx", y), SAMPLES)
    assert not made.float_operators


def test_a_crash_of_a_library_is_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_argv: object, **_more: object) -> EndedRun:
        return EndedRun(Completed((), -signal.SIGABRT, "", "WARNING: of something else"))

    monkeypatch.setattr(child_steps.process, "start", crash)
    with pytest.raises(ModelError, match="was ended by SIGABRT in the prepare step") as caught:
        utvm_deploy.quantize(path, SAMPLES)
    assert "WARNING" not in str(caught.value)


def test_shapes_can_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    w, y = network(dimensions=("batch", 3, "rows", 8))
    w.save(tmp_path / "free.onnx", y)
    np.save("calib.npy", SAMPLES)
    line = ["quantize", "free.onnx", "--data", "calib.npy", "-o", "out.tflite"]
    assert main(line) == 1
    assert "a shape that is not fixed; give it with --shape" in capsys.readouterr().err
    assert main([*line, "--shape", "x=1,3,8,8"]) == 0
    graph = load_model(tmp_path / "out.tflite")
    assert graph.tensors[graph.inputs[0]].shape == (1, 3, 8, 8)
    assert main(["quantize", "a.pt2", *line[2:], "--shape", "x=1,3,8,8"]) == 1
    assert "a.pt2 has fixed shapes, so --shape does not apply" in capsys.readouterr().err
