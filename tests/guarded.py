"""Layers of a model on the host, each with its own buffers alone: all around are pages that fault.

The arena is planned with every buffer on pages of its own, at their start or at their end, so that
the byte before or the byte behind cannot be touched. Linux on x86-64 only.
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
from utvm_deploy.compiler.arena.arenas import Layout
from utvm_deploy.compiler.arena.placement import Block, Placement
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.compiler.options import DEFAULT_OPTIONS, OPTIMIZATION_FLAGS, CompileOptions
from utvm_deploy.compiler.stages.network import imported, simplified
from utvm_deploy.compiler.stages.pipeline import emitted
from utvm_deploy.compiler.stages.placing import placed
from utvm_deploy.compiler.stages.request import Request
from utvm_deploy.compiler.stages.search import KernelPlan, searched
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
def built_with(flag: str) -> Iterator[None]:
    """Models are built with this flag, in less time: for checks of what the C says."""
    with mock.patch.dict(OPTIMIZATION_FLAGS, dict.fromkeys(OPTIMIZATION_FLAGS, flag)):
        yield


def plan_of(path: Path, board: Board, options: CompileOptions = DEFAULT_OPTIONS) -> KernelPlan:
    """The kernels of a model, from which several programs can be made."""
    return searched(simplified(imported(Request(path, board, options))))


def program_of(plan: KernelPlan) -> CompiledModel:
    """What ``compile_model`` makes of it."""
    return emitted(placed(plan)).model


def compile_apart(kernels: KernelPlan, *, at_end: bool | None) -> CompiledModel:
    """The model with an arena in which every buffer has its own pages; None takes turns."""

    def place_apart(blocks: Sequence[Block], handovers: object = ()) -> Placement:
        offsets, end = [], PAGE
        for number, block in enumerate(blocks, len(blocks)):
            pages = -(-block.size_bytes // PAGE) * PAGE
            is_at_end = number % 2 if at_end is None else at_end
            offsets.append(end + (pages - block.size_bytes if is_at_end else 0))
            end += pages + PAGE
        return Placement(tuple(offsets), end)

    # At their ends they are aligned to no more than their elements.
    with (
        mock.patch.object(plan, "place", place_apart),
        mock.patch.object(plan, "verify"),
        # Such an arena is larger than any other: no output is in its input's place.
        mock.patch.object(Layout, "place_below", return_value=True),
    ):
        return replace(program_of(kernels), arena_alignment=PAGE)


def faults_of(
    device: Device, kernels: KernelPlan, inputs: Sequence[Array], *, is_quick: bool = False
) -> list[str]:
    """What each layer touches that is not its own, as far as a fault tells: the first of each.

    If it ``is_quick``, one side of each buffer is looked at.
    """
    sides = (None,) if is_quick else (False, True)
    apart = [compile_apart(kernels, at_end=side) for side in sides]
    return faults_of_compiled(device, apart, inputs)


def faults_of_compiled(
    device: Device, apart: Sequence[CompiledModel], inputs: Sequence[Array]
) -> list[str]:
    """``faults_of`` models from ``compile_apart``."""
    found = []
    with built_with("-O0"), device.load_module(_GUARD, name="guard") as module:
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
