"""Models with float32 operators: verified within bounds, mixed with int8, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.float_bounds import EXACT, Bound, outside
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.inspecting.islands import float_islands, float_operations
from utvm_deploy.results.verifying.on_board import verify

RNG = np.random.default_rng(152)


def mixed_model() -> ModelWriter:
    """int8, then EXP and MUL in float32, which int8 has with other scales only, then int8 again."""
    m = ModelWriter()
    x = m.input((1, 6, 6, 4), scale=0.05)
    weights = RNG.integers(-127, 127, (8, 3, 3, 4)).astype(np.int8)
    made = m.conv2d(x, weights, np.arange(8), scale=0.1, weight_scale=0.01)
    shape = m.tensors[made].shape
    real = m.tensor(shape, "float32")
    m.operator("DEQUANTIZE", [made], [real])
    sine, scaled = m.tensor(shape, "float32"), m.tensor(shape, "float32")
    m.operator("SIN", [real], [sine])
    m.operator("MUL", [sine, real], [scaled], ("MulOptions", {"FusedActivationFunction": 1}))
    back = m.tensor(shape, "int8", 0.1, 3)
    m.operator("QUANTIZE", [scaled], [back])
    m.output(m.relu(back, scale=0.1, zero_point=3))
    return m


def float_model() -> FloatWriter:
    m = FloatWriter()
    x = m.input((1, 6, 6, 4))
    y = m.conv2d(x, RNG.normal(size=(8, 3, 3, 4)), RNG.normal(size=8), activation="RELU")
    y = m.node("TANH", [y], (1, 6, 6, 8))
    y = m.fully_connected(m.reshape(y, (1, 288)), RNG.normal(size=(5, 288)), RNG.normal(size=5))
    m.output(m.softmax(y))
    return m


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    with utvm_deploy.connect("host") as device:
        yield device


@pytest.mark.tools
@pytest.mark.parametrize("made", [mixed_model, float_model])
def test_each_layer_is_verified_within_its_bound(made, host: Device, tmp_path: Path) -> None:
    path = made().save(tmp_path / "model.tflite")
    compiled = utvm_deploy.compile(path, "host")
    model = host.load(compiled)
    samples = random_samples(load_model(path), 2)
    reference = run_reference(path, samples.inputs)
    found = verify(model, path, samples, reference=reference)
    assert found.ok and found.samples_run == 2, found
    assert found.bound.relative == 1e-4
    by_kind = {check.layer.kind: check.bound for check in found.layers}
    assert {by_kind.get(kind, Bound(2)) for kind in ("SIN", "TANH")} == {Bound(ulps=2)}
    assert by_kind.get("CONV_2D") == EXACT

    # A reference that is other by a little is told, at the layer where that begins.
    inexact = next(c.layer for c in found.layers if c.bound.ulps)
    source = inexact.outputs[0].source
    tensors = [dict(sample) for sample in reference.tensors]
    for sample in tensors:
        sample[source] = sample[source] * np.float32(1 + 1e-6)
    other = verify(model, path, samples, reference=replace(reference, tensors=tuple(tensors)))
    assert not other.ok
    wrong = [check.layer.index for check in other.layers if check.mismatch]
    assert wrong[0] == inexact.index

    # So is a wrong layer that must be exact.
    exact = found.layers[0].layer
    assert found.layers[0].bound == EXACT
    tensors = [dict(sample) for sample in reference.tensors]
    for sample in tensors:
        array = sample[exact.outputs[0].source].copy()
        array.reshape(-1)[7] += 1
        sample[exact.outputs[0].source] = array
    other = verify(model, path, samples, reference=replace(reference, tensors=tuple(tensors)))
    (first, *_) = [check for check in other.layers if check.mismatch]
    assert first.layer.index == exact.index and first.mismatch is not None
    assert first.mismatch.wrong_elements == 1
    model.unload()


@pytest.mark.tools
def test_exact_models_are_verified_by_bits(host: Device, tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 8, 4))
    m.output(m.add(x, m.constant(RNG.normal(size=4).astype(np.float32)), activation="RELU6"))
    path = m.save(tmp_path / "model.tflite")
    model = host.load(utvm_deploy.compile(path, "host"))
    found = verify(model, path, random_samples(load_model(path), 2))
    assert found.ok and found.bound == EXACT
    assert all(check.bound == EXACT for check in found.layers)
    model.unload()


@pytest.mark.tools
def test_verify_says_the_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(mixed_model().save(tmp_path / "model.tflite"))
    assert main(["verify", path, "--board", "host", "--samples", "1", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bound"] == {"ulps": 0, "relative": 1e-4}
    layers = {layer["operator"]: layer["bound"] for layer in facts["layers"]}
    assert layers["SIN"] == {"ulps": 2, "relative": 0}
    assert layers["MUL"] == {"ulps": 0, "relative": 0}
    assert main(["verify", path, "--board", "host", "--samples", "1"]) == 0
    said = capsys.readouterr().out
    assert "within 0.0001 relative of LiteRT" in said and "SIN 2 ULP" in said


def test_no_float_refuses_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = mixed_model().save(tmp_path / "model.tflite")
    expected = r"not fully quantized: operator 2 \(SIN\), which makes .* works in float32"
    with pytest.raises(ModelError, match=expected):
        utvm_deploy.compile(path, "host", allow_float=False)
    argv = ["compile", str(path), "--board", "host", "-o", str(tmp_path / "c"), "--no-float"]
    assert main(argv) == 1
    said = capsys.readouterr().err
    assert "operator 2 (SIN)" in said and "utvm docs quantization" in said


@pytest.mark.parametrize(
    "argv",
    [
        ["tune", "--board", "host", "--show-space"],
        ["bench", "--board", "mps2_an500"],
    ],
)
def test_no_float_of_tune_and_bench(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mixed_model().save(tmp_path / "model.tflite")
    assert main([*argv, str(path), "--no-float"]) == 1
    said = capsys.readouterr().err
    assert "operator 2 (SIN)" in said and "works in float32" in said


def test_no_float_takes_float32_at_the_ends(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.quantize(m.float_input((1, 8)), scale=0.1)
    m.output(m.dequantize(m.relu(x)))
    path = m.save(tmp_path / "model.tflite")
    assert utvm_deploy.compile(path, "host", allow_float=False).layers


@pytest.mark.parametrize(
    ("got", "expected", "bound", "wrong"),
    [
        ([1.0], [np.nextafter(np.float32(1), np.float32(2))], EXACT, 1),
        ([1.0], [np.nextafter(np.float32(1), np.float32(2))], Bound(ulps=1), 0),
        ([1.0], [1 + 3 * 2**-23], Bound(ulps=2), 1),
        ([0.0], [-0.0], EXACT, 1),
        ([np.nan], [-np.nan], EXACT, 0),
        ([np.nan], [1.0], Bound(relative=1.0), 1),
        ([np.inf], [3e38], Bound(relative=1.0), 1),
        ([np.inf], [np.inf], Bound(ulps=2), 0),
        ([100.0, 1e-4], [100.0, 0.0], Bound(relative=1e-5), 0),
        ([100.0, 1e-2], [100.0, 0.0], Bound(relative=1e-5), 1),
    ],
)
def test_what_is_outside_of_a_bound(
    got: list[float], expected: list[float], bound: Bound, wrong: int
) -> None:
    arrays: list[Array] = [np.array(one, np.float32) for one in (got, expected)]
    assert int(outside(bound, *arrays).sum()) == wrong


def test_a_core_without_fpu_gets_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = mixed_model().save(tmp_path / "model.tflite")
    utvm_deploy.compile(path, "mps2_an385")
    (said,) = [r.getMessage() for r in caplog.records if "floating-point unit" in r.getMessage()]
    assert "mps2_an385" in said and "2 of the operators" in said and "110 cycles" in said
    caplog.clear()
    utvm_deploy.compile(path, "mps2_an386")
    assert "floating-point unit" not in caplog.text


def two_islands() -> ModelWriter:
    """SIN and a product of two inputs in float32, and int8 between them."""
    m = mixed_model()
    again = m.dequantize(m.outputs.pop())
    shape = m.tensors[again].shape
    exponential = m.tensor(shape, "float32")
    m.operator("EXP", [again], [exponential])
    m.output(m.quantize(exponential, scale=0.1))
    return m


def test_inspect_marks_float_islands_with_their_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(two_islands().save(tmp_path / "model.tflite"))
    assert main(["inspect", path]) == 0
    said = capsys.readouterr().out
    assert "float32: 3 of 9 operators: 2 (SIN), 3 (MUL), 7 (EXP); 864 operations" in said
    assert "float island 1: 2 (SIN), 3 (MUL); 0 MACs, 576 operations, 2 conversions" in said
    assert "float island 2: 7 (EXP); 0 MACs, 288 operations, 2 conversions at its ends" in said
    assert main(["inspect", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["float_islands"] == [
        {"operators": [2, 3], "conversions": [1, 4], "macs": 0, "operations": 576},
        {"operators": [7], "conversions": [6, 8], "macs": 0, "operations": 288},
    ]
    marked = [(o["float_island"], o["float_operations"]) for o in facts["operators"]]
    none = (None, None)
    assert marked == [none, none, (1, 288), (1, 288), none, none, none, (2, 288), none]


def test_inspect_counts_products_and_pools_of_float32(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.input((1, 6, 6, 4))
    y = m.conv2d(x, RNG.normal(size=(8, 3, 3, 4)), RNG.normal(size=8))
    y = m.max_pool(y, window=2, stride=2)
    m.output(m.reshape(y, (1, 72)))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    (island,) = float_islands(graph)
    assert [float_operations(graph, one) for one in graph.operators] == [
        2 * 36 * 8 * 36,
        72 * 4,
        0,
    ]
    assert island.macs == 36 * 8 * 36 and island.conversions == ()
