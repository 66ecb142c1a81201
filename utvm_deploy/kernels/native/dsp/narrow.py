"""FULLY_CONNECTED of few outputs for cores with the DSP extension: all outputs at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.native.dsp import narrow_code as code
from utvm_deploy.kernels.native.dsp.dense_layer import SCALING_WORDS, DenseLayer
from utvm_deploy.kernels.portable.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    script,
    tensorize,
)


class DspNarrowDense(DenseLayer):
    """A fully connected layer, all of whose outputs have a register."""

    def schedule(self, sch: Any, core: str) -> str:
        choices = self.outputs, self.per_channel
        import_c(sch, shared_text("utvm_scale_wide"), code.narrow_text(core, *choices))
        *reads, sums, output = self._operands

        def call(buffers: Buffers) -> Any:
            return extern(
                code.name_of(*choices),
                *(o.start(buffers) for o in (*reads, output)),
                *(self.inputs, self.outputs, self.scaling_step),
            )

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
        return f"DSP assembly, all {self.outputs} outputs in registers"

    @property
    def _operands(self) -> tuple[Operand, ...]:
        quads = -(-self.inputs // code.QUAD)
        scales = self.outputs if self.per_channel else 1
        return (
            Operand("vector", (self.inputs,), "int8"),
            Operand("weights", (quads * code.QUAD * self.outputs,), "int8"),
            Operand("bias", (self.outputs,), "int32"),
            Operand("scaling", (scales * SCALING_WORDS,), "int32"),
            Operand("limits", (2,), "int32"),
            Operand("sums", (self.outputs,), "int32"),
            Operand("output", (self.outputs,), "int8"),
        )

    def _meaning(self, buffers: Buffers, row: tuple[Any, ...] = ()) -> None:
        """What one row of the batch does."""
        weights, bias, sums = (buffers[name] for name in ("weights", "bias", "sums"))
        axes = [("o", self.outputs, "S")]

        def start(o: Any) -> None:
            script.buffer_store(sums, bias[o], [o])

        def product(o: Any, i: Any) -> None:
            place = (*row, i)
            x = buffers["source"][place] if row else buffers["vector"][i]
            entry = i // code.QUAD * (code.QUAD * self.outputs) + o * code.QUAD + i % code.QUAD
            total = sums[o] + x.astype("int32") * weights[entry].astype("int32")
            script.buffer_store(sums, total, [o])

        block("bias", axes, start)
        block("product", [*axes, ("i", self.inputs, "R")], product)
        self._requantize(buffers, row)


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
