"""Weights are rounded, and biases corrected, by what the samples say about the inputs of layers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.facts import INT16X8, Recipe
from utvm_deploy.quality.quantizing.sqnr import sqnr_db
from utvm_deploy.quality.quantizing.tflite.bias import correct_biases
from utvm_deploy.quality.quantizing.tflite.calibrate import float_values, observe, outputs_of
from utvm_deploy.quality.quantizing.tflite.child import computed_tensors, quantized
from utvm_deploy.quality.quantizing.tflite.layers import Inputs, pairs_of
from utvm_deploy.quality.quantizing.tflite.prepare import prepared
from utvm_deploy.quality.quantizing.tflite.rounding import Rounding

pytestmark = [
    pytest.mark.tools,
    # ai-edge-quantizer runs the float model itself, in this process.
    pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors"),
]

RNG = np.random.default_rng(11)
CALIBRATION, HELD_OUT = 24, 24


def _weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.2, shape).astype(np.float32)


def _conv(w: FloatWriter, x: int, **options: Any) -> int:
    return w.conv2d(x, _weights(6, 3, 3, 4), _weights(6), **options)


LAYERS = {
    "conv": lambda w, x: _conv(w, x),
    "conv, strides 2 and 1, dilation": lambda w, x: _conv(w, x, stride=(2, 1), dilation=(1, 2)),
    "conv, VALID": lambda w, x: _conv(w, x, padding="VALID", stride=2),
    "conv of 2 groups": lambda w, x: w.conv2d(x, _weights(6, 3, 2, 2), _weights(6)),
    "depthwise": lambda w, x: w.depthwise_conv2d(x, _weights(1, 3, 3, 4), _weights(4), stride=2),
    "depthwise, two for each": lambda w, x: w.depthwise_conv2d(
        x, _weights(1, 3, 2, 8), _weights(8)
    ),
    "dense": lambda w, x: w.fully_connected(x, _weights(5, 16), _weights(5)),
}


def _begin(seed: int) -> None:
    """From here on the numbers are those of the seed, whichever tests ran before."""
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state


def _model(layer: str) -> bytes:
    """A float model of one layer, ready to be quantized."""
    w = FloatWriter()
    w.output(LAYERS[layer](w, w.input((1, 8, 8, 4))))
    return prepared(w.to_bytes())


@pytest.fixture(params=LAYERS)
def model(request: pytest.FixtureRequest) -> bytes:
    """Of each layer in turn."""
    _begin(11)
    return _model(request.param)


def _pictures(count: int) -> np.ndarray:
    """Positive values whose neighbors are alike, as in pictures."""
    coarse = RNG.uniform(0, 4, (count, 1, 3, 3, 4))
    return np.asarray(coarse.repeat(3, axis=2).repeat(3, axis=3)[:, :, :8, :8], np.float32)


def _seen(data: bytes, samples: np.ndarray) -> Inputs:
    return Inputs(schema.read_model(data), lambda: float_values(data, [samples]))


def test_rows_times_weights_are_the_layer(model: bytes) -> None:
    samples = _pictures(2)
    seen = _seen(model, samples)
    (layer,) = seen.layers.values()
    source = schema.read_model(model)
    bias = schema.constant(
        source, source.subgraphs[0].tensors[source.subgraphs[0].operators[0].inputs[2]]
    )
    assert bias is not None
    (outputs,) = outputs_of(model, [samples])
    for sample, output in zip(samples, outputs, strict=True):
        rows = layer.rows(sample.astype(np.float64))
        assert rows is not None
        weights = layer.by_group(layer.weights, sample.shape[-1])
        np.testing.assert_array_equal(layer.from_groups(weights), layer.weights)
        made = np.matmul(rows, weights.swapaxes(1, 2))  # (groups, rows, outputs of a group)
        by_channel = made.swapaxes(0, 1).reshape(rows.shape[1], -1) + bias
        np.testing.assert_allclose(
            by_channel, output.reshape(by_channel.shape), rtol=1e-4, atol=1e-4
        )


class _Nearest(Rounding):
    """Leaves the weights at the nearest steps."""

    def run(self, model: Any, narrowed: Collection[str] = ()) -> None:
        """Change nothing."""


def _made(data: bytes, samples: np.ndarray, kind: type[Rounding]) -> bytes:
    job = {"kept": 1, "held_out": 0, "positions": None}
    observed, _ = observe(data, [samples], job, lambda done, total: None)
    computed = computed_tensors(schema.read_model(data))
    known = {name: one for name, one in observed.all.items() if name in computed}
    seen = _seen(data, samples)
    return quantized(data, known, Recipe(INT16X8), seen, kind(seen))[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_other_samples_gain(layer: str) -> None:
    gains = []
    for seed in range(1, 5):  # one draw alone gains up to 4 dB, or nothing
        _begin(seed)
        model, samples, others = _model(layer), _pictures(CALIBRATION), [_pictures(HELD_OUT)]
        (real,) = outputs_of(model, others)
        found = []
        for kind in (_Nearest, Rounding):
            (output,) = outputs_of(_made(model, samples, kind), others)
            found.append(sqnr_db(real, output) or 0)
        gains.append(found[1] - found[0])
    assert np.mean(gains) > 1


def test_the_bias_takes_the_mean_error(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = _pictures(CALIBRATION)
    (real,) = outputs_of(model, [samples])
    offs = []
    for is_corrected in (False, True):
        if not is_corrected:
            child = "utvm_deploy.quality.quantizing.tflite.child"
            monkeypatch.setattr(f"{child}.correct_biases", _no_change)
        (output,) = outputs_of(_made(model, samples, _Nearest), [samples])
        monkeypatch.undo()
        error = (output - real).reshape(-1, real.shape[-1])
        offs.append(float(np.abs(error.mean(axis=0)).max()))
    without, corrected = offs
    assert corrected < without / 4


def _no_change(_model: Any, _inputs: Inputs) -> None:
    """In place of ``correct_biases``."""


def test_shared_weights_and_an_input_of_zeros_stay() -> None:
    weights, bias = _weights(4, 4), _weights(4)
    w = FloatWriter()
    x = w.input((1, 4))
    w.output(w.fully_connected(w.fully_connected(x, weights, bias), weights, bias))
    model = schema.read_model(prepared(w.to_bytes()))
    first, second = model.subgraphs[0].operators
    second.inputs[1] = first.inputs[1]
    data = schema.model_bytes(model)
    zeros = np.zeros((CALIBRATION, 1, 4), np.float32)
    made = schema.read_model(_made(data, zeros, Rounding))
    seen = _seen(data, zeros)
    assert list(pairs_of(made, seen.layers)) == []
    before = schema.model_bytes(made)
    correct_biases(made, seen)
    assert schema.model_bytes(made) == before


def test_channels_that_are_always_zero() -> None:
    w = FloatWriter()
    w.output(w.depthwise_conv2d(w.input((1, 8, 8, 4)), _weights(1, 3, 3, 4), _weights(4)))
    data = prepared(w.to_bytes())
    samples = _pictures(CALIBRATION)
    samples[..., 2] = 0
    (real,) = outputs_of(data, [samples])
    (output,) = outputs_of(_made(data, samples, Rounding), [samples])
    found = sqnr_db(real, output)
    assert found is not None and found > 40
