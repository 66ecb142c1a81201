"""Every output byte and every layer of a model on a board against the reference interpreter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import VerifyError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import one_line
from utvm_deploy.compiler.compiled.file_layers import FileLayer, layers_of_file
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.device import DeviceModel
from utvm_deploy.device.stray_writes import stray_writes
from utvm_deploy.graph.float_bounds import EXACT, Bound, outside
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.reference import ReferenceRun
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.oracle.shadow import Shadow
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.results.verifying.bounds import (
    Tensors,
    bounds_of,
    checksum_of,
    corrected_run,
    whole_bound,
)


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of a tensor.

    Of a layer in strips, the tensor is the strip where it starts, and ``element`` is a position in
    the whole output.
    """

    sample: int
    tensor: str
    element: tuple[int, ...]
    got: float
    expected: float
    wrong_elements: int
    elements: int
    # Of a loop or a layer in strips: the call that made them, as ``NAME_run_layer`` counts.
    call: int | None = None


@dataclass(frozen=True)
class LayerCheck:
    """One layer over all samples that were run."""

    layer: Layer  # as ``layers_of_file`` gives it: with all of its strips
    samples: int  # compared; 0 where the file has no such tensor (a pass made it)
    bytes_each: int
    mismatch: Mismatch | None
    bound: Bound = EXACT


@dataclass(frozen=True, repr=False)
class Verification:
    """What ``verify`` found; it stops at the first sample that differs."""

    board: str
    model: str
    reference: str
    samples: str
    samples_run: int
    output_bytes: int  # compared, over all samples
    layer_bytes: int
    mismatches: tuple[Mismatch, ...]  # of the model's outputs
    golden_differs: bool  # the golden file and the reference interpreter disagree
    layers: tuple[LayerCheck, ...]
    bound: Bound = EXACT  # of the model's float32 outputs
    shadow: Shadow | None = None
    allows_float_gap: bool = False

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """What was compared, and how it went."""
        verdict = "equal to" if self.bound.is_exact else "within bounds of"
        if not self.is_right:
            verdict = "DIFFERS from"
        gap = "" if self.float_gap is None else f"{self.float_gap}; "
        return (
            f"{gap}{self.model} on {self.board}: {self.samples_run} samples, "
            f"{len(self.layers)} layers, {verdict} {self.reference}"
        )

    @property
    def ok(self) -> bool:
        """Whether the board is right, and the reference near float32, or a gap is allowed."""
        return self.is_right and (self.float_gap is None or self.allows_float_gap)

    @property
    def float_gap(self) -> str | None:
        """Which layers the reference itself computes wrongly, as their float32 shows."""
        gaps = self.shadow.gaps if self.shadow is not None else ()
        if not gaps:
            return None
        worst = max(gaps, key=lambda gap: gap.steps)
        more = len(gaps) - 1
        others = f"; further gaps: {more}" if more else ""
        return f"FLOAT GAP: {worst.text}{others}"

    @property
    def is_right(self) -> bool:
        """Whether every byte compared is equal, or every float32 within its bound."""
        wrong_layers = any(check.mismatch for check in self.layers)
        return not (self.mismatches or self.golden_differs or wrong_layers)


def verify(
    model: DeviceModel,
    model_path: Path,
    samples: Samples,
    progress: Progress = no_progress,
    *,
    reference: ReferenceRun | None = None,
    allow_float_gap: bool = False,
) -> Verification:
    """Run ``samples`` on the device and compare with LiteRT's reference kernels.

    ``reference`` is the reference's result for these samples, if the caller has it already. If it
    has the shadow, a layer that is too far from its float32 computation makes the result not ok.

    Layers are compared by checksums computed on the device; the bytes of a wrong one are fetched.
    Layers that need not have equal bits are fetched and compared within their bounds, given the
    reference's inputs. Behind one of these, outputs of integers are compared by their layers only.
    """
    compiled = model.compiled
    if reference is None:
        progress("running the reference interpreter", 0, 1)
        reference = run_oracle(model_path, samples.inputs)
    mismatches: list[Mismatch] = []
    wrong_layers: dict[int, Mismatch] = {}
    bounds = bounds_of(compiled, reference.reference)
    whole = whole_bound(bounds)
    golden_differs = False
    done = 0
    model.reset_state()
    for index, inputs in enumerate(samples.inputs):
        progress(f"verifying on {compiled.board}: sample", index + 1, len(samples.inputs))
        expected = reference.outputs[index]
        state = model.state()
        if index == 0:
            _check_stray_writes(model, inputs)
            model.set_state(state)
        outputs, _ = model.run(inputs)
        mismatches += _compare(compiled, index, outputs, expected, whole)
        if samples.outputs is not None:
            golden_differs |= not _equal(samples.outputs[index], expected)
        # Layers are run again, from the same state on.
        wrong_layers = _check_layers(model, reference, index, inputs, state, bounds)
        done += 1
        if mismatches or wrong_layers or golden_differs:
            break
    checks = tuple(
        LayerCheck(
            layer=one.layer,
            samples=done if any(b.source is not None for b in one.layer.outputs) else 0,
            bytes_each=sum(b.size_bytes for b in one.layer.outputs if b.source is not None),
            mismatch=mismatch_of(one, wrong_layers),
            bound=max(
                (bounds[call.index] for call in one.calls), key=lambda b: (b.ulps, b.relative)
            ),
        )
        for one in layers_of_file(compiled.layers, compiled.loops)
    )
    return Verification(
        board=compiled.board,
        model=compiled.name,
        reference=reference.reference,
        samples=samples.origin,
        samples_run=done,
        output_bytes=done * sum(buffer.size_bytes for buffer in compiled.outputs),
        layer_bytes=sum(check.samples * check.bytes_each for check in checks),
        mismatches=tuple(mismatches),
        golden_differs=golden_differs,
        layers=checks,
        bound=whole,
        shadow=reference.shadow,
        allows_float_gap=allow_float_gap,
    )


def _check_stray_writes(model: DeviceModel, inputs: Sequence[Array]) -> None:
    """VerifyError if a layer of a backend writes to a part of the arena that is not its own."""
    for layer in stray_writes(model, inputs):
        raise VerifyError(
            f"{layer.engine} wrote outside of the outputs and the scratch of layer {layer.index} "
            f"({layer.kind} {layer.name}); correct the C of {layer.why}"
        )


def _compare(
    compiled: CompiledModel,
    sample: int,
    got: Sequence[Array],
    expected: Sequence[Array],
    bound: Bound,
) -> list[Mismatch]:
    found = []
    for buffer, ours, theirs in zip(compiled.outputs, got, expected, strict=True):
        if not bound.is_exact and ours.dtype != np.float32:
            continue  # rounding turns the least difference into a step; its layer is compared
        mismatch = first_difference(sample, buffer.name, ours, theirs, bound)
        if mismatch is not None:
            found.append(mismatch)
    return found


def _check_layers(
    model: DeviceModel,
    reference: ReferenceRun,
    sample: int,
    inputs: Sequence[Array],
    state: Sequence[bytes],
    bounds: Mapping[int, Bound],
) -> dict[int, Mismatch]:
    tensors, layers = reference.tensors[sample], model.compiled.layers
    wrong: dict[int, Mismatch] = {}
    made: Mapping[int, Sequence[Array]] = {}
    model.set_state(state)
    if all(bound.is_exact for bound in bounds.values()):
        is_right = all(
            checksum == checksum_of(buffer.of_file(tensors[buffer.source]))
            for layer, sums in zip(layers, model.run_checked(inputs), strict=True)
            for buffer, checksum in zip(layer.outputs, sums, strict=True)
            if buffer.source is not None
        )
    else:
        is_right, made = corrected_run(model, inputs, bounds, tensors)
    for index, arrays in made.items():
        _compare_layer(wrong, sample, layers[index], arrays, tensors, bounds[index])
    if is_right:
        return wrong
    # The bytes of the exact layers; the reference's tensors stand for the others.
    model.set_state(state)
    right = {index: model.reference_outputs(layers[index], tensors) for index in made}
    for run in model.run_calls(*inputs, replace=right):
        if not run.is_replaced:
            bound = bounds[run.layer.index]
            _compare_layer(wrong, sample, run.layer, run.outputs, tensors, bound)
    return wrong


def _compare_layer(
    wrong: dict[int, Mismatch],
    sample: int,
    layer: Layer,
    arrays: Sequence[Array],
    tensors: Tensors,
    bound: Bound,
) -> None:
    """Add where a layer's outputs begin to differ from the reference's, if they do."""
    for buffer, array in zip(layer.outputs, arrays, strict=True):
        if buffer.source is None:
            continue
        expected = buffer.of_file(tensors[buffer.source])
        mismatch = first_difference(sample, buffer.name, array, expected, bound)
        if mismatch is not None:
            wrong.setdefault(layer.index, mismatch)


def mismatch_of(layer: FileLayer, wrong: Mapping[int, Mismatch]) -> Mismatch | None:
    """Where a layer begins to differ; ``wrong`` has the calls that do, by their indices."""
    calls = [call for call in layer.calls if call.index in wrong]
    if not calls:
        return None
    first = wrong[calls[0].index]
    rows = calls[0].outputs[0].rows
    if layer.loop is not None:
        return replace(first, call=calls[0].index)
    if not layer.is_streamed:
        return first
    element = first.element
    if rows is not None:
        axis = calls[0].outputs[0].row_axis
        element = (*element[:axis], element[axis] + rows[0], *element[axis + 1 :])
    # Rows that were only moved count if no strip differs.
    strips = [call for call in layer.strips if call.index in wrong] or calls
    return replace(
        first,
        element=element,
        wrong_elements=sum(wrong[call.index].wrong_elements for call in strips),
        elements=math.prod(layer.layer.outputs[0].shape),
        call=calls[0].index,
    )


def _equal(left: Sequence[Array], right: Sequence[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


def first_difference(
    sample: int, name: str, got: Array, expected: Array, bound: Bound = EXACT
) -> Mismatch | None:
    """Where and how much two tensors differ by more than the bound; None if they do not.

    -0.0 and 0.0 differ. What is not a number is equal: its sign and payload depend on the core.
    """
    expected = expected.reshape(got.shape)
    wrong = outside(bound, got, expected)
    if not wrong.any():
        return None
    element = tuple(int(i) for i in np.argwhere(wrong)[0])
    return Mismatch(
        sample=sample,
        tensor=name,
        element=element,
        got=float(got[element]),
        expected=float(expected[element]),
        wrong_elements=int(wrong.sum()),
        elements=int(wrong.size),
    )
