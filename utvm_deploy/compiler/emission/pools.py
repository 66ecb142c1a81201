"""The C of pools: parameters of the calls, the copies of constants, and what the header says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.planning.pools import POOL_ALIGNMENT


def copies_of(pools: Iterable[MemoryPool]) -> Mapping[str, str]:
    """Constant table -> the C expression for the address of its copy, of those that have one."""
    return {
        resident.table: f"(const void *)({pool.parameter} + {resident.offset})"
        for pool in pools
        for resident in pool.residents
    }


def pool_parameters(pools: Iterable[MemoryPool]) -> str:
    """The parameters of a function after the arena."""
    return "".join(f", uint8_t *{pool.parameter}" for pool in pools)


def pool_arguments(pools: Iterable[MemoryPool]) -> str:
    """The arguments of a call after the arena."""
    return "".join(f", {pool.parameter}" for pool in pools)


def unused_memories(pools: Sequence[MemoryPool], text: str) -> str:
    """Statements for the arena and pools that a function's text does not mention.

    Without pools, there is always some of the arena.
    """
    names = ("arena", *(pool.parameter for pool in pools)) if pools else ()
    return "".join(f"    (void){one};\n" for one in names if not mentions(text, one))


def mentions(text: str, name: str) -> bool:
    """Whether C has this name as a word; the names of models may contain it."""
    return re.search(rf"\b{name}\b", text) is not None


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
    unused = unused_memories(pools, f"arena {copies}")
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
    if any(pool.is_written for pool in pools):
        uses = "write there, too, so two runs at a time need separate pools"
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
// The memory {pool.name} holds {held_in(pool)}, {pool.size_bytes} bytes that you own, too.
// Elsewhere, results are the same, and runs take longer.
//
//     static uint8_t {pool.parameter}[{macro}_BYTES]
//         __attribute__((aligned({macro}_ALIGNMENT)));  // in {pool.name}
//
"""


def held_in(pool: MemoryPool) -> str:
    """What a pool is for."""
    parts = ["scratch"] * bool(pool.scratch_bytes) + ["activations"] * bool(pool.uses)
    return " and ".join([*parts, *["copies of weights"] * bool(pool.residents)])
