"""What the head of a .tflite file may have: its outputs are those of the file, and it learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from test_train_verb import moved
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.device import Device
from utvm_deploy.frontend.files.given_shapes import with_chosen
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.frontend.training.of_graph import bounds_of
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.oracle.with_custom import run_oracle


def mobile(path: Path, extra: str = "") -> Path:
    """A float32 file with the operators of mobile nets behind its first convolution."""
    rng, m = np.random.default_rng(5), FloatWriter()

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    def two(kind: str, a: int, b: int) -> int:
        options = (f"{kind.title()}Options", {"FusedActivationFunction": 0})
        return m.node(kind, [a, b], m.tensors[a].shape, options)

    x = m.conv2d(m.input((1, 6, 6, 2)), drawn(4, 3, 3, 2), drawn(4), activation="RELU6")
    if extra:
        x = m.node(extra, [x], m.tensors[x].shape)
    y = m.node("HARD_SWISH", [m.pad(x, [(0, 0), (1, 0), (0, 1), (0, 0)])], (1, 7, 7, 4))
    y = m.depthwise_conv2d(y, drawn(1, 2, 2, 4), drawn(4), padding="VALID")
    y = two("MUL", m.node("LEAKY_RELU", [y], (1, 6, 6, 4), ("LeakyReluOptions", {"Alpha": 0.1})), x)
    y = m.node(
        "CONCATENATION",
        [y, m.relu6(two("SUB", x, y))],
        (1, 6, 6, 8),
        ("ConcatenationOptions", {"Axis": 3, "FusedActivationFunction": 0}),
    )
    ends = [m.constant(np.array(one, np.int32)) for one in ((0, 0, 0, 1), (1, 6, 6, 6))]
    y = m.max_pool(m.node("SLICE", [y, *ends], (1, 6, 6, 6), ("SliceOptions", {})), 2)
    y = m.node("GELU", [y], (1, 3, 3, 6), ("GeluOptions", {"Approximate": True}))
    ends = [
        m.constant(np.array((*one, n), np.int32)) for one, n in (((0, 0, 0), 0), ((1, 3, 3), 6))
    ]
    ends.append(m.constant(np.array((1, 1, 1, 2), np.int32)))
    y = m.node("STRIDED_SLICE", [y, *ends], (1, 3, 3, 3), ("StridedSliceOptions", {}))
    order = m.constant(np.array([0, 3, 1, 2], np.int32))
    y = m.node("TRANSPOSE", [y, order], (1, 3, 3, 3), ("TransposeOptions", {}))
    m.output(m.fully_connected(m.reshape(y, (1, 27)), drawn(3, 27), drawn(3)))
    return m.save(path)


def test_the_operators_of_mobile_nets_train(tmp_path: Path, host: Device) -> None:
    path = tmp_path / "int8.tflite"
    given = np.random.default_rng(0).standard_normal((20, 6, 6, 2)).astype(np.float32)
    utvm_deploy.quantize(mobile(tmp_path / "net.tflite"), given).save(path)
    made = utvm_deploy.trainable(path, layers="all", rate=0.01)
    assert len(made.weights) == 6
    weights = moved(made)
    model = host.load(utvm_deploy.compile(made.begun_with(weights), "host"))
    # LiteRT computes the file with these weights as the train step does.
    with with_chosen(weights=weights):
        inputs = random_samples(load_model(path), 3).inputs
        wanted = run_oracle(path, inputs, outputs_only=True).outputs
    for x, (right,) in zip(inputs, wanted, strict=True):
        ((found,), _) = model.run(x)
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    losses = [model.train_step(inputs[0], [1])[0] for _ in range(5)]
    assert losses[-1] < losses[0]
    model.unload()


ACTIVATIONS = {"NONE": (-np.inf, np.inf), "RELU": (0, np.inf), "RELU_N1_TO_1": (-1, 1)}
ACTIVATIONS["RELU6"] = (0, 6)


def one_layer(
    path: Path, activation: str, dtype: str, scale: float, zero_point: int
) -> tuple[Path, float]:
    """A file of one dense layer, whose output has this quantization; and its input's scale."""
    rng, m = np.random.default_rng(3), ModelWriter()
    step = 0.1 if dtype == "int8" else 1e-3
    x = m.tensor((1, 4), dtype, step, name="x")
    m.inputs.append(x)
    weights = rng.integers(-127, 128, (16, 4)).astype(np.int8)
    given = {"activation": activation, "scale": scale, "zero_point": zero_point}
    m.output(m.fully_connected(x, weights, np.zeros(16, np.int64), weight_scale=0.02, **given))
    return m.save(path), step


@pytest.mark.parametrize(
    ("activation", "dtype", "scale", "zero_point", "means"),
    [
        # 6 is the last of the integers, or beyond them.
        ("RELU6", "int8", 6 / 255, -128, "RELU6"),
        ("RELU6", "int8", 3 / 255, -128, "RELU6"),
        ("RELU6", "int8", 0.1, 3, "RELU6"),
        ("RELU", "int8", 0.1, 3, "RELU"),
        ("RELU_N1_TO_1", "int8", 0.1, 3, "RELU_N1_TO_1"),
        ("NONE", "int8", 0.1, 3, "NONE"),
        ("NONE", "int8", 0.1, -128, "RELU"),
        ("RELU6", "int16", 1e-4, 0, "RELU6"),
        ("NONE", "int16", 1e-4, 0, "NONE"),
    ],
)
def test_the_bounds_of_a_float_head(
    activation: str, dtype: str, scale: float, zero_point: int, means: str, tmp_path: Path
) -> None:
    path, _ = one_layer(tmp_path / "net.tflite", activation, dtype, scale, zero_point)
    graph = load_model(path)
    found = bounds_of(graph.operators[0].attributes, graph.tensors[graph.outputs[0]])
    np.testing.assert_allclose(found, ACTIVATIONS[means], rtol=1e-6)


@pytest.mark.parametrize(
    ("activation", "dtype", "scale", "zero_point", "means"),
    [
        ("NONE", "int8", 0.1, -128, "RELU"),
        ("RELU_N1_TO_1", "int16", 1e-4, 0, "RELU_N1_TO_1"),
    ],
)
def test_a_float_head_keeps_the_activation(
    activation: str,
    dtype: str,
    scale: float,
    zero_point: int,
    means: str,
    tmp_path: Path,
    host: Device,
) -> None:
    path, step = one_layer(tmp_path / "net.tflite", activation, dtype, scale, zero_point)
    made = utvm_deploy.trainable(path, loss="mse", layers="all")
    moved_weights = moved(made)
    model = host.load(utvm_deploy.compile(made.begun_with(moved_weights), "host"))
    inputs = random_samples(load_model(path), 2).inputs
    with with_chosen(weights=moved_weights):
        wanted = run_oracle(path, inputs, outputs_only=True).outputs
    matrix, bias = moved_weights.arrays()
    for sample, (right,) in zip(inputs, wanted, strict=True):
        ((found,), _) = model.run(sample)
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
        plain = sample[0].astype(float) * step @ matrix + bias
        np.testing.assert_allclose(found, np.clip(plain, *ACTIVATIONS[means]), atol=1e-3)
        assert np.abs(plain).max() > 7
    model.unload()


def test_what_has_no_gradient_is_named_with_its_place(tmp_path: Path) -> None:
    path = mobile(tmp_path / "net.tflite", "FLOOR")
    with pytest.raises(UnsupportedOperator, match=r"FLOOR.* has no gradient; train only layers"):
        utvm_deploy.trainable(path, layers="all")
    assert len(utvm_deploy.trainable(path, layers=[-2, -1]).weights) == 4
