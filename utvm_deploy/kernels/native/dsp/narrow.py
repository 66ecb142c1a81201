"""FULLY_CONNECTED of few outputs for cores with the DSP extension: all outputs at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Address, Driver, Operand
from utvm_deploy.kernels.native.dsp import narrow_code as code
from utvm_deploy.kernels.native.dsp.dense_layer import SCALING_WORDS, DenseLayer


class DspNarrowDense(DenseLayer):
    """A fully connected layer, all of whose outputs have a register."""

    scratch: ClassVar[tuple[Operand, ...]] = ()

    @property
    def why(self) -> str:
        return f"DSP assembly, all {self.outputs} outputs in registers"

    def texts(self, core: str) -> tuple[str, ...]:
        routine = code.narrow_text(core, self.outputs, self.per_channel)
        return shared_text("utvm_scale_wide"), routine

    def _row(self, c: Driver, source: Address, output: Address) -> None:
        c.call(
            *(code.name_of(self.outputs, self.per_channel), source),
            *(one.at() for one in self._tables),
            *(output, self.inputs, self.outputs, self.scaling_step),
        )

    @property
    def _tables(self) -> tuple[Operand, Operand, Operand, Operand]:
        quads = -(-self.inputs // code.QUAD)
        scales = self.outputs if self.per_channel else 1
        return (
            Operand("weights", (quads * code.QUAD * self.outputs,), "int8"),
            Operand("bias", (self.outputs,), "int32"),
            Operand("scaling", (scales * SCALING_WORDS,), "int32"),
            Operand("limits", (2,), "int32"),
        )


def narrow_call(
    call: KernelCall,
    batch: int,
    weights: Array,
    bias: Array,
    scaling: Array,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``scaling`` has a row, or one for each output."""
    outputs, inputs = weights.shape
    return replace(
        call,
        kernel=DspNarrowDense(batch, inputs, outputs, len(scaling) > 1),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", code.pack_weights(weights)),
            ConstantArgument("bias", bias.astype(np.int32)),
            ConstantArgument("scaling", scaling.astype(np.int32).reshape(-1)),
            ConstantArgument("limits", np.array(limits, dtype=np.int32)),
            call.arguments[-1],
        ),
    )
