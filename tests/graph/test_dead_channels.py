"""Dead channels: what the analysis says holds, they go, and all other bytes stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graph_interpreter import run_graph
from small_models import int8
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.dead_channels import drop_dead_channels
from utvm_deploy.graph.intervals import intervals
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes import simplify

Rng = np.random.Generator
#: A bias that takes a sum to either end of the clamp, whatever the input is.
FAR = 1 << 22


def _bias(rng: Rng, channels: int, far: int) -> np.ndarray:
    """Biases of which the last ``far`` make their channels constant, at one end or the other."""
    bias = rng.integers(-200, 200, channels).astype(np.int32)
    bias[channels - far :] = FAR * rng.choice((-1, 1), far)
    return bias


def _chain(m: ModelWriter, rng: Rng, padding: str) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    x = m.conv2d(x, int8(rng, 12, 3, 3, 16), _bias(rng, 12, 5), padding=padding)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 12), _bias(rng, 5, 1)))


def _unpadded(m: ModelWriter, rng: Rng) -> None:
    _chain(m, rng, "VALID")


def _padded(m: ModelWriter, rng: Rng) -> None:
    _chain(m, rng, "SAME")


def _depthwise(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 4))
    x = m.depthwise_conv2d(x, int8(rng, 1, 3, 3, 16), _bias(rng, 16, 9))
    x = m.max_pool(x, 2)
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 16), _bias(rng, 5, 0)))


def _without_bias(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    m.output(m.conv2d(x, int8(rng, 5, 1, 1, 16), None))


def _unread(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 0))
    weights = int8(rng, 4, 3, 3, 16)
    weights[..., 3:11] = 0
    m.output(m.conv2d(x, weights, _bias(rng, 4, 0)))


def _two_readers(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    m.output(
        m.conv2d(x, int8(rng, 4, 1, 1, 16), _bias(rng, 4, 0)),
        m.conv2d(x, int8(rng, 4, 3, 3, 16), _bias(rng, 4, 0), padding="VALID"),
    )


def _output(m: ModelWriter, rng: Rng) -> None:
    x = m.conv2d(m.input((1, 6, 6, 3), 0.05, 9), int8(rng, 16, 1, 1, 3), _bias(rng, 16, 9))
    m.output(x, m.conv2d(x, int8(rng, 4, 1, 1, 16), None))


LOSING = (_unpadded, _depthwise, _unread, _two_readers)


def _graph(
    tmp_path: Path, build: Callable[[ModelWriter, Rng], None], seed: int
) -> tuple[Graph, Rng]:
    rng = np.random.default_rng(seed)
    writer = ModelWriter()
    build(writer, rng)
    path = tmp_path / "model.tflite"
    writer.save(path)
    return load_model(path), rng


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("build", (*LOSING, _padded, _without_bias, _output))
def test_every_channel_that_is_left_keeps_its_bytes(
    tmp_path: Path, build: Callable[[ModelWriter, Rng], None], seed: int
) -> None:
    graph, rng = _graph(tmp_path, build, seed)
    less = drop_dead_channels(graph)
    check_graph(less)
    assert (less is not graph) or build not in LOSING
    known = intervals(graph)
    for _ in range(3):
        image = rng.integers(-128, 128, graph.tensors[graph.inputs[0]].shape).astype(np.int8)
        values, fewer = run_graph(graph, [image]), run_graph(less, [image])
        for number, interval in known.items():
            assert (values[number] >= interval.low).all()
            assert (values[number] <= interval.high).all()
        by_source = {graph.tensors[number].source: values[number] for number in known}
        for number, tensor in enumerate(less.tensors):
            if tensor.data is None:
                expected = by_source[tensor.source]
                if tensor.channels is not None:
                    expected = expected[..., list(tensor.channels)]
                np.testing.assert_array_equal(fewer[number], expected)


def test_a_multiple_of_four_channels_is_left(tmp_path: Path) -> None:
    graph, _ = _graph(tmp_path, _unpadded, 0)
    less = simplify(graph)
    # 7 of 16 and 7 of 12 channels vary.
    assert [t.shape[-1] for t in less.tensors if t.channels is not None] == [8, 8]


def test_nothing_is_left_to_do(tmp_path: Path) -> None:
    less = simplify(_graph(tmp_path, _depthwise, 0)[0])
    assert drop_dead_channels(less) is less


def test_an_output_of_the_model_keeps_its_channels(tmp_path: Path) -> None:
    graph, _ = _graph(tmp_path, _output, 0)
    assert drop_dead_channels(graph) is graph
