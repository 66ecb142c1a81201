"""Which layers of a model are wrong by themselves, not because of a wrong one before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.compiled.model import Layer
from utvm_deploy.device import DeviceModel, LayerRun
from utvm_deploy.graph.float_bounds import Bound
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.reference import ReferenceRun, run_reference
from utvm_deploy.results.verifying.bounds import bounds_of
from utvm_deploy.results.verifying.on_board import Mismatch, first_difference, mismatch_of


@dataclass(frozen=True)
class WrongLayer:
    """A layer that makes wrong bytes of right ones."""

    layer: Layer
    mismatch: Mismatch


@dataclass(frozen=True)
class Bisection:
    """What ``bisect`` found; ``passes`` is how often the model ran."""

    model: str
    board: str
    reference: str
    wrong: tuple[WrongLayer, ...]  # in order
    passes: int


def bisect(model: DeviceModel, model_path: Path, *inputs: Array) -> Bisection:
    """Find every layer that is wrong by itself.

    The first layer that differs from the reference is wrong: all before it were right. With it
    replaced by the reference, the next one that differs is, too, and so on.
    """
    computed = run_reference(model_path, [list(inputs)])
    reference = computed.tensors[0]
    bounds = bounds_of(model.compiled, computed.reference)
    if any(not bound.is_exact for bound in bounds.values()):
        return _of_bounded(model, computed, bounds, inputs)
    compiled = model.compiled
    layers = layers_of_file(compiled.layers)
    replace: dict[int, tuple[Array, ...]] = {}
    wrong: list[WrongLayer] = []
    while True:
        model.reset_state()  # the reference began with none
        first = _first_wrong(model.run_calls(*inputs, replace=replace), reference)
        if first is None:
            passes = len(wrong) + 1
            in_order = sorted(wrong, key=lambda found: found.layer.index)
            return Bisection(
                compiled.name, compiled.board, computed.reference, tuple(in_order), passes
            )
        # All strips of a layer are replaced together.
        one = next(one for one in layers if first.layer.index in {call.index for call in one.calls})
        mismatch = mismatch_of(one, {first.layer.index: first.mismatch})
        assert mismatch is not None, "the call is one of the layer's"
        wrong.append(WrongLayer(one.layer, mismatch))
        replace |= {
            call.index: model.reference_outputs(call, reference)
            for call in one.calls
            if call.outputs[0].source is not None
        }


def _of_bounded(
    model: DeviceModel, computed: ReferenceRun, bounds: Mapping[int, Bound], inputs: Sequence[Array]
) -> Bisection:
    """As ``bisect``, where some layers need not have equal bits: one run shows all wrong ones."""
    compiled, reference = model.compiled, computed.tensors[0]
    known = [
        layer.index
        for layer in compiled.layers
        if all(buffer.source in reference for buffer in layer.outputs)
    ]
    model.reset_state()
    _, made = model.run_corrected(inputs, known, reference)
    wrong: dict[int, Mismatch] = {}
    for index, arrays in made.items():
        for buffer, array in zip(compiled.layers[index].outputs, arrays, strict=True):
            assert buffer.source is not None
            expected = buffer.of_file(reference[buffer.source])
            mismatch = first_difference(0, buffer.name, array, expected, bounds[index])
            if mismatch is not None:
                wrong.setdefault(index, mismatch)
    layers = tuple(
        WrongLayer(one.layer, mismatch)
        for one in layers_of_file(compiled.layers)
        if (mismatch := mismatch_of(one, wrong)) is not None
    )
    return Bisection(compiled.name, compiled.board, computed.reference, layers, 1)


def _first_wrong(runs: list[LayerRun], reference: Mapping[int, Array]) -> WrongLayer | None:
    for run in runs:
        for buffer, array in zip(run.layer.outputs, run.outputs, strict=True):
            # Tensors that a pass made have no counterpart; a wrong one shows in the next layer.
            if buffer.source is None or run.is_replaced:
                continue
            mismatch = first_difference(
                0, buffer.name, array, buffer.of_file(reference[buffer.source])
            )
            if mismatch is not None:
                return WrongLayer(run.layer, mismatch)
    return None
