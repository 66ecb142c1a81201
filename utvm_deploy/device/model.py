"""A compiled model on a device: run it whole, layer by layer, or with checks after each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from utvm_deploy.compiler.model import Buffer, CompiledModel, Layer
from utvm_deploy.errors import ModelError
from utvm_deploy.graph.model import Array
from utvm_deploy.link.base import Task

if TYPE_CHECKING:
    from utvm_deploy.device.device import Device

#: Any run is given this long, however small the model: an emulator on a busy machine may stall.
RUN_TIMEOUT_FLOOR_S = 20.0
#: On top of it, this many clock cycles for each multiply-accumulate; generic kernels on the slowest
#: core here take about 20.
RUN_TIMEOUT_CYCLES_PER_MAC = 200


@dataclass(frozen=True, eq=False)
class LayerRun:
    """What one layer left behind."""

    layer: Layer
    ticks: int
    outputs: tuple[Array, ...]


class DeviceModel:
    """A model that lies in the running image; made by ``Device.load``.

    Calling it with one array for each input gives the output array, or a tuple of them where the
    model has several. Arrays have the tensors' own types: int8, or float32 where the model's file
    says so.
    """

    def __init__(self, device: Device, compiled: CompiledModel) -> None:
        self.device = device
        self.compiled = compiled
        self._arena = device.allocate(compiled.arena_bytes, f"the arena of {compiled.name}")
        self._run = device.symbol(f"{compiled.name}_run")
        self._run_layer = device.symbol(f"{compiled.name}_run_layer")
        # One CRC-32 for each layer output, written by the device.
        self._checksums_wanted = sum(len(layer.outputs) for layer in compiled.layers)
        self._checksums: int | None = None
        clock_hz = device.board.cpu.clock_hz
        self.timeout_s = RUN_TIMEOUT_FLOOR_S + RUN_TIMEOUT_CYCLES_PER_MAC * compiled.macs / clock_hz

    def __call__(self, *inputs: Array) -> Array | tuple[Array, ...]:
        outputs, _ = self.run(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Sequence[Array]) -> tuple[tuple[Array, ...], int]:
        """Outputs, and the ticks that the whole model took."""
        self.set_inputs(inputs)
        ((ticks,),) = self.device.execute([Task(self._run, (self._arena,))], self.timeout_s)
        return tuple(self._read(buffer) for buffer in self.compiled.outputs), ticks

    def run_layers(self, *inputs: Array) -> list[LayerRun]:
        """Run layer by layer and bring back every tensor."""
        self.set_inputs(inputs)
        runs = []
        for layer in self.compiled.layers:
            ((ticks,),) = self.device.execute([self._task(layer)], self.timeout_s)
            runs.append(LayerRun(layer, ticks, tuple(self._read(b) for b in layer.outputs)))
        return runs

    def run_timed(self, inputs: Sequence[Array]) -> list[int]:
        """Run layer by layer in one batch; the ticks of each layer."""
        self.set_inputs(inputs)
        tasks = [self._task(layer) for layer in self.compiled.layers]
        return [ticks for (ticks,) in self.device.execute(tasks, self.timeout_s)]

    def run_checked(self, inputs: Sequence[Array]) -> list[tuple[int, ...]]:
        """Run layer by layer in one batch; CRC-32 of each layer's outputs.

        The device computes the checksums, so that no activation travels over the link.
        """
        if self._checksums is None:
            self._checksums = self.device.allocate(4 * self._checksums_wanted, "checksums")
        crc32_of = self.device.symbol("utvm_crc32_of")
        self.set_inputs(inputs)
        tasks, slot = [], self._checksums
        for layer in self.compiled.layers:
            tasks.append(self._task(layer))
            for buffer in layer.outputs:
                address = self._arena + buffer.offset
                tasks.append(Task(crc32_of, (address, buffer.size_bytes, slot)))
                slot += 4
        self.device.execute(tasks, self.timeout_s)
        raw = self.device.read(self._checksums, 4 * self._checksums_wanted)
        values = iter(np.frombuffer(raw, "<u4").tolist())
        return [tuple(next(values) for _ in layer.outputs) for layer in self.compiled.layers]

    def outputs(self) -> tuple[Array, ...]:
        """The outputs that the last run left in the arena."""
        return tuple(self._read(buffer) for buffer in self.compiled.outputs)

    def set_inputs(self, inputs: Sequence[Array]) -> None:
        """Check the arrays against the model's inputs and write them into the arena."""
        wanted = self.compiled.inputs
        if len(inputs) != len(wanted):
            raise ModelError(
                f"{self.compiled.name} takes {len(wanted)} input(s), {len(inputs)} given"
            )
        for position, (array, buffer) in enumerate(zip(inputs, wanted, strict=True)):
            data = checked_input(array, buffer, position)
            self.device.write(self._arena + buffer.offset, data.tobytes())

    def _task(self, layer: Layer) -> Task:
        return Task(self._run_layer, (layer.index, self._arena))

    def _read(self, buffer: Buffer) -> Array:
        data = self.device.read(self._arena + buffer.offset, buffer.size_bytes)
        return np.frombuffer(data, np.dtype(buffer.dtype)).reshape(buffer.shape)


def checked_input(array: Array, buffer: Buffer, position: int) -> Array:
    """``array`` as the model wants it; a missing leading dimension of 1 is added.

    Raises ModelError for another shape or type: values are never converted silently.
    """
    array = np.asarray(array)
    if array.dtype != np.dtype(buffer.dtype):
        hint = ""
        if buffer.dtype == "int8" and np.issubdtype(array.dtype, np.floating):
            hint = f"; quantize it: round(x / {buffer.scale:g}) + {buffer.zero_point}"
        raise ModelError(
            f"input {position} ({buffer.name}) is {buffer.dtype}, the array is {array.dtype}{hint}"
        )
    if array.shape != buffer.shape and (1, *array.shape) != buffer.shape:
        raise ModelError(
            f"input {position} ({buffer.name}) has shape {buffer.shape}, "
            f"the array has {array.shape}"
        )
    return np.ascontiguousarray(array.reshape(buffer.shape))
