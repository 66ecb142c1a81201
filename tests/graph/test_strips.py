"""Chains of layers in strips of rows: the same bytes, no row twice, and only windows in memory."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from host_model import HostModel
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.graph.strips.chains import Chain, Strips, chain_ends
from utvm_deploy.graph.strips.writer import in_strips

PACES = (Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5))


def random_chain(seed: int, folder: Path) -> Graph:
    """Convolutions, depthwise ones, pools and an ADD with its skip, of random shapes."""
    rng = np.random.default_rng(seed)
    m = ModelWriter()
    channels = int(rng.choice([3, 4, 8, 16]))
    x = m.input((1, int(rng.integers(7, 25)), int(rng.integers(3, 12)), channels), 0.05, 3)
    for _ in range(int(rng.integers(2, 6))):
        height = m.tensors[x].shape[1]
        kind = rng.choice(["conv", "depthwise", "pool", "add"])
        span = int(rng.integers(1, min(height, 5) + 1))
        padding = str(rng.choice(["SAME", "VALID"]))
        columns = 1 if padding == "VALID" else 3
        stride = int(rng.integers(1, 3))
        if kind == "conv":
            made = int(rng.choice([4, 8, 16]))
            weights = rng.integers(-127, 128, (made, span, columns, channels), dtype=np.int8)
            bias = rng.integers(-500, 500, made)
            x = m.conv2d(x, weights, bias, stride=stride, padding=padding, scale=0.4)
            channels = made
        elif kind == "depthwise":
            weights = rng.integers(-127, 128, (1, span, columns, channels), dtype=np.int8)
            bias = rng.integers(-500, 500, channels)
            x = m.depthwise_conv2d(x, weights, bias, stride=stride, padding=padding, scale=0.4)
        elif kind == "pool":
            pool = m.average_pool if rng.integers(2) else m.max_pool
            x = pool(x, (span, columns), stride=stride, padding=padding)
        else:
            weights = rng.integers(-127, 128, (channels, 3, 3, channels), dtype=np.int8)
            bias = rng.integers(-500, 500, channels)
            y = m.conv2d(x, weights, bias, padding="SAME", scale=0.4)
            x = m.add(x, y, scale=0.5)
    if seed % 3 == 0:
        height, width = m.tensors[x].shape[1:3]
        x = m.average_pool(x, (height, width), padding="VALID")
    m.output(x)
    return simplify(load_model(m.save(folder / f"{seed}.tflite")))


def chains_of(graph: Graph) -> list[tuple[int, int]]:
    positions = range(len(graph.operators))
    return [(first, last) for first in positions for last in chain_ends(graph, first)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_made_once_and_is_there_when_it_is_read(seed: int, tmp_path: Path) -> None:
    graph = random_chain(seed, tmp_path)
    for first, last in chains_of(graph):
        for rows, parks in product(PACES, (False, True)):
            chain = Chain(first, last, rows, parks)
            streamed = in_strips(graph, chain)
            check_graph(streamed)
            made: dict[str, list[tuple[int, int]]] = {}
            for operator in streamed.operators:
                tensor = streamed.tensors[operator.outputs[0]]
                if tensor.rows and operator.kind not in ("MOVE", "SLICE", "CONCATENATION"):
                    made.setdefault(tensor.name.split("[")[0], []).append(tensor.rows)
            strips = Strips(graph, chain)
            for tensor in (graph.tensors[number] for number in strips.made):
                parts = made[tensor.name]
                assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
                assert parts[-1][1] <= tensor.shape[1]
            ends = [end for _, end in made[graph.tensors[strips.result].name]]
            assert ends[-1] == strips.height(strips.result)
            kinds = [operator.kind for operator in streamed.operators]
            assert ("POOL_AVERAGES" in kinds) == (strips.pool is not None)


@pytest.mark.tools
@pytest.mark.parametrize("seed", range(12))
def test_the_bytes_are_those_of_the_whole_layers(seed: int, tmp_path: Path) -> None:
    graph = random_chain(seed, tmp_path)
    found = chains_of(graph)
    rng = np.random.default_rng(seed)
    # The longest, which may end with an average over the image, or any other.
    first, last = found[-1] if seed % 3 == 0 else found[int(rng.integers(len(found)))]
    chain = Chain(first, last, PACES[seed % len(PACES)], parks=seed % 2 > 0)
    board = load_board("host")
    (tensor,) = graph.inputs
    image = rng.integers(-128, 128, graph.tensors[tensor].shape).astype(np.int8)
    outputs = []
    for number, one in enumerate((graph, in_strips(graph, chain))):
        compiled = compile_model(one, board, CompileOptions(name=f"m{number}"))
        outputs.append(HostModel(compiled, tmp_path).run([image])[0])
    np.testing.assert_array_equal(outputs[0], outputs[1])


def test_rows_out_of_the_way_leave_room_for_other_windows(tmp_path: Path) -> None:
    """Windows of four rows and more, of which later strips read two."""
    m = ModelWriter()
    x = m.input((1, 24, 8, 8), 0.05, 0)
    for _ in range(4):
        x = m.conv2d(x, np.ones((8, 3, 3, 8), np.int8), np.zeros(8, int), padding="SAME", scale=0.5)
    m.output(m.average_pool(x, (24, 8), padding="VALID"))
    graph = simplify(load_model(m.save(tmp_path / "m.tflite")))
    (last,) = {last for first, last in chains_of(graph) if first == 0 and last == 4}
    board, live, arenas = load_board("mps2_an500"), [], []
    for parks in (False, True):
        chain = Chain(0, last, Fraction(3), parks)
        strips = Strips(graph, chain)
        live.append(strips.live_bytes(strips.sources))
        streamed = in_strips(graph, chain)
        arenas.append(
            compile_model(
                streamed, board, CompileOptions(name="m", objective=Objective.SIZE)
            ).arena_bytes
        )
    assert live[1] < live[0] and arenas[1] < arenas[0]


def two_convolutions() -> tuple[ModelWriter, int, int]:
    m = ModelWriter()
    weights = np.ones((4, 3, 3, 4), np.int8)
    x = m.input((1, 8, 8, 4), 0.05, 0)
    y = m.conv2d(x, weights, np.zeros(4, int), padding="SAME", scale=0.5)
    return m, y, m.conv2d(y, weights, np.zeros(4, int), padding="SAME", scale=0.5)


def test_chains_end_where_a_row_depends_on_all_others(tmp_path: Path) -> None:
    m, _, z = two_convolutions()
    m.output(m.softmax(z))
    assert chains_of(simplify(load_model(m.save(tmp_path / "m.tflite")))) == [(0, 1)]


def test_a_tensor_that_others_read_stays_whole(tmp_path: Path) -> None:
    m, y, z = two_convolutions()
    m.output(y, z)
    assert chains_of(simplify(load_model(m.save(tmp_path / "m.tflite")))) == []


@pytest.mark.tools
def test_an_average_over_the_image_rounds_and_clamps_as_the_whole_pool(tmp_path: Path) -> None:
    """Sums of both signs whose halves are rounded away from zero; five channels, not four."""
    m = ModelWriter()
    x = m.input((1, 6, 2, 5), 0.05, 0)
    y = m.relu6(x, scale=0.05)
    y = m.average_pool(y, (6, 2), padding="VALID", activation="RELU")
    m.output(y)
    graph = simplify(load_model(m.save(tmp_path / "m.tflite")))
    (last,) = {last for _, last in chains_of(graph)}
    streamed = in_strips(graph, Chain(0, last, Fraction(1)))
    assert [operator.kind for operator in streamed.operators].count("POOL_SUMS") == 6
    rng = np.random.default_rng(1)
    board = load_board("host")
    models = [
        HostModel(compile_model(one, board, CompileOptions(name=f"m{number}")), tmp_path)
        for number, one in enumerate((graph, streamed))
    ]
    for _ in range(20):
        image = rng.integers(-128, 128, (1, 6, 2, 5)).astype(np.int8)
        whole, strips = (model.run([image])[0] for model in models)
        np.testing.assert_array_equal(whole, strips)
