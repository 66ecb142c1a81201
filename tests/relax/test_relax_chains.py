"""Chains of Relax operators become one of our operators, with the values that they had."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import utvm_deploy
from utvm_deploy.frontend.relax.road import relax_graph, relax_model
from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Graph
from utvm_deploy.oracle import relax_reference

# TVM is a compiler, too: its passes over a function take tenths of a second.
pytestmark = pytest.mark.tools

RNG = np.random.default_rng(41)
Build = Callable[[Any], Any]


def constant(*shape: int) -> Any:
    return relax.const((RNG.standard_normal(shape) * 0.5).astype(np.float32))


def module(shape: tuple[int, ...], *steps: Build) -> tvm.IRModule:
    """The operators one after the other, of one input ``x``."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for step in steps[:-1]:
                value = builder.emit(step(value))
            value = builder.emit_output(steps[-1](value))
        builder.emit_func_output(value)
    return builder.get()


def convolution(weights: tuple[int, ...], **options: Any) -> Build:
    return lambda x: relax.op.nn.conv2d(x, constant(*weights), **options)


def kinds(graph: Graph) -> list[str]:
    moves = ("CALL_TIR", "RESHAPE")
    return [operator.kind for operator in graph.operators if operator.kind not in moves]


IMAGE = (1, 4, 9, 7)
RELU = relax.op.nn.relu
CASES: dict[str, tuple[tuple[int, ...], list[Build], list[str]]] = {
    "bias and relu": (
        IMAGE,
        [convolution((6, 4, 3, 3)), lambda x: relax.op.add(x, constant(1, 6, 1, 1)), RELU],
        ["CONV_2D"],
    ),
    "batch normalization": (
        IMAGE,
        [
            convolution((6, 4, 3, 3), padding=(1, 1)),
            lambda x: relax.op.nn.batch_norm(
                x,
                constant(6),
                constant(6),
                constant(6),
                relax.const(np.linspace(0.5, 2, 6, dtype=np.float32)),
                axis=1,
            ),
            lambda x: relax.TupleGetItem(x, 0),
        ],
        ["CONV_2D"],
    ),
    "uneven padding, strides, dilation": (
        IMAGE,
        [convolution((3, 4, 3, 2), padding=(2, 0, 1, 3), strides=(2, 1), dilation=(1, 2))],
        ["CONV_2D"],
    ),
    "depthwise": (
        IMAGE,
        [convolution((8, 1, 3, 3), groups=4, padding=(1, 1)), RELU],
        ["DEPTHWISE_CONV_2D"],
    ),
    "groups": (IMAGE, [convolution((6, 2, 1, 3), groups=2)], ["CONV_2D"]),
    "relu6 of a scaled product": (
        (2, 5),
        [
            lambda x: relax.op.matmul(x, constant(5, 3)),
            lambda x: relax.op.multiply(constant(3), x),
            lambda x: relax.op.subtract(x, constant(3)),
            lambda x: relax.op.divide(x, relax.const(np.float32(0.25))),
            lambda x: relax.op.clip(x, 0.0, 6.0),
        ],
        ["FULLY_CONNECTED"],
    ),
    "nothing behind an activation": (
        (2, 5),
        [
            lambda x: relax.op.matmul(x, constant(5, 3)),
            RELU,
            lambda x: relax.op.add(x, constant(3)),
        ],
        ["FULLY_CONNECTED"],
    ),
    "a constant minus a product": (
        (2, 5),
        [
            lambda x: relax.op.matmul(x, constant(5, 3)),
            lambda x: relax.op.subtract(constant(3), x),
        ],
        ["FULLY_CONNECTED"],
    ),
    "a product that is wider afterwards": (
        (1, 5),
        [
            lambda x: relax.op.matmul(x, constant(5, 3)),
            lambda x: relax.op.add(x, constant(4, 3)),
        ],
        ["FULLY_CONNECTED"],
    ),
    "pools": (
        IMAGE,
        [
            convolution((4, 4, 1, 1)),
            lambda x: relax.op.nn.max_pool2d(x, (3, 2), strides=(2, 2), padding=(1, 0)),
            lambda x: relax.op.nn.avg_pool2d(x, (2, 2), padding=(1, 1), count_include_pad=False),
        ],
        ["CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"],
    ),
    "a pool that counts its padding": (
        IMAGE,
        [
            convolution((4, 4, 1, 1)),
            lambda x: relax.op.nn.avg_pool2d(x, (2, 2), padding=(1, 1), count_include_pad=True),
        ],
        ["CONV_2D"],
    ),
    "a pool beyond its image": (
        IMAGE,
        [
            convolution((4, 4, 1, 1)),
            lambda x: relax.op.nn.max_pool2d(x, (2, 2), strides=(2, 2), ceil_mode=True),
        ],
        ["CONV_2D"],
    ),
    "one dimension": (
        (1, 4, 11),
        [lambda x: relax.op.nn.conv1d(x, constant(6, 4, 3), padding=1, strides=2), RELU],
        ["CONV_2D"],
    ),
}


@pytest.mark.parametrize(("shape", "steps", "expected"), CASES.values(), ids=CASES)
def test_a_chain(shape: tuple[int, ...], steps: list[Build], expected: list[str]) -> None:
    """The graph, computed layer by layer, equals the module as it was given."""
    model = relax_model(module(shape, *steps))
    graph = relax_graph(model, "chain")
    assert kinds(graph) == expected
    x = RNG.standard_normal(shape).astype(np.float32)
    whole = relax_reference.whole_module(model)(x)
    layers = relax_reference.layers(graph, [x])
    np.testing.assert_allclose(layers[graph.outputs[0]], whole[0], rtol=1e-5, atol=2e-6)


def row_bias(x: Any) -> Any:
    return relax.op.add(x, constant(1, 6, 1))


@pytest.mark.parametrize(
    ("shape", "steps", "padding"),
    [
        (
            (1, 4, 11),
            [
                lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 4, 1]),
                lambda x: relax.op.nn.conv1d(x, constant(6, 4, 3), padding=1, dilation=2),
                row_bias,
                RELU,
            ],
            (0, 0, 5, 2),
        ),
        (
            (1, 4, 5, 6),
            [
                lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 2, 0, 0, 1]),
                lambda x: relax.op.nn.conv2d(x, constant(6, 4, 3, 3), padding=1),
                lambda x: relax.op.add(x, constant(1, 6, 1, 1)),
                RELU,
            ],
            (3, 1, 1, 2),
        ),
    ],
)
def test_a_convolution_takes_the_zeros_around_its_image(
    shape: tuple[int, ...], steps: list[Build], padding: tuple[int, ...]
) -> None:
    """And a convolution of one row absorbs its bias and its activation, as other ones do."""
    model = relax_model(module(shape, *steps))
    graph = relax_graph(model, "chain")
    (convolution,) = (one for one in graph.operators if one.kind == "CONV_2D")
    assert isinstance(convolution.attributes, Convolution)
    assert convolution.attributes.padding == padding
    assert convolution.attributes.limits == (0.0, math.inf)
    x = RNG.standard_normal(shape).astype(np.float32)
    whole = relax_reference.whole_module(model)(x)
    layers = relax_reference.layers(graph, [x])
    np.testing.assert_allclose(layers[graph.outputs[0]], whole[0], rtol=1e-5, atol=2e-6)


def test_other_values_around_an_image_are_no_padding() -> None:
    steps = [
        lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 2, 1], pad_value=1.0),
        lambda x: relax.op.nn.conv1d(x, constant(6, 4, 3)),
    ]
    graph = relax_graph(relax_model(module((1, 4, 11), *steps)), "chain")
    (attributes,) = (one.attributes for one in graph.operators if one.kind == "CONV_2D")
    assert isinstance(attributes, Convolution)
    assert attributes.padding == (0, 0, 0, 0)


def test_a_product_with_two_readers_keeps_its_value() -> None:
    x = relax.Var("x", relax.TensorType((1, 5), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, constant(5, 3)))
            positive = builder.emit(relax.op.nn.relu(product))
            both = builder.emit_output(relax.op.add(product, positive))
        builder.emit_func_output(both)
    graph = utvm_deploy.from_relax(builder.get())
    assert [operator.kind for operator in graph.operators] == ["FULLY_CONNECTED", "CALL_TIR"]
