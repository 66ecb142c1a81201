"""What a bundle says of a model's pools: C of the example and self-test, and words."""

from __future__ import annotations

from collections.abc import Iterator

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.emission.pools import held_in, load_call, pool_arguments, pool_parameters

_README = """
## {title}

`@NAME@_run(arena{arguments})` also takes memory of {board}: {regions}. Elsewhere, the model
computes the same bytes, and takes longer. Two lines put it there. The first is in your C, and the
second in your linker script, in front of `.bss`:

{lines}
With Zephyr, `__dtcm_noinit_section` in front of the array is all. {after}
"""
#: Of memory that holds scratch and activations.
_FREE = "Between runs, it is free for\nother uses."
_LOADED = """Call `@NAME@_load_pools()` once
before the first run: it copies weights there."""
_LINES = """\
    static uint8_t {parameter}[{macro}_BYTES]
        __attribute__((section(".bss.{parameter}"), aligned({macro}_ALIGNMENT)));
    .{parameter} (NOLOAD) : {{ *(.bss.{parameter}) }} > {region}
"""


def pool_values(compiled: CompiledModel, board: Board) -> dict[str, str]:
    """What the templates say of pools, by placeholder; empty texts without pools."""
    pools, call = compiled.pools, load_call(compiled)
    named = " and ".join(
        f"{pool.size_bytes:,} bytes of `{pool.name}` for {held_in(pool)}" for pool in pools
    )
    text = _README.format(
        title="Pools" if call else "Fast memory",
        arguments=pool_arguments(pools),
        board=board.name,
        regions=named,
        lines="".join(
            _LINES.format(parameter=p.parameter, macro=_macro(compiled, p), region=p.name)
            for p in pools
        ),
        after=_LOADED if call else _FREE,
    )
    return {
        "POOLS": "".join(_definitions(compiled)),
        "POOL_PARAMETERS": pool_parameters(pools),
        "POOL_ARGUMENTS": pool_arguments(pools),
        "LOAD_POOLS": f"    {call}\n" if call else "",
        "POOL_ROWS": "".join(
            f"| RAM: the pool in {pool.name}, {held_in(pool)} | {pool.size_bytes:,} bytes |\n"
            for pool in pools
        ),
        "POOLS_TEXT": text if pools else "",
        "POOL_SECTIONS": "".join(_sections(compiled)),
    }


def _definitions(compiled: CompiledModel) -> Iterator[str]:
    for pool in compiled.pools:
        macro = _macro(compiled, pool)
        yield f"""
// In {pool.name}, if the linker script puts this section there.
#if defined(__ELF__)
__attribute__((section(".bss.{pool.parameter}")))
#endif
static uint8_t {pool.parameter}[{macro}_BYTES] __attribute__((aligned({macro}_ALIGNMENT)));
"""


def _macro(compiled: CompiledModel, pool: MemoryPool) -> str:
    return f"{compiled.name.upper()}_{pool.parameter.upper()}"


def _sections(compiled: CompiledModel) -> Iterator[str]:
    """Of the self-test's linker script; nobody fills them at the start."""
    for pool in compiled.pools:
        yield (f"    .{pool.parameter} (NOLOAD) : {{ *(.bss.{pool.parameter}) }} > {pool.name}\n\n")
