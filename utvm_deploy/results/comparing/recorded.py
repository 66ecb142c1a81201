"""CMSIS-NN's figures without CMSIS-NN: rows that were recorded once, matched by layer shape.

The rows are in ``data/cmsis_nn_m7.csv``, whose head gives their origin. They are shown as recorded,
never as measured, and only with figures of the same unit on the same core.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from utvm_deploy.base.errors import BenchError
from utvm_deploy.boards.board import Board
from utvm_deploy.graph.attributes import Convolution
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.results.comparing.engines import EngineRun
from utvm_deploy.results.comparing.facts import RECORDED, Figures, LayerComparison, ModelComparison

ENGINE = "CMSIS-NN 99f736a6 (recorded: gcc 12.2 -O3, Cortex-M7, modelled where not instructions)"
#: The core that the rows are about.
CORE = "cortex-m7"
#: Cycles for each miss of the data cache in the configuration that the rows were modelled in.
MISS_CYCLES = 22


@dataclass(frozen=True)
class LayerShape:
    """What a recorded row is about: extents as text, rows first."""

    operator: str
    input: str
    kernel: str
    stride: str
    output: str


@dataclass(frozen=True)
class RecordedRow:
    """One recorded layer."""

    name: str
    figures: Figures


@cache
def recorded_rows() -> Mapping[LayerShape, RecordedRow]:
    """Every recorded layer by its shape."""
    file = resources.files(__package__).joinpath("data/cmsis_nn_m7.csv")
    lines = file.read_text(encoding="ascii").splitlines()
    rows = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        core = int(row["m7_core_cycles"])
        misses = int(row["dcache_misses_flash"]) + int(row["dcache_misses_ram"])
        shape = LayerShape(
            row["operator"], row["input"], row["kernel"], row["stride"], row["output"]
        )
        figures = {
            "instructions": int(row["instructions"]),
            "cycles": core + MISS_CYCLES * misses,
            "core": core,
        }
        rows[shape] = RecordedRow(row["layer"], figures)
    return rows


def layer_shape(graph: Graph, operator: Operator) -> LayerShape | None:
    """The shape by which an operator's row is found; None for kinds that were not recorded."""
    if operator.inputs[0] is None or operator.kind not in (
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
    ):
        return None
    source = graph.tensors[operator.inputs[0]].shape
    result = graph.tensors[operator.outputs[0]].shape
    assert operator.inputs[1] is not None
    weights = graph.tensors[operator.inputs[1]].shape
    if operator.kind == "FULLY_CONNECTED":
        outputs, inputs = weights
        rows = 1
        for extent in result:
            rows *= extent
        is_single = rows == outputs
        return LayerShape(operator.kind, str(inputs), "", "", str(outputs)) if is_single else None
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    if source[0] != 1 or attributes.dilations != (1, 1):
        return None
    return LayerShape(
        operator.kind,
        _extents(source[1:]),
        _extents(weights[1:3]),
        _extents(attributes.strides),
        _extents(result[1:]),
    )


def check_recorded_core(board: Board) -> None:
    """BenchError if the recorded figures are those of another core than the board's."""
    if board.cpu.core != CORE:
        raise BenchError(
            f"CMSIS-NN's recorded figures are those of a {CORE}, and {board.name} is a "
            f"{board.cpu.core}; give your own copy, built for it (--cmsis-nn DIR, or cmsis_nn=)"
        )


def compare_with_recorded(run: EngineRun, graph: Graph, inputs: str) -> ModelComparison:
    """Our figures with the recorded ones; ``graph`` is the simplified one of the same model."""
    found = run.profile
    unit = found.tick_unit
    rows = recorded_rows()
    by_source = {operator.sources: operator for operator in graph.operators}
    layers = []
    for one in found.layers:
        shape = layer_shape(graph, by_source[one.layer.operators])
        row = rows.get(shape) if shape else None
        ours = one.figures
        same = {name: row.figures[name] for name in ours if name in row.figures} if row else {}
        layers.append(
            LayerComparison(
                index=one.layer.index,
                kind=one.layer.kind,
                name=one.layer.name,
                macs=one.layer.macs,
                kernel=one.layer.kernel.removeprefix(f"{found.model}_"),
                ours=ours,
                theirs=same or None,
                their_kernel=row.name if row and same else "",
                output_bytes=sum(buffer.size_bytes for buffer in one.layer.outputs),
                differing_bytes=None,
            )
        )
    if not any(layer.theirs for layer in layers):
        raise BenchError(
            f"no layer of {found.model} has a recorded CMSIS-NN figure in {unit}; give your own "
            "copy of CMSIS-NN, built for the board's core (--cmsis-nn DIR, or cmsis_nn=)"
        )
    return ModelComparison(
        name=found.model,
        board=found.board,
        source=RECORDED,
        engine=ENGINE,
        inputs=inputs,
        layers=tuple(layers),
        ours=found.figures,
        theirs=None,
        our_size=run.size,
        their_size=None,
        our_placement=run.placement,
        their_placement=None,
        is_modelled=found.is_modelled,
    )


def _extents(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents))
