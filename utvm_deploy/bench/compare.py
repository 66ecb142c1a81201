"""Two engines on the same layers, inputs and board: ours, and CMSIS-NN's kernels in the same plan.

Both models are compiled by the same pipeline from the same file; only the kernels differ. They run
one after the other on one device. Where an output differs, the other engine's later layers are
given our bytes, so that every layer is judged by equal inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from utvm_deploy.bench.compare_facts import (
    MEASURED,
    EngineSize,
    LayerComparison,
    ModelComparison,
    Placement,
)
from utvm_deploy.bench.profile import Profile, profile
from utvm_deploy.bench.samples import Samples
from utvm_deploy.compiler.model import CompiledModel, Layer
from utvm_deploy.device import Device, DeviceModel
from utvm_deploy.errors import BenchError
from utvm_deploy.graph.model import Array
from utvm_deploy.link.base import Task
from utvm_deploy.progress import Progress, no_progress

#: Asking a library for its buffer sizes takes it a few thousand instructions.
CHECK_TIMEOUT_S = 20.0

_STATUS_NAMES = {-1: "argument error", -2: "no implementation", -3: "failure"}


@dataclass(frozen=True)
class EngineRun:
    """One engine's figures and outputs on the first sample."""

    compiled: CompiledModel
    profile: Profile
    checksums: tuple[tuple[int, ...], ...]  # of each layer's outputs
    placement: Placement

    @property
    def size(self) -> EngineSize:
        """What its image takes."""
        found = self.profile
        return EngineSize(
            found.arena_bytes, found.weights_bytes, found.flash_bytes, found.ram_bytes
        )


def compare(
    device: Device,
    ours: CompiledModel,
    theirs: CompiledModel,
    samples: Samples,
    progress: Progress = no_progress,
) -> ModelComparison:
    """Run both on the first sample; BenchError if the library refuses a layer."""
    inputs = samples.inputs[0]
    progress(f"{ours.name}: our kernels on {device.board.name}", 0, 1)
    left = run_engine(device, ours, samples, progress)
    progress(f"{ours.name}: CMSIS-NN's kernels on {device.board.name}", 0, 1)
    right = run_engine(device, theirs, samples, progress)
    _check_comparable(left, right)
    differing = _differing_bytes(device, left, right, inputs, progress)
    assert theirs.external is not None
    return ModelComparison(
        name=ours.name,
        board=device.board.name,
        source=MEASURED,
        engine=f"{theirs.external.name} ({theirs.external.built_with})",
        inputs=samples.origin,
        layers=tuple(
            LayerComparison(
                index=one.layer.index,
                kind=one.layer.kind,
                name=one.layer.name,
                macs=one.layer.macs,
                kernel=one.layer.kernel.removeprefix(f"{ours.name}_"),
                ours=one.figures,
                theirs=other.figures,
                their_kernel=other.layer.why if other.layer.is_external else "",
                output_bytes=sum(buffer.size_bytes for buffer in one.layer.outputs),
                differing_bytes=differing.get(one.layer.index, 0),
            )
            for one, other in zip(left.profile.layers, right.profile.layers, strict=True)
        ),
        ours=left.profile.figures,
        theirs=right.profile.figures,
        our_size=left.size,
        their_size=right.size,
        our_placement=left.placement,
        their_placement=right.placement,
        is_modelled=left.profile.is_modelled,
    )


def run_engine(
    device: Device, compiled: CompiledModel, samples: Samples, progress: Progress = no_progress
) -> EngineRun:
    """Load, check, profile, and checksum every layer's outputs."""
    model = device.load(compiled)
    if compiled.external is not None:
        _check_scratch(device, compiled)
    found = profile(model, samples, progress)
    checksums = tuple(model.run_checked(samples.inputs[0]))
    if compiled.external is not None:
        _check_statuses(model)
    return EngineRun(compiled, found, checksums, placement_of(model))


def placement_of(model: DeviceModel) -> Placement:
    """Where a loaded model's data lie, by the addresses that they have."""
    device, compiled = model.device, model.compiled
    arena = _region(device, model.arena_address)
    weights = device.image.symbols.get(f"{compiled.name}_weights")
    return Placement(
        inputs=arena,
        outputs=arena,
        activations=arena,
        scratch=_scratch_place(device, compiled, arena),
        weights="none" if weights is None else _region(device, weights),
        stack=_stack_place(device),
    )


def _scratch_place(device: Device, compiled: CompiledModel, arena: str) -> str:
    """The arena's region, or the stack's where the model was compiled so and needs any."""
    if not compiled.stack_bytes:
        return arena
    stack = f"{_stack_place(device)}, on the stack"
    # Some may be too large for it.
    larger = sum(1 for layer in compiled.layers if layer.scratch_bytes > compiled.stack_bytes)
    return f"{stack} (of {larger} layers in {arena})" if larger else stack


def _stack_place(device: Device) -> str:
    region = device.board.data_ram
    return "memory" if device.board.is_host else f"{region.name} ({region.kind})"


def _region(device: Device, address: int) -> str:
    if device.board.is_host:
        return "memory"
    for region in device.board.memory:
        if region.address <= address < region.end:
            return f"{region.name} ({region.kind})"
    return f"0x{address:08x}"


def _check_scratch(device: Device, compiled: CompiledModel) -> None:
    """BenchError if the library wants more scratch for a layer than it was given."""
    answer = device.allocate(4, "the library's answer")
    task = Task(device.symbol(f"{compiled.name}_check_library"), (answer,))
    device.execute([task], CHECK_TIMEOUT_S)
    index = int.from_bytes(device.read(answer, 4), "little", signed=True)
    if index >= 0:
        layer = compiled.layers[index]
        assert compiled.external is not None
        raise BenchError(
            f"{compiled.external.name} wants more than the {layer.scratch_bytes} bytes of scratch "
            f"planned for layer {index} ({layer.why}); its version or build is one whose sizes are "
            f"not known here ({compiled.external.built_with})"
        )


def _check_statuses(model: DeviceModel) -> None:
    """BenchError if a function of the library returned an error."""
    compiled = model.compiled
    assert compiled.external is not None and compiled.status_offset is not None
    address = model.arena_address + compiled.status_offset
    raw = model.device.read(address, len(compiled.layers))
    for layer, status in zip(compiled.layers, np.frombuffer(raw, np.int8).tolist(), strict=True):
        if layer.is_external and status != 0:
            meaning = _STATUS_NAMES.get(status, "unknown")
            raise BenchError(
                f"{compiled.external.name} refused layer {layer.index} ({layer.kind} "
                f"{layer.name}): {layer.why} returned {status}, {meaning}"
            )


def _check_comparable(left: EngineRun, right: EngineRun) -> None:
    one, other = left.profile, right.profile
    if (one.tick_unit, len(one.layers)) != (other.tick_unit, len(other.layers)):
        raise BenchError(
            f"the two engines of {one.model} cannot be compared: {len(one.layers)} layers in "
            f"{one.tick_unit} and {len(other.layers)} in {other.tick_unit}"
        )


def _differing_bytes(
    device: Device,
    left: EngineRun,
    right: EngineRun,
    inputs: Sequence[Array],
    progress: Progress,
) -> dict[int, int]:
    """Layer -> output bytes that differ although its inputs are equal."""
    checksums = zip(left.checksums, right.checksums, strict=True)
    suspects = {index for index, (a, b) in enumerate(checksums) if a != b}
    while suspects:
        progress(f"{left.compiled.name}: comparing {len(suspects)} outputs byte for byte", 0, 1)
        expected = _outputs_of(device, left.compiled, inputs, suspects)
        found, missed = _compare_outputs(device, right, left, inputs, expected)
        if not missed:
            return found
        # A layer whose output was equal although its inputs were not, and is not now.
        suspects |= missed
    return {}


def _outputs_of(
    device: Device, compiled: CompiledModel, inputs: Sequence[Array], wanted: set[int]
) -> dict[int, list[bytes]]:
    model = device.load(compiled)
    model.set_inputs(inputs)
    outputs = {}
    for layer in compiled.layers:
        _run_layer(model, layer)
        if layer.index in wanted:
            outputs[layer.index] = [
                device.read(model.arena_address + buffer.offset, buffer.size_bytes)
                for buffer in layer.outputs
            ]
    return outputs


def _compare_outputs(
    device: Device,
    run: EngineRun,
    reference: EngineRun,
    inputs: Sequence[Array],
    expected: Mapping[int, Sequence[bytes]],
) -> tuple[dict[int, int], set[int]]:
    """Bytes that differ by layer, and layers that differ but have no expected bytes."""
    model = device.load(run.compiled)
    model.set_inputs(inputs)
    found: dict[int, int] = {}
    missed: set[int] = set()
    for layer in run.compiled.layers:
        _run_layer(model, layer)
        places = [(model.arena_address + b.offset, b.size_bytes) for b in layer.outputs]
        if layer.index in expected:
            for (address, size), wanted in zip(places, expected[layer.index], strict=True):
                got = np.frombuffer(device.read(address, size), np.uint8)
                wrong = int((got != np.frombuffer(wanted, np.uint8)).sum())
                found[layer.index] = found.get(layer.index, 0) + wrong
                if wrong:
                    device.write(address, wanted)
        else:
            checksums = tuple(device.checksum(address, size) for address, size in places)
            if checksums != reference.checksums[layer.index]:
                missed.add(layer.index)
    return found, missed


def _run_layer(model: DeviceModel, layer: Layer) -> None:
    run_layer = model.device.symbol(f"{model.compiled.name}_run_layer")
    model.device.execute([Task(run_layer, (layer.index, model.arena_address))], model.timeout_s)
