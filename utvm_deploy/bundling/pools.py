"""What a bundle says of a model's pools: C of the example and self-test, and words."""

from __future__ import annotations

from collections.abc import Iterator

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.emit_pools import load_call, pool_arguments, pool_parameters
from utvm_deploy.compiler.model import CompiledModel

_README = """
## Pools

`@NAME@_run(arena{arguments})` also takes memory of {board}: {regions}. Where this is tightly
coupled, it is read without waiting. `@NAME@_load_pools()` copies weights there; call it once before
the first run. The example has the memory in sections: your linker script puts these where you want
them. With Zephyr, `__dtcm_noinit_section` in front of a variable puts it into the DTCM.
"""


def pool_values(compiled: CompiledModel, board: Board) -> dict[str, str]:
    """What the templates say of pools, by placeholder; empty texts without pools."""
    pools, call = compiled.pools, load_call(compiled)
    named = " and ".join(f"{pool.size_bytes:,} bytes of `{pool.name}`" for pool in pools)
    text = _README.format(arguments=pool_arguments(pools), board=board.name, regions=named)
    return {
        "POOLS": "".join(_definitions(compiled)),
        "POOL_PARAMETERS": pool_parameters(pools),
        "POOL_ARGUMENTS": pool_arguments(pools),
        "LOAD_POOLS": f"    {call}\n" if call else "",
        "POOL_ROWS": "".join(
            f"| RAM: the pool in {pool.name} | {pool.size_bytes} bytes |\n" for pool in pools
        ),
        "POOLS_TEXT": text if pools else "",
        "POOL_SECTIONS": "".join(_sections(compiled)),
    }


def _definitions(compiled: CompiledModel) -> Iterator[str]:
    for pool in compiled.pools:
        macro = f"{compiled.name.upper()}_{pool.parameter.upper()}"
        yield f"""
// In {pool.name}, if the linker script puts this section there.
#if defined(__ELF__)
__attribute__((section(".bss.{pool.parameter}")))
#endif
static uint8_t {pool.parameter}[{macro}_BYTES] __attribute__((aligned({macro}_ALIGNMENT)));
"""


def _sections(compiled: CompiledModel) -> Iterator[str]:
    """Of the self-test's linker script; nobody fills them at the start."""
    for pool in compiled.pools:
        yield (f"    .{pool.parameter} (NOLOAD) : {{ *(.bss.{pool.parameter}) }} > {pool.name}\n\n")
