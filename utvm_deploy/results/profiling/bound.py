"""The least that a layer can cost on a core: what SMLAD and loads allow.

With the numbers of the timing table (targets/*/timing*.py) and of the board file:

    multiply = MACs / MACs an instruction does * cycles of MLA / multiplications a cycle
    load     = ceil((input bytes + weight bytes) / bytes a load) * cycles of a load / loads a cycle
    store    = ceil(output bytes / bytes a store) * cycles of a store / stores a cycle
    issue    = (multiplications, loads and stores, all as cycles) / instructions a cycle
    core     = the largest of the four
    memory   = core + miss cycles * weight lines in flash that the data cache cannot have kept

The lines that stores allocate are left out: a kernel that spreads such stores never waits for them.

SMLAD does two MACs, MLA one. Where kernels get two products from one MUL (``Timing.products``),
that and an addition do two. VMLADAV does 16 in two cycles, which load 16 bytes. A load counts as
the second of two. A Winograd kernel multiplies less often than the sum has MACs. Each byte is
loaded once, which registers allow for no large layer. Spreading int8 to the 16 bits that SMLAD
wants is not counted: no kernel reaches this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.targets.contract.timing import Kind, Timing, Unit
from utvm_deploy.targets.emulator import CycleModel
from utvm_deploy.targets.table import TIMINGS


@dataclass(frozen=True)
class Bound:
    """The least cycles of one layer."""

    core: int
    memory: int
    limit: str  # what ``core`` comes from: multiply, load, store or issue


def layer_bounds(
    compiled: CompiledModel, graph: Graph, board: Board
) -> tuple[Bound | None, ...] | None:
    """A bound for each layer of the file, in strips or not; ``graph`` is its simplified graph.

    None for a core whose timing is not known.
    """
    timing = TIMINGS.get(board.cpu.core)
    if timing is None:
        return None
    by_source = {operator.sources: operator for operator in graph.operators}
    model = CycleModel.for_board(board)
    bounds = []
    for one in layers_of_file(compiled.layers, compiled.loops):
        layer = one.layer
        operator = by_source.get(layer.operators)
        bounds.append(
            None
            if operator is None or layer.npu_cycles is not None
            else bound(
                timing,
                model,
                macs_each=max(timing.products, 2 if board.cpu.dsp else 1),
                macs=sum(map(_products, one.calls)),
                input_bytes=sum(_input_bytes(graph, operator)),
                # Strips may have their weights in several orders.
                weight_bytes=max(call.weights_bytes for call in one.calls),
                output_bytes=sum(buffer.size_bytes for buffer in layer.outputs),
                resident_bytes=max(_resident_bytes(compiled, call) for call in one.calls),
            )
        )
    return tuple(bounds)


def _products(layer: Layer) -> int:
    """Multiplications of a layer's kernel."""
    return layer.macs if layer.products is None else layer.products


def _resident_bytes(compiled: CompiledModel, layer: Layer) -> int:
    """The weights of a layer that it reads from pools."""
    tables = (one for pool in compiled.pools for one in pool.residents)
    return sum(one.constant.size_bytes for one in tables if layer.index in one.layers)


def bound(
    timing: Timing,
    model: CycleModel,
    *,
    macs_each: int,
    macs: int,
    input_bytes: int,
    weight_bytes: int,
    output_bytes: int,
    resident_bytes: int = 0,
) -> Bound:
    """The formula above."""
    multiplications = _ceil(macs, macs_each) * timing.row(Kind.MULTIPLY_ADD).cycles
    load = timing.row(Kind.LOAD_WORD)
    loads = _ceil(input_bytes + weight_bytes, timing.access_bytes) * (
        load.pipelined_cycles or load.cycles
    )
    stores = _ceil(output_bytes, timing.access_bytes) * timing.row(Kind.STORE_WORD).cycles
    # A core that issues one instruction a cycle has one of each unit, even if its table lists more.
    ports = {
        unit: min(timing.width, timing.capacity.get(unit, 1))
        for unit in (Unit.MAC, Unit.LOAD, Unit.STORE)
    }
    limits = {
        "multiply": _ceil(multiplications, ports[Unit.MAC]),
        "load": _ceil(loads, ports[Unit.LOAD]),
        "store": _ceil(stores, ports[Unit.STORE]),
        "issue": _ceil(multiplications + loads + stores, timing.width),
    }
    limit = max(limits, key=lambda name: limits[name])
    misses = 0
    if model.dcache is not None:
        kept = model.dcache.size_bytes // model.dcache.line_bytes
        misses = max(0, _ceil(weight_bytes - resident_bytes, model.dcache.line_bytes) - kept)
    core = limits[limit]
    return Bound(core, core + misses * model.flash_miss_cycles, limit)


def _input_bytes(graph: Graph, operator: Operator) -> Iterator[int]:
    """Activations only: constants are the layer's weights."""
    for index in operator.inputs:
        if index is not None and graph.tensors[index].data is None:
            yield graph.tensors[index].size_bytes


def _ceil(amount: int, each: int) -> int:
    return -(-amount // each)
