"""Two engines on the same layers, inputs and board: ours, and CMSIS-NN's kernels in the same plan.

Both models are compiled by the same pipeline from the same file; only the kernels differ. They run
one after the other on one device. If an output differs, the other engine's later layers get our
bytes, so that every layer has equal inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.base.errors import BenchError, UtvmError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.external_library import ExternalLibrary
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.comparing import facts
from utvm_deploy.results.profiling.layer_costs import Profile, profile
from utvm_deploy.results.profiling.placement import Placement


@dataclass(frozen=True)
class EngineRun:
    """One engine's figures and outputs on the first sample."""

    compiled: CompiledModel
    profile: Profile
    checksums: tuple[tuple[int, ...], ...]  # of each layer's outputs

    @property
    def placement(self) -> Placement:
        """Where its data lay."""
        return self.profile.placement

    @property
    def size(self) -> facts.EngineSize:
        """What its image takes."""
        found = self.profile
        return facts.EngineSize(
            found.arena_bytes, found.weights_bytes, found.flash_bytes, found.ram_bytes
        )


def compare(
    device: Device,
    ours: CompiledModel,
    theirs: CompiledModel,
    samples: Samples,
    progress: Progress = no_progress,
) -> facts.ModelComparison:
    """Run both on the first sample; BenchError if the library refuses a layer."""
    return compare_builds(device, ours, {"": theirs}, samples, progress)


def compare_builds(
    device: Device,
    ours: CompiledModel,
    theirs: Mapping[str, CompiledModel],
    samples: Samples,
    progress: Progress = no_progress,
) -> facts.ModelComparison:
    """Compare with each build of the library, by its label; the result is that of the fastest.

    A user links one build, so one build is chosen for the whole model, by its whole run.
    """
    progress(f"{ours.name}: our kernels on {device.board.name}", 0, 1)
    left = run_engine(device, ours, samples, progress)
    found = {}
    for label, compiled in theirs.items():
        which = f" (build {label})" if label else ""
        progress(
            f"{ours.name}: {_library(compiled).name}'s kernels{which} on {device.board.name}", 0, 1
        )
        try:
            found[label] = _compare_with(device, left, compiled, samples, progress)
        except UtvmError as error:
            if not label:
                raise
            raise BenchError(f"with {_library(compiled).name}'s build {label}: {error}") from error
    headline = next(iter(left.profile.figures))
    fastest = min(found, key=lambda label: (found[label].theirs or {})[headline])
    if len(found) == 1:
        return found[fastest]
    return replace(
        found[fastest],
        engine=_engine(theirs[fastest], fastest),
        build=fastest,
        builds=tuple(
            facts.BuildRun(
                label,
                _library(theirs[label]).built_with,
                one.theirs or {},
                tuple(layer.index for layer in one.differing_layers),
            )
            for label, one in found.items()
        ),
    )


def run_in_file(
    device: Device,
    theirs: Mapping[str, CompiledModel],
    samples: Samples,
    headline: str,
    progress: Progress = no_progress,
) -> facts.BuildRun | None:
    """The fastest build's whole run of models with all channels of the file; None without any."""
    found = []
    for label, compiled in theirs.items():
        progress(
            f"{compiled.name}: {_library(compiled).name}'s kernels on all channels of the file",
            0,
            1,
        )
        _, ticks = device.load(compiled).run(samples.inputs[0])
        figures = device.figures([ticks])[0]
        found.append(facts.BuildRun(label, _library(compiled).built_with, figures, ()))
    return min(found, key=lambda one: one.figures[headline], default=None)


def _engine(compiled: CompiledModel, build: str = "") -> str:
    library = _library(compiled)
    return f"{library.name}{f', build {build}' if build else ''} ({library.built_with})"


def _library(compiled: CompiledModel) -> ExternalLibrary:
    assert compiled.external is not None
    return compiled.external


def _compare_with(
    device: Device, left: EngineRun, theirs: CompiledModel, samples: Samples, progress: Progress
) -> facts.ModelComparison:
    ours, inputs = left.compiled, samples.inputs[0]
    right = run_engine(device, theirs, samples, progress)
    _check_comparable(left, right)
    differing = _differing_bytes(device, left, right, inputs, progress)
    return facts.ModelComparison(
        name=ours.name,
        board=device.board.name,
        source=facts.MEASURED,
        engine=_engine(theirs),
        inputs=samples.origin,
        layers=tuple(
            facts.LayerComparison(
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
    """Load, profile, and checksum every layer's outputs."""
    model = device.load(compiled)
    found = profile(model, samples, progress)
    checksums = tuple(model.run_checked(samples.inputs[0]))
    return EngineRun(compiled, found, checksums)


def _check_comparable(left: EngineRun, right: EngineRun) -> None:
    one, other = left.profile, right.profile
    if (one.tick_unit, len(one.layers)) != (other.tick_unit, len(other.layers)):
        raise BenchError(
            f"the two engines of {one.model} cannot be compared: {len(one.layers)} layers in "
            f"{one.tick_unit} and {len(other.layers)} in {other.tick_unit}"
        )


def _differing_bytes(
    device: Device, left: EngineRun, right: EngineRun, inputs: Sequence[Array], progress: Progress
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
        model.call_layer(layer)
        if layer.index in wanted:
            outputs[layer.index] = [
                device.read(model.address_of(buffer), buffer.size_bytes) for buffer in layer.outputs
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
        model.call_layer(layer)
        places = [(model.address_of(b), b.size_bytes) for b in layer.outputs]
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
