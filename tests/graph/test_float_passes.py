"""The passes on float32: what they merge, and that no bit changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attribute_values import FLOAT_MAX, NO_CLAMP, Limits
from utvm_deploy.graph.attributes import Convolution, Dequantize, Multiply, Pad, Quantize, Relu
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.passes.byte_tables import tabulate_bytes
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower

RNG = np.random.default_rng(17)
MARGINS = ((0, 0), (1, 2), (0, 1), (0, 0))


def convolution(path: Path, odd: float = 1.0, activation: str = "NONE") -> Graph:
    """A convolution of an image of 8x7 pixels; ``odd`` is one of its weights."""
    m = FloatWriter()
    weights = RNG.normal(size=(4, 3, 3, 2)).astype(np.float32)
    weights[0, 0, 0, 0] = odd
    bias = np.zeros(4, np.float32)
    x = m.input((1, 8, 7, 2))
    m.output(m.conv2d(x, weights, bias, padding="VALID", activation=activation))
    return load_model(m.save(path / "model.tflite"))


def padded(graph: Graph, value: float | None) -> Graph:
    """The graph with a PAD before its first operator."""
    (image,) = graph.inputs
    small = Tensor("small", (1, 5, 6, 2), "float32")
    number = len(graph.tensors)
    pad = Operator("PADV2", (number,), (image,), Pad(MARGINS, value), ())  # type: ignore[arg-type]
    return graph.replaced(
        tensors=(*graph.tensors, small), inputs=(number,), operators=(pad, *graph.operators)
    )


def limited(graph: Graph, *limits: Limits) -> Graph:
    """The graph with a RELU behind its last operator for each of these limits."""
    for one in limits:
        (before,) = graph.outputs
        number = len(graph.tensors)
        relu = Operator("RELU", (before,), (number,), Relu(NO_CLAMP, one), ())
        made = replace(graph.tensors[before], name="relu", source=None)
        graph = graph.replaced(
            tensors=(*graph.tensors, made), outputs=(number,), operators=(*graph.operators, relu)
        )
    return graph


@pytest.mark.parametrize("value", [None, 0.0, -0.0])
def test_a_convolution_pads_by_itself(value: float | None, tmp_path: Path) -> None:
    simple = simplify(padded(convolution(tmp_path), value))
    (only,) = simple.operators
    assert isinstance(only.attributes, Convolution)
    assert only.attributes.padding == (1, 2, 0, 1)


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_padding_stays_where_its_products_are_not_0(odd: float, tmp_path: Path) -> None:
    graph = padded(convolution(tmp_path, odd), 0.0)
    assert [one.kind for one in simplify(graph).operators] == ["PADV2", "CONV_2D"]


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_padding_with_other_values_stays(value: float, tmp_path: Path) -> None:
    graph = padded(convolution(tmp_path), value)
    assert [one.kind for one in simplify(graph).operators] == ["PADV2", "CONV_2D"]


def test_limits_of_several_operators_become_one(tmp_path: Path) -> None:
    """Values beyond one limit, zeros of both signs, and what is not a number, in both ways."""
    values = np.array([np.nan, -np.inf, -3, -0.0, 0.0, 0.5, 4, 9, np.inf, 3e38], np.float32)
    chains = (
        ("NONE", ((0.0, np.inf),)),
        ("RELU6", ((-1.0, 1.0), (0.0, np.inf))),
        ("RELU", ((0.0, 6.0),)),
        ("RELU_N1_TO_1", ((2.0, 6.0),)),
    )
    fused = []
    for activation, limits in chains:
        graph = limited(convolution(tmp_path, activation=activation), *limits)
        first = graph.operators[0].attributes
        (only,) = simplify(graph).operators
        assert isinstance(first, Convolution) and isinstance(only.attributes, Convolution)
        one_by_one = values
        for one in (first.limits, *limits):
            one_by_one = within(one_by_one, one)
        merged = within(values, only.attributes.limits)
        np.testing.assert_array_equal(merged.view(np.uint32), one_by_one.view(np.uint32))
        fused.append(only.attributes.limits)
    assert fused == [(0.0, FLOAT_MAX), (0.0, 1.0), (0.0, 6.0), (2.0, 2.0)]


def within(values: np.ndarray, limits: Limits) -> np.ndarray:
    """As the reference limits: std::min(std::max(value, least), most)."""
    assert limits is not None
    least, most = np.float32(limits[0]), np.float32(limits[1])
    values = np.where(values < least, least, values)
    return np.where(most < values, most, values)


def _pixel(states: tuple[tuple[int, int], ...] = ()) -> Graph:
    """One byte without dimensions: (x - 3) * 0.5, times 2, as int16."""
    step = Quantization((0.5,), (3,))
    two = np.full((), 2, np.float32)
    tensors = (
        Tensor("x", (), "uint8", step),
        Tensor("real", (), "float32"),
        Tensor("two", (), "float32", None, two),
        Tensor("twice", (), "float32"),
        Tensor("y", (), "int16", Quantization((0.5,), (0,))),
        Tensor("before", (), "float32"),
    )
    operators = (
        Operator("DEQUANTIZE", (0,), (1,), Dequantize(), (0,)),
        Operator("MUL", (1, 2), (3,), Multiply((-128, 127)), (1,)),
        Operator("QUANTIZE", (3,), (4,), Quantize(), (2,)),
    )
    return Graph("pixel", tensors, operators, (0,), (4,), "", states)


def test_a_byte_without_dimensions_has_a_table() -> None:
    graph = tabulate_bytes(_pixel())
    assert [one.kind for one in graph.operators] == ["LOOKUP"]
    assert lower(graph, graph.operators[0]).kernel.numbers == (1, 1, 1)


def test_what_a_state_keeps_is_computed() -> None:
    kinds = [one.kind for one in tabulate_bytes(_pixel(((5, 1),))).operators]
    assert kinds == ["DEQUANTIZE", "MUL", "QUANTIZE"]
