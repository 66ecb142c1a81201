"""FULLY_CONNECTED for cores with the DSP extension: weights streamed once, outputs by six."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from utvm_deploy.candidate import Candidate
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.dsp import dense_code as code
from utvm_deploy.kernels.dsp.dense_layer import SCALING_WORDS, DenseLayer
from utvm_deploy.kernels.dsp.narrow import narrow_call
from utvm_deploy.kernels.dsp.narrow_code import MOST_OUTPUTS
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    script,
    tensorize,
)

#: The choice "method" of a candidate: all outputs at a time; without it, six at a time.
NARROW = "narrow"


@dataclass(frozen=True)
class DspDense(DenseLayer):
    """A fully connected layer, and how it is computed."""

    step: int  # of the inner loop
    preload: bool  # weights are asked for before they are read

    _temporaries: ClassVar[tuple[str, ...]] = ("sums", "wide")

    def schedule(self, sch: Any, core: str) -> str:
        choices = self.step, self.per_channel, self.preload
        import_c(sch, shared_text("utvm_scale_wide"), code.dense_text(core, *choices))
        vector, weights, bias, scaling, limits, sums, wide, output = self._operands
        reads = [vector, weights, bias, scaling, limits]

        def call(buffers: Buffers) -> Any:
            starts = {o.name: o.start(buffers) for o in (*reads, wide, output)}
            return extern(
                code.name_of(*choices),
                *(starts[name] for name in ("vector", "wide", "weights", "bias", "scaling")),
                self.scaling_step,
                *(starts[name] for name in ("limits", "output")),
                *(self.inputs, self._padded, self.outputs),
            )

        tensorize(sch, "row", reads, [sums, wide, output], self._meaning, call)
        return f"DSP assembly, {code.OUTPUTS} outputs in registers, weights streamed once"

    @property
    def _padded(self) -> int:
        return code.padded_inputs(self.inputs, self.step)

    @property
    def _operands(self) -> tuple[Operand, ...]:
        filled = code.filled(self.outputs)
        scales = filled if self.per_channel else 1
        return (
            Operand("vector", (self.inputs,), "int8"),
            Operand("weights", (filled * self._padded + code.SLACK_BYTES,), "int8"),
            Operand("bias", (filled,), "int32"),
            Operand("scaling", (scales * SCALING_WORDS,), "int32"),
            Operand("limits", (2,), "int32"),
            Operand("sums", (self.outputs,), "int32"),
            Operand("wide", (self._padded,), "int16"),
            Operand("output", (self.outputs,), "int8"),
        )

    def _meaning(self, buffers: Buffers, row: tuple[Any, ...] = ()) -> None:
        """What one row of the batch does."""
        weights, bias, sums, wide = (buffers[name] for name in ("weights", "bias", "sums", "wide"))
        axes = [("o", self.outputs, "S")]

        def widen(k: Any) -> None:
            place = (*row, k)
            x = buffers["source"][place] if row else buffers["vector"][k]
            value = tirx.if_then_else(k < self.inputs, x, tirx.const(0, "int8"))
            script.buffer_store(wide, value.astype("int16"), [k // 4 * 4 + k % 2 * 2 + k % 4 // 2])

        def start(o: Any) -> None:
            first = bias[o] - bias[o // 2 * 2 + 1] * 256
            script.buffer_store(sums, tirx.Select(o % 2 == 1, bias[o], first), [o])

        def place_of(o: Any, i: Any, size: int) -> Any:
            group = o // size * (size * self._padded)
            return group + o % size // 2 * 4 + o % 2 + i // 2 * (2 * size) + i % 2 * 2

        def product(o: Any, i: Any) -> None:
            whole = code.groups_of(self.outputs)[0] * code.OUTPUTS
            rest = whole * self._padded + place_of(o - whole, i, code.PAIR)
            place = rest
            if whole:
                place = tirx.Select(o < whole, place_of(o, i, code.OUTPUTS), rest)
            byte = weights[place].astype("int32")
            weight = tirx.Select(o % 2 == 1, byte, tirx.bitwise_and(byte, 255) - 128)
            script.buffer_store(sums, sums[o] + wide[i].astype("int32") * weight, [o])

        block("widen", [("k", self._padded, "S")], widen)
        block("bias", axes, start)
        block("product", [*axes, ("i", self._padded, "R")], product)
        self._requantize(buffers, row)


def dsp_dense_call(
    call: KernelCall,
    batch: int,
    weights: Array,
    bias: Array,
    scaling: Array,
    limits: tuple[int, int],
    candidate: Candidate | None = None,
) -> KernelCall | str:
    """The call instead of the generic one; ``scaling`` has a row, or one for each output."""
    outputs, inputs = weights.shape
    method = candidate.choice("method") if candidate else None
    if method == NARROW and outputs > MOST_OUTPUTS:
        return f"more than {MOST_OUTPUTS} outputs"
    is_best = outputs <= MOST_OUTPUTS and outputs != code.OUTPUTS
    is_default = candidate is None or not candidate.choices
    if method == NARROW or (is_default and is_best):
        return narrow_call(call, batch, weights, bias, scaling, limits)
    step = code.best_step(inputs)
    is_preloading = False
    if candidate is not None:
        step = candidate.number("step") or step
        is_preloading = bool(candidate.number("preload"))
    if step not in code.STEPS:
        return f"the inner loop has no step of {step}; there are {code.STEPS}"
    per_channel = len(scaling) > 1
    rows = np.zeros((code.filled(outputs) if per_channel else 1, SCALING_WORDS), np.int32)
    rows[: len(scaling)] = scaling
    return replace(
        call,
        kernel=DspDense(batch, inputs, outputs, per_channel, step, is_preloading),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", code.pack_weights(weights, step)),
            ConstantArgument("bias", code.pack_bias(bias)),
            ConstantArgument("scaling", rows.reshape(-1)),
            ConstantArgument("limits", np.array(limits, dtype=np.int32)),
            call.arguments[-1],
        ),
    )
