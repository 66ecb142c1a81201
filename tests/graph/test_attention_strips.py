"""Attention in strips of rows of its matrices: the same bytes, and never all of the scores."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attention_net import AttentionNet
from graph_interpreter import run_graph
from host_model import HostModel
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.budgets import Budget
from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.compiler.stages.request import Watch
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.graph.strips.chains import Chain, chain_ends, rows_of_matrix
from utvm_deploy.graph.strips.matrix_rows import attention_in_one_run
from utvm_deploy.graph.strips.writer import in_strips

NETS = (
    AttentionNet(),
    AttentionNet(mask="rows", adj_y=True),
    AttentionNet(mask="columns", late=True, hidden=64),
    AttentionNet(mask="select", heads=4, shared=1, width=64),
)


def graph_of(net: AttentionNet, folder: Path) -> Graph:
    return attention_in_one_run(simplify(load_model(net.written().save(folder / "net.tflite"))))


def chains_of(graph: Graph) -> list[tuple[int, int]]:
    positions = range(len(graph.operators))
    return [(f, last) for f in positions for last in chain_ends(graph, f, of_matrices=True)]


def attention_of(graph: Graph, rows: int) -> Chain:
    """From the first product of two computed matrices to the second."""
    first, last = (i for i, one in enumerate(graph.operators) if one.kind == "BATCH_MATMUL")
    assert (first, last) in chains_of(graph)
    return Chain(first, last, Fraction(rows), matrix=rows_of_matrix(graph, first, last))


@pytest.mark.tools
@pytest.mark.parametrize(("number", "rows"), [(0, 8), (1, 7), (2, 24), (3, 5)])
def test_the_bytes_are_those_of_the_whole_layers(number: int, rows: int, tmp_path: Path) -> None:
    graph = graph_of(NETS[number], tmp_path)
    cut = in_strips(graph, attention_of(graph, rows))
    check_graph(cut)
    made = [one for one in cut.operators if one.kind == "SOFTMAX"]
    sizes = [cut.tensors[one.outputs[0]].size_bytes for one in made]
    assert max(sizes) == rows * NETS[number].window
    assert sum(sizes) == NETS[number].heads * NETS[number].window ** 2
    rng = np.random.default_rng(number)
    shapes = [graph.tensors[tensor].shape for tensor in graph.inputs]
    arrays = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    outputs = []
    for name, one in (("whole", graph), ("cut", cut)):
        compiled = compile_model(one, load_board("host"), CompileOptions(name=name))
        outputs.append(HostModel(compiled, tmp_path).run(arrays)[0])
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert outputs[0].std() > 10


@pytest.mark.parametrize(
    ("left", "right", "values"),
    [
        ((1, 1, 5, 4), (1, 2, 4, 6), (1, 1, 6, 3)),  # one left side for two right ones
        ((5, 4), (2, 4, 6), (2, 6, 3)),
        ((1, 4), (4, 6), (6, 3)),  # one row
    ],
)
def test_sides_with_fewer_matrices_are_cut_by_the_same_rows(
    left: tuple[int, ...], right: tuple[int, ...], values: tuple[int, ...], tmp_path: Path
) -> None:
    m, options = ModelWriter(), ("BatchMatMulOptions", {})
    outer = np.broadcast_shapes(left[:-2], right[:-2])
    sides = [m.input(left), m.input(right)]
    scores = m.node("BATCH_MATMUL", sides, (*outer, left[-2], right[-1]), options, scale=0.4)
    sides = [m.softmax(scores), m.input(values)]
    m.output(m.node("BATCH_MATMUL", sides, (*outer, left[-2], values[-1]), options))
    graph = load_model(m.save(tmp_path / "net.tflite"))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, shape).astype(np.int8) for shape in (left, right, values)]
    whole = run_graph(graph, arrays)[graph.outputs[0]]
    for first, last in chains_of(graph):
        rows = Fraction(2 if left[-2] > 1 else 1)
        matrix = rows_of_matrix(graph, first, last)
        cut = in_strips(graph, Chain(first, last, rows, matrix=matrix))
        check_graph(cut)
        np.testing.assert_array_equal(run_graph(cut, arrays)[cut.outputs[0]], whole)


def test_the_other_side_of_a_product_is_never_cut(tmp_path: Path) -> None:
    """V is no part of the chain, so it is computed before, and the scores after it."""
    net = AttentionNet(late=True)
    graph = simplify(load_model(net.written().save(tmp_path / "net.tflite")))
    ordered = attention_in_one_run(graph)
    kinds = ["BATCH_MATMUL", "SOFTMAX", "BATCH_MATMUL"]
    at = [one.kind for one in ordered.operators].index("BATCH_MATMUL")
    assert [one.kind for one in ordered.operators[at : at + 3]] == kinds
    assert [one.kind for one in graph.operators[at : at + 3]] != kinds
    check_graph(ordered)
    projections = [i for i, one in enumerate(ordered.operators) if one.kind == "TRANSPOSE"]
    assert not any(first in projections for first, _ in chains_of(ordered))


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_a_budget_below_the_scores_is_met(kind: str, tmp_path: Path) -> None:
    net = AttentionNet(window=96, width=16, mask="rows", is_float=kind == "float32")
    scores = net.heads * net.window**2 * np.dtype(kind).itemsize
    path = net.written().save(tmp_path / "net.tflite")
    for budget in (scores, 10**6):
        options = CompileOptions(budget=Budget(ram=budget))
        compiled = compile_model(path, load_board("mps2_an500"), options)
        assert compiled.tradeoff is not None
        assert (compiled.tradeoff.streamed > 0) == (budget == scores)
        assert (compiled.arena_bytes <= scores) == (budget == scores)


@pytest.mark.tools
@pytest.mark.parametrize(("on", "number"), [("host", 2), ("host", 3), ("mps2_an500", 1)])
def test_every_strip_is_verified(
    on: str, number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = replace(NETS[number], mask="rows") if number == 3 else NETS[number]
    path = net.written().save(tmp_path / "net.tflite")
    least = "6144" if number == 3 else "3900"
    argv = ["verify", str(path), "--board", on, "--samples", "2", "--ram-budget", least]
    assert main(argv) == 0, capsys.readouterr().out


def test_a_net_that_fits_only_in_strips_is_not_refused(tmp_path: Path) -> None:
    path = AttentionNet(window=96, width=32).written().save(tmp_path / "net.tflite")
    asked: list[bool] = []
    watch = Watch(check_needs=lambda needs: asked.append(needs.is_least))
    compile_model(path, load_board("mps2_an500"), watch=watch)
    assert True not in asked
    options = CompileOptions(whole_layers=True)
    compile_model(path, load_board("mps2_an500"), options, watch=watch)
    assert True in asked


def test_level_time_cuts_the_attention_of_all_blocks_where_that_hardly_costs(
    tmp_path: Path,
) -> None:
    net = AttentionNet(window=96, width=32, blocks=2)
    path = net.written().save(tmp_path / "net.tflite")
    scores = net.heads * net.window**2
    board = load_board("mps2_an500")
    cut = compile_model(path, board)
    assert cut.arena_bytes < scores
    strips = {layer.operators for layer in cut.layers if layer.outputs[0].rows is not None}
    assert len([one for one in layers_of_file(cut.layers) if one.is_streamed]) == len(strips) == 6
    whole = compile_model(path, board, CompileOptions(whole_layers=True))
    assert whole.arena_bytes > scores
