"""Checks that the facts of a compiled model that was read from a file are possible.

Digests find damage, but a forged archive has right digests. Later code uses these facts as sizes of
memory, names in C and CMake, and types of numpy. ``ValueError`` says which fact is wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.compiled.memory_use import MemoryPool, Span
from utvm_deploy.compiler.compiled.model import (
    Buffer,
    CompiledModel,
    InputRows,
    Layer,
    Loop,
    TrainedPart,
)
from utvm_deploy.compiler.options import FLOAT_MATHS, LEVELS
from utvm_deploy.compiler.row_state import ROW_STATE_BYTES
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.external_library import MOST_WINDOWS, ExternalLibrary, is_window
from utvm_deploy.targets.table import CORES

#: Addresses of every board have 32 bits.
MAX_BYTES = 0xFFFFFFFF
MAX_MACS = 1 << 48
MAX_RANK = 16
MAX_ALIGNMENT = 4096
# The most characters of a wrong value that a message shows.
_LONGEST_REASON = 300

_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,250}", re.ASCII)
_BOARD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,100}", re.ASCII)
_LIBRARY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]{0,100}", re.ASCII)
_ZEPHYR_OPTION = re.compile(r"[A-Z0-9_]{1,100}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def one_line(error: Exception) -> str:
    """An error's words on one line: they may quote what the file's maker wrote."""
    text = "".join(sign if sign.isprintable() else "?" for sign in str(error))
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


def check_facts(compiled: CompiledModel) -> None:
    """Check the whole model; its name was checked before."""
    _matches("board", compiled.board, _BOARD_NAME)
    if compiled.core not in CORES:
        raise ValueError(f"core {_short(compiled.core)} is none of {', '.join(CORES)}")
    check_sizes(compiled.arena_bytes, compiled.arena_alignment, compiled.weights_bytes)
    _within("macs", compiled.macs, MAX_MACS)
    _within("stack_bytes", compiled.stack_bytes, MAX_BYTES)
    _matches("model_digest", compiled.model_digest, _DIGEST)
    if compiled.optimize not in LEVELS:
        raise ValueError(f"optimize {_short(compiled.optimize)} is none of {', '.join(LEVELS)}")
    if compiled.float_math not in FLOAT_MATHS:
        known = ", ".join(FLOAT_MATHS)
        raise ValueError(f"float_math {_short(compiled.float_math)} is none of {known}")
    check_buffers(compiled.taken, compiled.outputs, compiled.arena_bytes, compiled.input_rows)
    for state in compiled.states:
        _check_buffer("state", state, compiled.arena_bytes)
    if compiled.training is not None:
        _check_training(compiled.training, compiled)
    if compiled.prefill is not None:
        part = compiled.prefill
        _within("inputs of a block", part.inputs, len(compiled.inputs) - 1, least=1)
        _within("step_layers", part.step_layers, len(compiled.layers))
    for index, layer in enumerate(compiled.layers):
        _check_layer(index, layer, compiled)
    for pool in compiled.pools:
        _check_pool(pool, compiled)
    end = 0
    for loop in compiled.loops:
        _check_loop(loop, end, len(compiled.layers))
        end = loop.end
    if compiled.tradeoff is not None:
        _one_line("unit of the tradeoff", compiled.tradeoff.unit)
    if compiled.external is not None:
        for external in compiled.externals:
            _check_library(external)
        windows = [one for external in compiled.externals for one in external.registers]
        if len(windows) > MOST_WINDOWS:
            raise ValueError(f"registers of the libraries are {_short(windows)}")
    elif any(layer.is_external for layer in compiled.layers):
        raise ValueError("a layer calls a library, and none is named")
    if compiled.status_offset is not None:
        status = Span(compiled.status_offset, len(compiled.layers))
        _inside("status_offset", status, compiled.arena_bytes)


def check_sizes(arena_bytes: int, arena_alignment: int, weights_bytes: int) -> None:
    """Check the sizes of memory that the model needs."""
    _within("arena_bytes", arena_bytes, MAX_BYTES)
    _within("weights_bytes", weights_bytes, MAX_BYTES)
    _within("arena_alignment", arena_alignment, MAX_ALIGNMENT)
    if arena_alignment.bit_count() != 1:
        raise ValueError(f"arena_alignment {arena_alignment} is not a power of two")


def check_buffers(
    inputs: tuple[Buffer, ...],
    outputs: tuple[Buffer, ...],
    arena: int,
    rows: InputRows | None = None,
) -> None:
    """Check a model's inputs and outputs, in an arena of this number of bytes.

    An input whose ``rows`` are pushed is left out.
    """
    for what, buffers in (("input", inputs), ("output", outputs)):
        if not buffers:
            raise ValueError(f"the model has no {what}")
        for buffer in buffers:
            is_outside = rows is not None and what == "input"
            _check_buffer(what, buffer, MAX_BYTES if is_outside else arena)
    if rows is not None:
        _check_rows(rows, arena)


def _check_rows(rows: InputRows, arena: int) -> None:
    if rows.count < 1 or rows.count * rows.row_bytes != rows.buffer.size_bytes:
        raise ValueError(f"{_short(rows.count)} rows are not the input")
    _inside("the number of rows", Span(rows.state_offset, ROW_STATE_BYTES), arena)
    first = 0
    for strip in rows.strips:
        _within("the end of a strip", strip.end, rows.count, least=first + 1)
        size = (strip.end - first) * rows.row_bytes
        _inside("rows of the input", Span(strip.offset, size), arena)
        _within("layer of a strip", strip.layer, MAX_BYTES)
        first = strip.end


def _check_buffer(what: str, buffer: Buffer, arena_bytes: int) -> None:
    c_type(buffer.dtype)  # CompileError for a type that generated C does not have
    if len(buffer.shape) > MAX_RANK:
        raise ValueError(f"{what} has {len(buffer.shape)} dimensions")
    for extent in buffer.shape:
        _within(f"an extent of the {what}'s shape", extent, MAX_BYTES, least=1)
    element = element_type(buffer.dtype)
    if buffer.size_bytes != element.size_bytes(math.prod(buffer.shape)):
        raise ValueError(f"{what} has {buffer.size_bytes} bytes, which its shape does not")
    _inside(what, Span(buffer.offset, buffer.size_bytes), arena_bytes)
    if buffer.offset % element.unit_bytes:
        raise ValueError(f"{what} has the offset {buffer.offset}, where no {buffer.dtype} can be")
    _one_line(what, buffer.name)
    if buffer.scale is not None and not (math.isfinite(buffer.scale) and buffer.scale >= 0):
        raise ValueError(f"{what} has the scale {buffer.scale}")
    if buffer.zero_point is not None:
        _within(f"zero point of the {what}", buffer.zero_point, 2**31 - 1, least=-(2**31))
    if buffer.source is not None:
        _within(f"source of the {what}", buffer.source, MAX_BYTES)
    if buffer.channels is not None:
        if (len(buffer.channels),) != buffer.shape[-1:]:
            raise ValueError(f"{what} has {len(buffer.channels)} channels, which its shape has not")
        for channel in buffer.channels:
            _within(f"a channel of the {what}", channel, MAX_BYTES)
    if buffer.first and len(bytes.fromhex(buffer.first)) != buffer.size_bytes:
        raise ValueError(f"first of the {what} has not {buffer.size_bytes} bytes")


def _check_training(part: TrainedPart, compiled: CompiledModel) -> None:
    _check_buffer("label", part.label, compiled.arena_bytes)
    _check_buffer("loss", part.loss, compiled.arena_bytes)
    if part.loss.size_bytes != 4 or not part.label.shape:
        raise ValueError("the loss is not one number, or the label has no batch")
    _inside("what is stored", part.stored, compiled.arena_bytes)
    _within("loss_layers", part.loss_layers, len(compiled.layers))
    _within("forward_layers", part.forward_layers, part.loss_layers)
    _within("the number of weights", part.weights, len(compiled.states) - 3, least=1)
    if part.classes is not None:
        _within("classes", part.classes, MAX_BYTES, least=1)


def _check_layer(index: int, layer: Layer, compiled: CompiledModel) -> None:
    what = f"layer {index}"
    if layer.index != index:
        raise ValueError(f"{what} has the index {layer.index}")
    _matches(f"kernel of {what}", layer.kernel, _C_NAME)
    for text in (layer.kind, layer.name, layer.engine, layer.origin, layer.why):
        _one_line(what, text)
    for number in layer.operators:
        _within(f"an operator of {what}", number, MAX_BYTES)
    _within(f"macs of {what}", layer.macs, MAX_MACS)
    if layer.products is not None:
        _within(f"products of {what}", layer.products, MAX_MACS)
    if layer.npu_cycles is not None:
        _within(f"npu_cycles of {what}", layer.npu_cycles, MAX_MACS)
    _within(f"scratch_bytes of {what}", layer.scratch_bytes, MAX_BYTES)
    _within(f"weights_bytes of {what}", layer.weights_bytes, MAX_BYTES)
    near = {pool.name: pool.size_bytes for pool in compiled.pools if pool.is_written}
    for buffer in layer.outputs:
        room = near.get(buffer.pool, 0) if buffer.pool else compiled.arena_bytes
        _check_buffer(f"output of {what}", buffer, room)
    for span in layer.pool:
        _inside(what, span, max(near.values(), default=0))
    for span in layer.arena:
        _inside(what, span, compiled.arena_bytes)
    for span in layer.constants:
        _inside(what, span, compiled.weights_bytes)


def _check_loop(loop: Loop, least: int, layers: int) -> None:
    _within("the first layer of a loop", loop.first, layers - 1, least=least)
    _within("the calls of a loop's step", loop.period, layers, least=1)
    _within("the steps of a loop", loop.steps, layers, least=1)
    _within("the end of a loop", loop.end, layers)
    _within("the number of calls that a loop leaves outputs of", len(loop.made), layers, least=1)
    for call in loop.made:
        _within("a call of a loop", call, loop.end - 1, least=loop.first)


def _check_pool(pool: MemoryPool, compiled: CompiledModel) -> None:
    what = f"pool {_short(pool.name)}"
    _matches("name of a pool", pool.name, _C_NAME)
    _within(f"limit_bytes of the {what}", pool.limit_bytes, MAX_BYTES)
    _within(f"size_bytes of the {what}", pool.size_bytes, pool.limit_bytes)
    _within(f"scratch_bytes of the {what}", pool.scratch_bytes, pool.size_bytes)
    for use in pool.uses:
        _inside(what, Span(use.offset, use.size_bytes), pool.size_bytes)
    for one in pool.residents:
        _matches(f"a table of the {what}", one.table, _C_NAME)
        _inside(what, one.constant, compiled.weights_bytes)
        _inside(what, replace(one.constant, offset=one.offset), pool.size_bytes)
        for layer in one.layers:
            _within(f"a layer of the {what}", layer, len(compiled.layers) - 1)


def _check_library(external: ExternalLibrary) -> None:
    _matches("name of the library", external.name, _LIBRARY_NAME)
    _matches("digest of the library", external.digest, _DIGEST)
    texts = (external.url, external.built_with, external.library, *external.include_dirs)
    for text in texts:
        _one_line("the library", text)
    _all_match("a function of the library", external.functions, _C_NAME)
    _all_match("an engine of the library", external.engines, _C_NAME)
    if external.initialize:
        _matches("what prepares the device for the library", external.initialize, _C_NAME)
    if len(external.registers) > MOST_WINDOWS or not all(map(is_window, external.registers)):
        raise ValueError(f"registers of the library are {_short(external.registers)}")
    _within("state_bytes of the library", external.state_bytes, MAX_BYTES)
    _all_match("an option of the library", external.zephyr_config, _ZEPHYR_OPTION)


def _within(what: str, value: int, most: int, *, least: int = 0) -> None:
    if not least <= value <= most:
        raise ValueError(f"{what} is {_short(value)}, not {least} to {most}")


def _inside(what: str, span: Span, total: int) -> None:
    if span.offset < 0 or span.size_bytes < 0 or span.offset + span.size_bytes > total:
        raise ValueError(
            f"{what} has {_short(span.size_bytes)} bytes at {_short(span.offset)}, outside of "
            f"{total}"
        )


def _matches(what: str, text: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"{what} is {_short(text)}")


def _all_match(what: str, texts: Iterable[str], pattern: re.Pattern[str]) -> None:
    for text in texts:
        _matches(what, text, pattern)


def _one_line(what: str, text: str) -> None:
    if not text.isprintable():
        raise ValueError(f"{what} has the text {_short(text)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
