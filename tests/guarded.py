"""Layers of a model on the host, each with its own buffers alone: all around are pages that fault.

The arena is planned with every buffer on pages of its own, once at their start and once at their
end, so that the byte before or the byte behind cannot be touched. Linux on x86-64 only.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from utvm_deploy.base.errors import StoppedTask
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena import plan
from utvm_deploy.compiler.arena.placement import Block, Placement
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device, DeviceModel, Module
from utvm_deploy.graph.model import Array

PAGE = 4096
_NOTHING, _EVERYTHING = 0, 7
_GUARD = """
#include <stdint.h>
void guard(uint8_t *start, uint32_t size, uint32_t rights) {
    long result;
    __asm volatile("syscall" : "=a"(result)
                   : "a"(10L), "D"(start), "S"((long)size), "d"((long)rights)
                   : "rcx", "r11", "memory");
    if (result) {
        __builtin_trap();
    }
}
"""


def is_possible() -> bool:
    """Whether the system call is known here."""
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


@contextmanager
def built_quickly() -> Iterator[None]:
    """Models are built by -O1, in half of the time: for checks of what the C says."""
    with mock.patch.dict(OPTIMIZATION_FLAGS, dict.fromkeys(OPTIMIZATION_FLAGS, "-O1")):
        yield


def compile_apart(path: Path, board: Board, *, at_end: bool) -> CompiledModel:
    """The model with an arena in which every buffer has its own pages."""

    def place_apart(blocks: Sequence[Block], handovers: object = ()) -> Placement:
        offsets, end = [], PAGE
        for block in blocks:
            pages = -(-block.size_bytes // PAGE) * PAGE
            offsets.append(end + (pages - block.size_bytes if at_end else 0))
            end += pages + PAGE
        return Placement(tuple(offsets), end)

    # At their ends they are aligned to no more than their elements.
    with mock.patch.object(plan, "place", place_apart), mock.patch.object(plan, "verify"):
        return replace(compile_model(path, board), arena_alignment=PAGE)


def faults_of(
    device: Device, path: Path, inputs: Sequence[Array], board: Board | None = None
) -> list[str]:
    """What each layer touches that is not its own, as far as a fault tells: the first of each.

    ``board``: the one that the model is compiled for, if it is not the device's.
    """
    apart = [compile_apart(path, board or device.board, at_end=end) for end in (False, True)]
    return faults_of_compiled(device, apart, inputs)


def faults_of_compiled(
    device: Device, apart: Sequence[CompiledModel], inputs: Sequence[Array]
) -> list[str]:
    """``faults_of`` models from ``compile_apart``."""
    found = []
    with built_quickly(), device.load_module(_GUARD, name="guard") as module:
        for compiled in apart:
            loaded = device.load(compiled, into="ram")
            try:
                loaded.set_inputs(inputs)
                for layer in compiled.layers:
                    found += _faults_of_layer(device, loaded, layer, module)
            finally:
                loaded.unload()
    return found


def _faults_of_layer(
    device: Device, loaded: DeviceModel, layer: Layer, module: Module
) -> list[str]:
    arena, size = loaded.arena_address, loaded.compiled.arena_bytes
    guard = module["guard"]
    guard(arena, size, _NOTHING)
    for span in layer.arena:
        first = span.offset // PAGE * PAGE
        pages = -(-(span.offset + span.size_bytes - first) // PAGE)
        guard(arena + first, pages * PAGE, _EVERYTHING)
    loaded.call_layer(layer)
    try:
        device.sync()
    except StoppedTask as error:
        return [f"layer {layer.index}, {layer.kind} ({layer.kernel}): {error}"]
    finally:
        guard(arena, size, _EVERYTHING)
        device.sync()
    return []
