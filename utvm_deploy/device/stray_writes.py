"""Finds writes of a backend's call to parts of the arena that are not its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from utvm_deploy.base.errors import DeviceError, LinkClosed, VerifyError
from utvm_deploy.compiler.compiled.memory_use import Span
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.graph.model import Array

if TYPE_CHECKING:
    from utvm_deploy.device.model import DeviceModel

_CRC_BYTES = 4


def stray_writes(model: DeviceModel, inputs: Sequence[Array]) -> tuple[Layer, ...]:
    """The layers of a backend that change bytes outside of their inputs, outputs and scratch.

    Runs layer by layer. The device computes checksums of those bytes before and after each layer,
    so that little travels over the link. Raises VerifyError that names the layer of a backend that
    does not end, or writes behind the arena.
    """
    compiled, device = model.compiled, model.device
    watched = [
        (layer, gap)
        for layer in compiled.layers
        if layer.is_external
        for gap in _gaps(layer, compiled)
    ]
    if not watched:
        return ()
    answers = device.allocate(2 * _CRC_BYTES * len(watched), "checksums around layers")
    model.set_inputs(inputs)
    for layer in compiled.layers:
        numbers = [number for number, (one, _) in enumerate(watched) if one is layer]
        for side in (0, 1):
            if side:
                _call(model, layer)
            for number in numbers:
                gap = watched[number][1]
                device.call(
                    "utvm_crc32_of",
                    model.arena_address + gap.offset,
                    gap.size_bytes,
                    answers + _CRC_BYTES * (2 * number + side),
                )
    sums = np.frombuffer(device.read(answers, 2 * _CRC_BYTES * len(watched)), "<u4").reshape(-1, 2)
    device.free(answers)
    found = (
        layer for (layer, _), (before, after) in zip(watched, sums, strict=True) if before != after
    )
    return tuple(dict.fromkeys(found))


def _call(model: DeviceModel, layer: Layer) -> None:
    """Queue a layer; that of a backend runs at once, so that it alone is blamed."""
    if not layer.is_external:
        model.call_layer(layer)
        return
    model.device.sync()
    model.call_layer(layer)
    try:
        model.device.sync()
    except (DeviceError, LinkClosed) as error:
        raise VerifyError(
            f"layer {layer.index} ({layer.kind} {layer.name}) of {layer.engine}: {error}"
        ) from error


def _gaps(layer: Layer, compiled: CompiledModel) -> Iterator[Span]:
    """The parts of the arena that a layer must not change."""
    assert compiled.status_offset is not None
    own = [*layer.arena, Span(compiled.status_offset + layer.index, 1)]
    end = 0
    for span in sorted(own, key=lambda one: one.offset):
        if span.offset > end:
            yield Span(end, span.offset - end)
        end = max(end, span.offset + span.size_bytes)
    if end < compiled.arena_bytes:
        yield Span(end, compiled.arena_bytes - end)
