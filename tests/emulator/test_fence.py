"""The fence finds every access outside of what a function may use, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fence import Fence, Stretch
from fenced import crossings_of, fenced_device, stretch, watched
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ProbeError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.memory_use import Span
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device, Tensor

pytestmark = pytest.mark.emulator

SIZE = 13
SOURCE = """
#include <stdint.h>
#include <string.h>
void touch(volatile int8_t *at, int32_t offset, int32_t store, int8_t *result) {
    if (store) {
        at[offset] = 1;
    } else {
        result[1] = at[offset];
    }
}
void word(const int8_t *at, int32_t offset, int8_t *result) {
    int32_t found;
    memcpy(&found, at + offset, 4);
    result[1] = (int8_t)found;
}
int32_t vector(const int8_t *at, int32_t offset, int8_t *result) {
#if __ARM_FEATURE_MVE
    __asm volatile("vldrb.u8 q0, [%0]\\n\\tvstrb.8 q0, [%1]" ::"r"(at + offset), "r"(result + 1)
                   : "q0", "memory");
    return 1;
#elif defined(UTVM_VECTORS)
    __asm volatile(".option push\\n\\t.option arch, +zicsr, +zve32x\\n\\t"
                   "vsetivli t0, 16, e8, m1, ta, ma\\n\\t"
                   "vle8.v v0, (%0)\\n\\tvse8.v v0, (%1)\\n\\t.option pop" ::"r"(at + offset),
                   "r"(result + 1)
                   : "t0", "memory");
    return 1;
#else
    memcpy(result + 1, at + offset, 16);
    return 0;
#endif
}
void copy(int8_t *to, const int8_t *from, uint32_t count) { memcpy(to + 1, from + 1, count); }
"""


@pytest.fixture(scope="module", params=["mps2_an385", "mps3_an547", "qemu_rv32imcv"])
def rig(request: pytest.FixtureRequest) -> Iterator[tuple[Fence, Device]]:
    with fenced_device(request.param) as found:
        yield found


def found(rig: tuple[Fence, Device], function: str, *arguments: object) -> list[str]:
    """What one call crosses: every tensor's first and last byte are said not to be its own."""
    fence, device = rig
    with device.load_module(SOURCE) as module:
        inner = [Stretch(a.address + 1, a.nbytes - 2) for a in arguments if isinstance(a, Tensor)]
        allowed = [*inner, stretch(module.block)]
        with watched(fence, device, module[function].address, allowed) as crossings:
            module[function](*arguments)  # type: ignore[arg-type]
        return crossings


def bytes_on(device: Device, count: int) -> Tensor:
    """Such a tensor of ``count`` bytes of its own."""
    return device.tensor(np.zeros(count + 2, np.int8))


@pytest.mark.parametrize("offset", [-1, 0, SIZE - 1, SIZE])
@pytest.mark.parametrize("store", [0, 1])
def test_one_byte_too_far(rig: tuple[Fence, Device], offset: int, store: int) -> None:
    _, device = rig
    buffer, result = bytes_on(device, SIZE), bytes_on(device, 1)
    crossings = found(rig, "touch", buffer, offset + 1, store, result)
    if 0 <= offset < SIZE:
        assert crossings == []
        return
    (text,) = crossings
    kind = "store to" if store else "load from"
    assert f"a {kind} {buffer.address + 1 + offset:#x} of 1 bytes" in text
    assert "touch" in text and f", {offset} from the start of {SIZE} bytes" in text


def test_a_word_that_begins_inside(rig: tuple[Fence, Device]) -> None:
    _, device = rig
    buffer, result = bytes_on(device, SIZE), bytes_on(device, 1)
    assert found(rig, "word", buffer, SIZE - 3, result) == []
    (text,) = found(rig, "word", buffer, SIZE - 2, result)
    # GCC for RISC-V loads words that may be unaligned byte by byte.
    size = 1 if device.board.cpu.core.startswith("rv32") else 4
    assert f"of {size} bytes" in text


def test_vectors_are_seen(rig: tuple[Fence, Device]) -> None:
    _, device = rig
    buffer, result = bytes_on(device, 16), bytes_on(device, 16)
    assert found(rig, "vector", buffer, 1, result) == []
    assert found(rig, "vector", buffer, 0, result) != []
    assert found(rig, "vector", buffer, 2, result) != []
    assert found(rig, "vector", buffer, 1, bytes_on(device, 15)) != []


def test_a_library_function_is_part_of_the_call(rig: tuple[Fence, Device]) -> None:
    _, device = rig
    to, source = bytes_on(device, SIZE), bytes_on(device, SIZE - 1)
    assert found(rig, "copy", to, source, SIZE - 1) == []
    assert found(rig, "copy", to, source, SIZE) != []


@pytest.mark.parametrize("first,last", [(0, 0), (1, 0), (0, 1)])
def test_a_neighbour_in_the_arena_is_outside(
    rig: tuple[Fence, Device], tmp_path: Path, first: int, last: int
) -> None:
    """A layer whose buffers are said to lack their first or their last byte."""
    fence, device = rig
    m = ModelWriter()
    x = m.input((1, 7), 0.1)
    weights = m.fully_connected(x, np.ones((9, 7), np.int8), np.zeros(9, np.int32), scale=0.2)
    m.output(m.add(weights, weights, scale=0.3))
    compiled = compile_model(m.save(tmp_path / "model.tflite"), device.board)

    def shorter(spans: tuple[Span, ...]) -> tuple[Span, ...]:
        return tuple(Span(s.offset + first, s.size_bytes - first - last) for s in spans)

    layers = [
        replace(one, arena=shorter(one.arena), constants=shorter(one.constants))
        for one in compiled.layers
    ]
    loaded = device.load(replace(compiled, layers=tuple(layers)), into="ram")
    found = crossings_of(fence, loaded, [np.arange(7, dtype=np.int8).reshape(1, 7)])
    loaded.unload()
    if not first and not last:
        assert found == []
    else:
        for layer in compiled.layers:
            for kind in ("load", "store"):
                assert any(f"layer {layer.index}," in one and kind in one for one in found), kind


def test_the_host_has_none() -> None:
    with pytest.raises(ProbeError, match="not emulated"):
        Fence(load_board("host"))
