"""FULLY_CONNECTED for cores with the DSP extension: by ``SixOutputs``, or ``FewOutputs``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Choices, Layer, Wish
from utvm_deploy.kernels.native.dense import DenseLayer, dense_call
from utvm_deploy.kernels.native.dsp.assembly.dense_six_products import OUTPUTS, PAIR
from utvm_deploy.kernels.native.dsp.dense_few_outputs import MOST_OUTPUTS, FewOutputs
from utvm_deploy.kernels.native.dsp.dense_six_outputs import (
    HALVES_FACTOR,
    HALVES_LIMIT,
    STEPS,
    SixOutputs,
)
from utvm_deploy.kernels.native.layer_tables import DenseTables, dense_tables
from utvm_deploy.kernels.native.scaling import extremes
from utvm_deploy.records.candidate import COMPACT_MOST

# With more outputs than these, a last group gains less than 1 %.
_MOST_WITH_TAIL = 36


@dataclass(frozen=True)
class FewOutputsChoices(Choices):
    """All outputs at a time, which leaves nothing to choose."""

    method = "narrow"


@dataclass(frozen=True)
class SixOutputsChoices(Choices):
    """Six outputs at a time; the fields are those of ``SixOutputs``."""

    step: int | None = None
    preload: bool | None = None
    tail: int = 0


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none."""
    call, halves = layer.portable, layer.input(1).dtype == "int4"
    outputs, inputs = layer.input(1).shape
    choices: FewOutputsChoices | SixOutputsChoices | str = SixOutputsChoices()
    if not wish.is_open:
        few = FewOutputsChoices.read(wish.candidate)
        choices = SixOutputsChoices.read(wish.candidate) if isinstance(few, str) else few
    elif wish.is_default and outputs <= MOST_OUTPUTS and outputs != OUTPUTS and not halves:
        choices = FewOutputsChoices()
    if isinstance(choices, str):
        return choices
    halves = halves and isinstance(choices, SixOutputsChoices)
    tables = dense_tables(layer, HALVES_FACTOR if halves else 1)
    if isinstance(tables, str):
        return tables
    per_channel = len(tables.scales) > 1
    if isinstance(choices, FewOutputsChoices):
        if outputs > MOST_OUTPUTS:
            return f"more than {MOST_OUTPUTS} outputs"
        few_outputs = dense_call(call, tables, FewOutputs(per_channel, outputs))
        return replace(few_outputs, heeds_compact=COMPACT_MOST)
    rest = outputs % OUTPUTS
    if choices.tail not in (0, rest):
        return f"no {choices.tail} outputs are left of {outputs} by {OUTPUTS}"
    if choices.step not in (None, *STEPS):
        return f"the inner loop has no step of {choices.step}; there are {STEPS}"
    if halves and choices.tail:
        return "the last outputs with int4 weights are computed in pairs"
    if halves and (most := _most(tables)) >= HALVES_LIMIT:
        return f"a sum with int4 weights can reach {most}"
    gains = wish.is_default and rest != PAIR and outputs < _MOST_WITH_TAIL and not halves
    routine = SixOutputs(
        per_channel,
        choices.step or _step(inputs, wish),
        bool(choices.preload),
        choices.tail or (rest if gains else 0),
        halves=halves,
    )
    scratch = sum(one.size_bytes for one in routine.scratch(inputs))
    is_over = wish.is_open and wish.most_scratch is not None and scratch > wish.most_scratch
    if is_over and inputs % routine.step == 0:
        routine = replace(routine, is_direct=True)
    return replace(dense_call(call, tables, routine), heeds_compact=COMPACT_MOST)


def _most(tables: DenseTables) -> int:
    """The greatest magnitude of a sum."""
    return max(int(np.abs(ends).max()) for ends in extremes(tables.bias, tables.weights))


def _step(inputs: int, wish: Wish) -> int:
    """The step that pads least; the smallest one does for all layers, so that they share it."""
    if wish.compact == COMPACT_MOST:
        return min(STEPS)
    return min(STEPS, key=lambda step: -inputs % step)


def dense_choices(kernel: object) -> Iterator[Choices]:
    """What a candidate can choose instead of this kernel, whose own choices come first."""
    if not isinstance(kernel, DenseLayer):
        return
    routine = kernel.routine
    if isinstance(routine, SixOutputs):
        yield SixOutputsChoices(routine.step, routine.preload, routine.tail)
    else:
        yield FewOutputsChoices()
    tails = sorted({0, kernel.outputs % OUTPUTS} - {PAIR})
    if isinstance(routine, SixOutputs) and routine.halves:
        tails = [0]
    for tail, step, preload in product(tails, STEPS, (False, True)):
        yield SixOutputsChoices(step, preload, tail)
