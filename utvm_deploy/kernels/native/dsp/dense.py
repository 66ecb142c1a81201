"""FULLY_CONNECTED for cores with the DSP extension: weights streamed once, outputs by six."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Address, Driver, Operand
from utvm_deploy.kernels.contract.strategy import Choices, Wish
from utvm_deploy.kernels.native.dsp import dense_code as code
from utvm_deploy.kernels.native.dsp import dense_tables as tables
from utvm_deploy.kernels.native.dsp.dense_layer import SCALING_WORDS, DenseLayer
from utvm_deploy.kernels.native.dsp.narrow import DspNarrowDense, narrow_call
from utvm_deploy.kernels.native.dsp.narrow_code import MOST_OUTPUTS
from utvm_deploy.kernels.native.layer_tables import DenseTables


@dataclass(frozen=True)
class NarrowChoices(Choices):
    """All outputs at a time, which leaves nothing to choose."""

    method: ClassVar[str] = "narrow"


@dataclass(frozen=True)
class DenseChoices(Choices):
    """Six outputs at a time: the inner loop's step, whether it preloads, outputs of the tail."""

    step: int | None = None
    preload: bool | None = None
    tail: int = 0


@dataclass(frozen=True)
class DspDense(DenseLayer):
    """A fully connected layer, and how it is computed."""

    step: int  # of the inner loop
    preload: bool  # weights are asked for before they are read
    tail: int = 0  # outputs of the last group; 0: those beyond sixes are done in pairs

    @property
    def choices(self) -> DenseChoices:
        """What chooses this kernel."""
        return DenseChoices(self.step, self.preload, self.tail)

    @property
    def why(self) -> str:
        return f"DSP assembly, {tables.OUTPUTS} outputs in registers, weights streamed once"

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (Operand("wide", (self._padded,), "int16"),)

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_scale_wide"), code.dense_text(core, self._form)

    def _row(self, c: Driver, source: Address, output: Address) -> None:
        weights, bias, scaling, limits = (one.at() for one in self._tables)
        (wide,) = self.scratch
        c.call(
            *(self._form.name, source, wide.at(), weights, bias, scaling, self.scaling_step),
            *(limits, output, self.inputs, self._padded, self.outputs),
        )

    @property
    def _form(self) -> code.DenseForm:
        return code.DenseForm(self.step, self.per_channel, self.preload, self.tail)

    @property
    def _padded(self) -> int:
        return tables.padded_inputs(self.inputs, self.step)

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand, Operand]:
        filled = tables.filled(self.outputs)
        streamed = self.outputs if self.tail else filled
        scales = filled if self.per_channel else 1
        return (
            Operand("weights", (streamed * self._padded + tables.SLACK_BYTES,), "int8"),
            Operand("bias", (filled,), "int32"),
            Operand("scaling", (scales * SCALING_WORDS,), "int32"),
            Operand("limits", (2,), "int32"),
        )


def dsp_dense_call(call: KernelCall, layer: DenseTables, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one."""
    weights, bias, scaling = layer.weights, layer.bias, np.array(layer.scales)
    outputs, inputs = weights.shape
    narrow = NarrowChoices.read(wish.candidate)
    is_narrow = wish.candidate is not None and isinstance(narrow, NarrowChoices)
    if is_narrow and outputs > MOST_OUTPUTS:
        return f"more than {MOST_OUTPUTS} outputs"
    is_best = outputs <= MOST_OUTPUTS and outputs != tables.OUTPUTS
    if is_narrow or (wish.is_default and is_best):
        return narrow_call(call, layer.batch, weights, bias, scaling, layer.limits)
    choices = DenseChoices() if wish.is_open else DenseChoices.read(wish.candidate)
    if isinstance(choices, str):
        return choices
    step = choices.step or tables.best_step(inputs)
    tail = choices.tail or (tables.best_tail(outputs) if wish.is_default else 0)
    if tail not in (0, outputs % tables.OUTPUTS):
        return f"no {tail} outputs are left of {outputs} by {tables.OUTPUTS}"
    if step not in tables.STEPS:
        return f"the inner loop has no step of {step}; there are {tables.STEPS}"
    per_channel = len(scaling) > 1
    rows = np.zeros((tables.filled(outputs) if per_channel else 1, SCALING_WORDS), np.int32)
    rows[: len(scaling)] = scaling
    sizes = layer.batch, inputs, outputs
    return replace(
        call,
        kernel=DspDense(*sizes, per_channel, step, bool(choices.preload), tail),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", tables.pack_weights(weights, step, tail)),
            ConstantArgument("bias", tables.pack_bias(bias)),
            ConstantArgument("scaling", rows.reshape(-1)),
            ConstantArgument("limits", np.array(layer.limits, dtype=np.int32)),
            call.arguments[-1],
        ),
    )


def dense_choices(kernel: object) -> Iterator[Choices]:
    """What a candidate can choose beside this kernel, whose own choices come first."""
    if isinstance(kernel, DspNarrowDense):
        yield NarrowChoices()
    elif isinstance(kernel, DspDense):
        yield kernel.choices
    else:
        return
    tails = sorted({0, kernel.outputs % tables.OUTPUTS} - {tables.PAIR})
    for tail, step, preload in product(tails, tables.STEPS, (False, True)):
        yield DenseChoices(step, preload, tail)
