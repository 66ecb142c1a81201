"""A compiled model on a device: run it whole, layer by layer, or with layers replaced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.results import Tabled
from utvm_deploy.compiler.compiled.file_layers import FileLayer, layers_of_file
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel, Layer, first_bytes
from utvm_deploy.device.calls import Argument, Call
from utvm_deploy.device.external import check_scratch, check_statuses, initialize
from utvm_deploy.device.layer_runs import (
    LayerRun,
    LayerRuns,
    arrays_of_calls,
    checked_array,
    checked_inputs,
    runs_of_file,
)
from utvm_deploy.device.link.deadlines import LAYER_FLOOR_S
from utvm_deploy.device.module import Module
from utvm_deploy.device.pools import DevicePools
from utvm_deploy.device.pushed_rows import PushedRows
from utvm_deploy.device.torch_tensors import arrays_of, has_tensors, tensors_of
from utvm_deploy.device.training import (
    TrainingCurve,
    restore,
    stored_weights,
    train,
    train_step,
)
from utvm_deploy.device.workspace_blocks import Block
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name

if TYPE_CHECKING:
    from utvm_deploy.device.device import Device

#: What stands for a layer in ``run_layers``: the reference's tensors, or these arrays.
REFERENCE = "reference"
Replacement = str | Array | Sequence[Array]
NONE_REPLACED: Mapping[int, tuple[Array, ...]] = {}


class DeviceModel(Tabled):
    """A model in the running image or in RAM; made by ``Device.load``.

    Calling it with one array for each input gives the output array, or a tuple of them if the model
    has several. Arrays have the tensors' types: int8, or float32 if the model's file says so.
    PyTorch tensors in give PyTorch tensors out.
    """

    def __init__(
        self, device: Device, compiled: CompiledModel, module: Module | None = None
    ) -> None:
        self.device = device
        self.compiled = compiled
        self._module = module
        self._session = device.session
        self._run = self._address(compiled.run_function)
        self._run_layer = self._address(f"{compiled.name}_run_layer")
        self._arena_block = self._session.allocate(
            compiled.arena_bytes, f"the arena of {compiled.name}", compiled.arena_alignment
        )
        self._arena_block.is_shown = True
        self._pools = DevicePools(self, is_in_ram=module is not None)
        rows = compiled.input_rows
        self._pushed = None if rows is None else PushedRows(self, rows)
        # One CRC-32 for each layer output, written by the device.
        self._checksums_wanted = sum(len(layer.outputs) for layer in compiled.layers)
        self._checksums: int | None = None
        #: The deadline of a whole run, in seconds of the device's clock.
        self.timeout_s = sum(map(self._layer_s, compiled.layers))
        self._pools.load()
        initialize(self)
        check_scratch(self)
        self.reset_state()

    @property
    def headline(self) -> str:
        """The model, its board and what it takes there."""
        state = f"in {'RAM' if self._module else 'the image'}"
        if self._arena_block.is_freed:
            state = "unloaded"
        elif self._session.ended:
            state = f"lost, because {self._session.ended}"
        return f"{self.compiled.headline}; {state}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer, as of the compiled model; the device is not asked."""
        return self.compiled.table

    @property
    def svg(self) -> str | None:
        """The picture of the compiled model."""
        return self.compiled.svg

    def __str__(self) -> str:
        return f"model {self.compiled.name}"

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of outputs: tensors if any input is a PyTorch tensor."""
        is_torch = has_tensors(inputs)
        outputs: Sequence[Any]
        outputs, _ = self.run(arrays_of(inputs) if is_torch else inputs)
        if is_torch:
            outputs = tensors_of(outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, inputs: Sequence[Array]) -> tuple[tuple[Array, ...], int]:
        """Outputs, and the ticks that the whole model took."""
        self.set_inputs(inputs)
        ticks = self.call_run() if self._pushed is None else self._pushed.push_all()
        check_statuses(self)
        return self.outputs(), ticks

    def call_run(self, *arguments: Argument, blocks: Sequence[Block] = ()) -> int:
        """Call what runs the model, with the arena and these arguments; the ticks of the call."""
        call = self._session.call(
            self._run,
            self.compiled.run_function,
            (self._arena, *self._pools.addresses, *arguments),
            timeout_s=self.timeout_s,
            blocks=(self._arena_block, *self._pools.blocks, *blocks),
        )
        (ticks,) = call.ticks.all
        return ticks

    def step(self, inputs: Sequence[Array]) -> tuple[tuple[Array, ...], int]:
        """Outputs and ticks of a step of a model that also takes blocks; else of a run."""
        if self.compiled.prefill is None:
            return self.run(inputs)
        ticks = self._call_part("step", self.compiled.step_inputs, inputs)
        return self.outputs(), ticks

    def prefill(self, inputs: Sequence[Array]) -> int:
        """Take a block of steps, which changes the state alone; the ticks that it took.

        Raises ModelError if the model takes no blocks, and for places that do not exist.
        """
        if self.compiled.prefill is None:
            raise ModelError(f"{self.compiled.name} takes no blocks of steps; run each step")
        return self._call_part("prefill", self.compiled.block_inputs, inputs)

    def _call_part(self, part: str, wanted: Sequence[Buffer], inputs: Sequence[Array]) -> int:
        self._check()
        arrays = checked_inputs(self.compiled, inputs, wanted)
        for array, buffer in zip(arrays, wanted, strict=True):
            self._session.write(self._arena + buffer.offset, array.tobytes())
        name = f"{self.compiled.name}_{part}"
        given = (self._arena, *self._pools.addresses)
        ticks = self.call_function(
            name, *given, timeout_s=self.timeout_s, blocks=self._pools.blocks
        ).ticks.all
        check_statuses(self)
        return ticks[0]

    def run_layers(
        self,
        *inputs: Array,
        replace: Mapping[int, Replacement] | None = None,
        reference: Mapping[int, Array] | None = None,
    ) -> LayerRuns:
        """Run layer by layer and return every tensor.

        A layer in strips is one layer here, with its whole output, and so is a loop, with the
        outputs that are read after it. Its index is that of its first call. A layer in ``replace``
        does not run. Its outputs become the given arrays. Where it says "reference", they become
        those of ``reference`` (file position -> array, see ``oracle.reference``).
        """
        replace = replace or {}
        layers = layers_of_file(self.compiled.layers, self.compiled.loops)
        self._check_replaced(replace, layers)
        arrays: dict[int, tuple[Array, ...]] = {}
        for one in layers:
            index = one.layer.index
            if index in replace:
                given = self._replacement(one.layer, replace[index], reference)
                arrays.update(arrays_of_calls(one, given))
        return runs_of_file(layers, self.run_calls(*inputs, replace=arrays))

    def run_calls(
        self, *inputs: Array, replace: Mapping[int, tuple[Array, ...]] = NONE_REPLACED
    ) -> list[LayerRun]:
        """As ``run_layers``, for each call of the compiled model: strips are separate.

        ``replace`` has the outputs of calls that do not run.
        """
        self.set_inputs(inputs)
        runs: list[LayerRun] = []
        for layer in self.compiled.layers:
            if layer.index in replace:
                for buffer, array in zip(layer.outputs, replace[layer.index], strict=True):
                    self._session.write(self.address_of(buffer), array.tobytes())
                runs.append(LayerRun(layer, 0, replace[layer.index], is_replaced=True))
                continue
            (ticks,) = self.call_layer(layer).ticks.all
            runs.append(LayerRun(layer, ticks, tuple(self._read(b) for b in layer.outputs)))
        return runs

    def reference_outputs(self, layer: Layer, reference: Mapping[int, Array]) -> tuple[Array, ...]:
        """What the reference has for a layer, or for a call: some rows, if it is a strip."""
        return self._replacement(layer, REFERENCE, reference)

    def _check_replaced(self, replace: Collection[int], layers: Sequence[FileLayer]) -> None:
        unknown = sorted(set(replace) - {one.layer.index for one in layers})
        for index in unknown:
            for one in layers:
                if index in {call.index for call in one.calls}:
                    raise ModelError(
                        f"call {index} of {self.compiled.name} is a part of layer "
                        f"{one.layer.index}; replace the whole layer {one.layer.index}"
                    )
            raise ModelError(
                f"{self.compiled.name} has no layer {index} to replace; "
                f"its layers are 0 to {layers[-1].layer.index}"
            )

    def run_timed(self, inputs: Sequence[Array]) -> list[int]:
        """Run layer by layer as one task list; the ticks of each call."""
        self.set_inputs(inputs)
        calls = [self.call_layer(layer) for layer in self.compiled.layers]
        check_statuses(self)
        return [call.ticks.all[0] for call in calls]

    def run_checked(self, inputs: Sequence[Array]) -> list[tuple[int, ...]]:
        """Run layer by layer as one task list; CRC-32 of each layer's outputs.

        The device computes the checksums, so that no activation travels over the link.
        """
        return self.run_corrected(inputs, (), {})[0]

    def run_corrected(
        self, inputs: Sequence[Array], corrected: Collection[int], reference: Mapping[int, Array]
    ) -> tuple[list[tuple[int, ...]], dict[int, tuple[Array, ...]]]:
        """Run layer by layer; after each layer in ``corrected``, put the reference's outputs there.

        Returns the CRC-32 of the outputs of each layer, 0 for those in ``corrected``, and what the
        layers in ``corrected`` made.
        """
        self._check()
        if self._checksums is None:
            self._checksums = self.device.allocate(4 * self._checksums_wanted, "checksums")
        self.set_inputs(inputs)
        if corrected:  # the sums of these stay 0
            self._session.write(self._checksums, bytes(4 * self._checksums_wanted))
        slot = self._checksums
        made: dict[int, tuple[Array, ...]] = {}
        for layer in self.compiled.layers:
            self.call_layer(layer)
            if layer.index in corrected:
                made[layer.index] = tuple(self._read(buffer) for buffer in layer.outputs)
                right = self._replacement(layer, REFERENCE, reference)
                for buffer, array in zip(layer.outputs, right, strict=True):
                    self._session.write(self.address_of(buffer), array.tobytes())
                slot += 4 * len(layer.outputs)
                continue
            for buffer in layer.outputs:
                address = self.address_of(buffer)
                self.device.call("utvm_crc32_of", address, buffer.size_bytes, slot)
                slot += 4
        raw = self.device.read(self._checksums, 4 * self._checksums_wanted)
        check_statuses(self)
        values = iter(np.frombuffer(raw, "<u4").tolist())
        sums = [tuple(next(values) for _ in layer.outputs) for layer in self.compiled.layers]
        return sums, made

    def call_function(
        self, function: str, *arguments: Argument, timeout_s: float, blocks: Sequence[Block] = ()
    ) -> Call:
        """Queue a call of another function of the model."""
        address = self._address(function)
        used = (self._arena_block, *blocks)
        return self._session.call(address, function, arguments, timeout_s=timeout_s, blocks=used)

    def _address(self, function: str) -> int:
        if self._module is None:
            return self.device.symbol(function)
        return self._module[function].address

    def call_layer(self, layer: Layer) -> Call:
        """Queue one layer, which reads from the arena what earlier layers wrote there."""
        if self._pushed is not None:
            self._pushed.place(layer)
        return self._session.call(
            self._run_layer,
            f"{self.compiled.name}_run_layer",
            (layer.index, self._arena, *self._pools.addresses),
            timeout_s=self._layer_s(layer),
            blocks=(self._arena_block, *self._pools.blocks),
        )

    @property
    def weights_address(self) -> int | None:
        """The address of its constant tables; None if it has none."""
        name = f"{self.compiled.name}_weights"
        if not self.compiled.weights_bytes:
            return None
        return self.device.symbol(name) if self._module is None else self._module.address(name)

    @property
    def arena_address(self) -> int:
        """The address of the model's arena on the device; buffers' offsets count from there."""
        return self._arena

    @property
    def pool_addresses(self) -> tuple[int, ...]:
        """Where the pools begin, in the order of ``CompiledModel.pools``."""
        return self._pools.addresses

    def address_of(self, buffer: Buffer) -> int:
        """Where a tensor is: in the arena, or in a pool."""
        return (self._pools.address(buffer.pool) if buffer.pool else self._arena) + buffer.offset

    def train(
        self, data: Any, *, epochs: int = 1, rate: float | None = None, seed: int = 0
    ) -> TrainingCurve:
        """Train the model here; its weights stay as they are after the last step.

        - ``data`` is a pair of arrays, all inputs and all labels, or gives (input, label) for each
          step. Then it is read as the steps need it.
        - Each of ``epochs`` takes all of the data; pairs of arrays in an order by ``seed``.
        - ``rate`` is the learning rate from now on; by default it stays.

        Raises UsageError if the model cannot train or the data are empty. Raises ModelError for a
        label out of range, and for a loss that is not finite; that step has changed no weight.
        """
        return train(self, data, epochs, seed, rate)

    def train_step(self, inputs: Sequence[Array], label: Any) -> tuple[float, int]:
        """One step of training: the loss before it, and its ticks. Raises as ``train`` does."""
        return train_step(self, inputs, label)

    def weights(self) -> bytes:
        """The weights that train, as ``NAME_store`` gives them, to ``restore`` them later."""
        return stored_weights(self)

    def restore(self, weights: bytes) -> None:
        """Take weights that ``weights`` gave, and forget what the optimizer knows.

        Raises ModelError for damaged ones, and for those of another model.
        """
        restore(self, weights)

    def reset_state(self) -> None:
        """Clear the state that earlier runs left; does nothing for a model without state."""
        if self.compiled.training is not None:
            reset = f"{self.compiled.name}_reset"
            self.call_function(reset, self._arena, timeout_s=self.timeout_s)
            return
        self.set_state([first_bytes(state) for state in self.compiled.states])

    def state(self) -> list[bytes]:
        """The state that the last run left for the next one."""
        return [
            self._session.read(self._arena + b.offset, b.size_bytes) for b in self.compiled.states
        ]

    def set_state(self, state: Sequence[bytes]) -> None:
        """Set the state that the next run reads; lengths are those of ``state``."""
        for buffer, data in zip(self.compiled.states, state, strict=True):
            if len(data) != buffer.size_bytes:
                raise ModelError(
                    f"{len(data)} bytes do not make a state {buffer.name} of "
                    f"{buffer.size_bytes} bytes"
                )
            self._session.write(self._arena + buffer.offset, data)

    def outputs(self) -> tuple[Array, ...]:
        """The outputs that the last run left in the arena."""
        return tuple(self._read(buffer) for buffer in self.compiled.outputs)

    def set_inputs(self, inputs: Sequence[Array]) -> None:
        """Check the arrays against the model's inputs and write them into the arena."""
        self._check()
        arrays = checked_inputs(self.compiled, inputs)
        if self._pushed is not None:
            self._pushed.begin(arrays[0].tobytes())
            return
        for array, buffer in zip(arrays, self.compiled.inputs, strict=True):
            self._session.write(self._arena + buffer.offset, array.tobytes())

    def unload(self) -> None:
        """Give the arena back, and the code of a model in RAM."""
        if not self._arena_block.is_freed:
            self._session.free(self._arena_block)
        self._pools.free()
        if self._checksums is not None and not self._session.ended:
            self.device.free(self._checksums)
            self._checksums = None
        if self._module is not None:
            self._module.unload()

    def _check(self) -> None:
        self._session.check(str(self))
        if self._arena_block.is_freed:
            raise ModelError(f"{self} was unloaded; load it again")

    @property
    def _arena(self) -> int:
        self._check()
        return self._arena_block.address

    def _layer_s(self, layer: Layer) -> float:
        """The most seconds of a layer, by the bytes that it touches and its multiplications."""
        size = sum(span.size_bytes for span in (*layer.arena, *layer.pool, *layer.constants))
        return self._session.speeds.task_s(size, layer.macs, LAYER_FLOOR_S)

    def _replacement(
        self, layer: Layer, given: Replacement, reference: Mapping[int, Array] | None
    ) -> tuple[Array, ...]:
        """The arrays that become the layer's outputs."""
        what = f"layer {layer.index} ({short_name(layer.name)})"
        if isinstance(given, str):
            if given != REFERENCE:
                raise ModelError(f"{what} is replaced by {REFERENCE!r} or by arrays, not {given!r}")
            if reference is None:
                raise ModelError(
                    f"{what} should be replaced by the reference; give reference=, "
                    f"the tensors of oracle.reference.run_reference"
                )
            missing = [b.name for b in layer.outputs if b.source not in reference]
            if missing:
                raise ModelError(f"{what}: the model file has no tensor for {missing[0]}")
            arrays = [b.of_file(reference[b.source]) for b in layer.outputs if b.source is not None]
        else:
            arrays = [given] if isinstance(given, np.ndarray) else list(given)
        if len(arrays) != len(layer.outputs):
            raise ModelError(f"{what} has {len(layer.outputs)} output(s), {len(arrays)} given")
        return tuple(
            checked_array(array, buffer, f"the replacement of {what}")
            for array, buffer in zip(arrays, layer.outputs, strict=True)
        )

    def _read(self, buffer: Buffer) -> Array:
        data = self._session.read(self.address_of(buffer), buffer.size_bytes)
        return np.frombuffer(data, np.dtype(buffer.dtype)).reshape(buffer.shape)
