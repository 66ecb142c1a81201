"""Weights of float16 and of integers behind DEQUANTIZE become float32 constants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter
from kernel_harness import check

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend import stored_weights
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.element_type import element_type

RNG = np.random.default_rng(16)


def convolved(m: FloatWriter, weights: int, bias: int) -> None:
    """A convolution as a converter writes it: weights and bias come out of DEQUANTIZE."""
    x = m.input((1, 6, 6, 3))
    fields = {"Padding": 0, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 1}
    fields |= {"DilationHFactor": 1, "DilationWFactor": 1}
    m.output(m.node("CONV_2D", [x, weights, bias], (1, 6, 6, 4), ("Conv2DOptions", fields)))


def halves(m: FloatWriter) -> tuple[int, int]:
    weights = RNG.normal(size=(4, 3, 3, 3)).astype(np.float16)
    weights[0, 0, 0] = (6e-8, -0.0, 65504)  # the least, and the largest
    return m.widened(weights), m.widened(RNG.normal(size=4).astype(np.float16))


def integers(m: FloatWriter) -> tuple[int, int]:
    weights = RNG.integers(-128, 127, (4, 3, 3, 3)).astype(np.int8)
    return m.widened(weights, 0.013, 3), m.constant(RNG.normal(size=4).astype(np.float32))


def halves_of_bytes(m: FloatWriter) -> tuple[int, int]:
    """As ``weight_only_wi4_afp32`` of ai-edge-quantizer writes them."""
    values = RNG.integers(-8, 8, (4, 3, 3, 3)).astype(np.int8)
    weights = m.widened(values, [0.5, 0.25, 0.125, 0.1])
    m.tensors[-2].dtype, m.tensors[-2].data = "int4", element_type("int4").packed(values)
    return weights, m.constant(RNG.normal(size=4).astype(np.float32))


@pytest.mark.tools
@pytest.mark.parametrize("stored", [halves, integers, halves_of_bytes])
def test_results_are_those_of_the_reference(
    stored: Callable[[FloatWriter], tuple[int, int]], tmp_path: Path
) -> None:
    m = FloatWriter()
    convolved(m, *stored(m))
    assert check(m, tmp_path, simplified=True) == 1  # no DEQUANTIZE is left
    graph = load_model(tmp_path / "model.tflite")
    assert all(tensor.dtype == "float32" for tensor in graph.tensors)


def test_scales_of_channels_count(tmp_path: Path) -> None:
    m = FloatWriter()
    weights = RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8)
    scales = [0.5, 0.25, 0.125, 0.1]
    convolved(m, m.widened(weights, scales), m.constant(np.zeros(4, np.float32)))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    number = graph.operators[0].inputs[1]
    assert number is not None
    wanted = weights * np.array(scales, np.float32).reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(graph.tensors[number].data, wanted)


def test_activations_of_float16_are_refused_by_name(tmp_path: Path) -> None:
    m = FloatWriter()
    x = m.tensor((1, 4), "float16", name="image")
    m.inputs.append(x)
    m.output(m.dequantize(x))
    with pytest.raises(UnsupportedOperator, match="tensor 'image' is float16, and only constants"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_many_names_for_the_same_bytes_are_not_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_weights, "MAX_WIDENED", 111)
    m = FloatWriter()
    convolved(m, *halves(m))
    with pytest.raises(ModelError, match=r"operator 1 .*more than 111 elements as float32"):
        load_model(m.save(tmp_path / "model.tflite"))
