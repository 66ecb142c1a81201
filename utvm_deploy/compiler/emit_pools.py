"""The C of pools: parameters of the calls, the copies of constants, and what the header says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.constants import ConstantTables
from utvm_deploy.compiler.kernel_costs import weight_passes
from utvm_deploy.compiler.model import CompiledModel, MemoryPool
from utvm_deploy.compiler.pools import (
    POOL_ALIGNMENT,
    PoolLimit,
    Table,
    aligned_in_pool,
    filled_pools,
    lines_read,
)
from utvm_deploy.compiler.program import Program, ScheduledStep


def pools_of(
    program: Program, tables: ConstantTables, members: Sequence[Iterable[str]]
) -> tuple[MemoryPool, ...]:
    """The pools that a program uses; ``members`` are the tables that each layer reads.

    Raises CompileError if the scratch does not fit its pool: a bug.
    """
    lines: dict[str, float] = {}
    layers: dict[str, tuple[int, ...]] = {}
    for index, (layer, read) in enumerate(zip(program.layers, members, strict=True)):
        passes = weight_passes(program.graph, layer.step, layer.kernel.function.scratch_bytes)
        sizes = {member: tables.span(member).size_bytes for member in read}
        total = sum(sizes.values())
        for member, size in sizes.items():
            more = lines_read(size, total, passes, program.cache_bytes)
            lines[member] = lines.get(member, 0.0) + more
            layers[member] = (*layers.get(member, ()), index)
    found = [Table(one, tables.span(one), layers[one], lines[one]) for one in lines]
    found.sort(key=lambda table: table.span.offset)
    scratch = {limit.name: _scratch_bytes(program, limit) for limit in program.pool_limits}
    return filled_pools(found, program.pool_limits, scratch)


def scratch_offsets(program: Program, index: int, layer: ScheduledStep) -> list[int] | None:
    """Where in its pool a layer has its scratch buffers; None if they are elsewhere."""
    if program.scratch_pool is None or program.plan.scratch[index]:
        return None
    sizes = [one.size_bytes for one in layer.kernel.function.scratch]
    return list(accumulate(map(aligned_in_pool, sizes[:-1]), initial=0))[: len(sizes)]


def _scratch_bytes(program: Program, limit: PoolLimit) -> int:
    """The most that a layer takes of a pool for scratch."""
    if program.scratch_pool != limit.name:
        return 0
    most = 0
    for index, layer in enumerate(program.layers):
        offsets = scratch_offsets(program, index, layer)
        if offsets:
            most = max(most, offsets[-1] + layer.kernel.function.scratch[-1].size_bytes)
    if most > limit.size:
        raise CompileError(
            f"scratch of {most:,} bytes is in a pool of {limit.size:,}; this is a bug in the "
            "planner"
        )
    return most


def copies_of(pools: Iterable[MemoryPool]) -> Mapping[str, str]:
    """Constant table -> the C expression for the address of its copy, of those that have one."""
    return {
        resident.table: f"(const void *)({pool.parameter} + {resident.offset})"
        for pool in pools
        for resident in pool.residents
    }


def pool_parameters(pools: Iterable[MemoryPool]) -> str:
    """What a function takes behind the arena."""
    return "".join(f", uint8_t *{pool.parameter}" for pool in pools)


def pool_arguments(pools: Iterable[MemoryPool]) -> str:
    """The same for a call."""
    return "".join(f", {pool.parameter}" for pool in pools)


def unused_pools(pools: Iterable[MemoryPool], text: str) -> str:
    """Statements for the pools that a function's text does not mention."""
    return "".join(f"    (void){one.parameter};\n" for one in pools if one.parameter not in text)


def load_text(name: str, pools: Sequence[MemoryPool]) -> str:
    """``NAME_load_pools``; empty if there are no weights to copy."""
    copies = "".join(
        f"    memcpy({pool.parameter} + {one.offset}, {name}_weights.{one.table}, "
        f"{one.constant.size_bytes});\n"
        for pool in pools
        for one in pool.residents
    )
    if not copies:
        return ""
    unused = unused_pools(pools, copies)
    return f"\nvoid {name}_load_pools({_load_parameters(pools)}) {{\n{unused}{copies}}}\n"


def _load_parameters(pools: Iterable[MemoryPool]) -> str:
    return pool_parameters(pools).removeprefix(", ")


def load_call(model: CompiledModel) -> str:
    """The statement that fills the pools; empty if there are no weights to copy."""
    if model.load_function is None:
        return ""
    return f"{model.load_function}({pool_arguments(model.pools).removeprefix(', ')});"


def pool_macros(name: str, pools: Iterable[MemoryPool]) -> Iterator[str]:
    """Sizes and alignments."""
    for pool in pools:
        macro = f"{name.upper()}_{pool.parameter.upper()}"
        yield f"#define {macro}_BYTES {pool.size_bytes}\n"
        yield f"#define {macro}_ALIGNMENT {POOL_ALIGNMENT}\n"


def load_header(name: str, pools: Sequence[MemoryPool]) -> str:
    """What the header says of ``NAME_load_pools``; empty if there are no weights to copy."""
    if not any(pool.residents for pool in pools):
        return ""
    uses = "only read the pools"
    if any(pool.scratch_bytes for pool in pools):
        uses = "write their scratch there, so two runs at a time need separate pools"
    return f"""
// Copy the weights that layers read from a pool: call it once before the first run, and again if
// that memory was lost. Runs {uses}.
void {name}_load_pools({_load_parameters(pools)});
"""


def pool_manual(name: str, pools: Iterable[MemoryPool]) -> Iterator[str]:
    """How a caller gives the pools."""
    for pool in pools:
        macro = f"{name.upper()}_{pool.parameter.upper()}"
        yield f"""\
// The memory {pool.name} holds {_held(pool)}, {pool.size_bytes} bytes that you own, too:
//
//     static uint8_t {pool.parameter}[{macro}_BYTES]
//         __attribute__((aligned({macro}_ALIGNMENT)));  // in {pool.name}
//
"""


def _held(pool: MemoryPool) -> str:
    parts = ["scratch"] * bool(pool.scratch_bytes) + ["copies of weights"] * bool(pool.residents)
    return " and ".join(parts)
