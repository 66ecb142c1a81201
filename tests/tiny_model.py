"""A compiled model of a few handwritten lines of C, for tests of what comes after the compiler."""

from __future__ import annotations

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel

HEADER = """\
#ifndef {name}_H
#define {name}_H
#include <stdint.h>
#define {upper}_ARENA_BYTES {arena}
void {name}_run(uint8_t *arena);
void {name}_run_layer(uint32_t index, uint8_t *arena);
#endif
"""

SOURCE = """\
#include "{name}.h"
static const struct {{ uint8_t bytes[{weights}]; }} weights = {{{{3, 5}}}};
/* Layer 0 adds the first weight to 16 bytes, layer 1 the second. */
void {name}_run_layer(uint32_t index, uint8_t *arena) {{
    const volatile uint8_t *weight = weights.bytes;
    for (int i = 0; i < 16; i++) {{
        arena[i] = (uint8_t)(arena[i] + weight[index]);
    }}
}}
void {name}_run(uint8_t *arena) {{
    for (uint32_t i = 0; i < 2u; i++) {{
        {name}_run_layer(i, arena);
    }}
}}
"""

#: As above; further functions that tests call on the device. ``volatile`` keeps them as written.
PROBES = """\
void tiny_spin(uint32_t turns);
void tiny_touch(uint32_t address);
uint32_t tiny_recurse(uint32_t depth);
__attribute__((used, section(".text.tiny_run"))) void tiny_spin(uint32_t turns) {
#ifdef __arm__
    __asm volatile(".syntax unified\\n1: subs %0, #1\\n\\tbne 1b" : "+l"(turns) : : "cc");
#elif defined(__riscv)
    __asm volatile("1: addi %0, %0, -1\\n\\tbnez %0, 1b" : "+r"(turns));
#else
    for (volatile uint32_t i = 0; i < turns; i++) {
    }
#endif
}
__attribute__((used, section(".text.tiny_run"))) void tiny_touch(uint32_t address) {
    *(volatile uint32_t *)(uintptr_t)address = 1u;
}
__attribute__((used, section(".text.tiny_run"))) uint32_t tiny_recurse(uint32_t depth) {
    volatile uint32_t frame[16] = {depth};
    return depth == 0u ? 0u : tiny_recurse(depth - 1u) + frame[0];
}
"""


def tiny_model(
    board: Board, *, arena_bytes: int = 64, weights_bytes: int = 8, source: str | None = None
) -> CompiledModel:
    """Two layers that add constants; memory needs as asked for."""
    fields = {"name": "tiny", "upper": "TINY", "arena": arena_bytes, "weights": weights_bytes}
    text = SOURCE.format(**fields) + PROBES if source is None else source
    return CompiledModel(
        name="tiny",
        board=board.name,
        core=board.cpu.core,
        sources={"tiny.h": HEADER.format(**fields), "tiny.c": text},
        layers=(),
        inputs=(),
        outputs=(),
        arena_bytes=arena_bytes,
        arena_alignment=8,
        weights_bytes=weights_bytes,
        macs=32,
        model_digest="0" * 64,
        seconds={},
        kernel_ir={},
    )
