"""Facts about a compiled model in the forms that several verbs print."""

from __future__ import annotations

from utvm_deploy.base.readable import counted
from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.compiled.model import CompiledModel


def memory_line(compiled: CompiledModel) -> str:
    """What the model needs, in one line."""
    kernels = len({layer.kernel for layer in compiled.layers})
    found = layers_of_file(compiled.layers, compiled.loops)
    calls = sum(len(one.calls) for one in found if one.is_streamed)
    strips = f" ({calls} of them are strips of rows of a layer)" if calls else ""
    looped = sum(len(one.calls) for one in found if one.loop is not None)
    if looped:
        count = len(compiled.loops)
        strips += f" ({looped} of them in {counted(count, 'loop')})"
    return (
        f"{compiled.name}: {len(compiled.layers)} layers{strips}, {kernels} kernels, "
        f"{compiled.macs:,} MACs, weights {compiled.weights_bytes:,} bytes of flash, "
        f"arena {compiled.arena_bytes:,} bytes of RAM"
        + (f", scratch on the stack {compiled.stack_bytes:,} bytes" if compiled.stack_bytes else "")
        + "".join(f"\n{pool.text}" for pool in compiled.pools)
        + (f"\n{compiled.tradeoff.text}" if compiled.tradeoff else "")
        + (f"\n{compiled.hint}" if compiled.hint else "")
    )
