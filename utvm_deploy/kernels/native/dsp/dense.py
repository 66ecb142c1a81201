"""FULLY_CONNECTED for cores with the DSP extension: weights streamed once, outputs by six."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.native.dsp import dense_code as code
from utvm_deploy.kernels.native.dsp import dense_tables as tables
from utvm_deploy.kernels.native.dsp.dense_layer import SCALING_WORDS, DenseLayer
from utvm_deploy.kernels.native.dsp.narrow import narrow_call
from utvm_deploy.kernels.native.dsp.narrow_code import MOST_OUTPUTS
from utvm_deploy.kernels.portable.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    script,
    tensorize,
)
from utvm_deploy.records.candidate import Candidate

#: The choice "method" of a candidate: all outputs at a time; without it, six at a time.
NARROW = "narrow"


@dataclass(frozen=True)
class DspDense(DenseLayer):
    """A fully connected layer, and how it is computed."""

    step: int  # of the inner loop
    preload: bool  # weights are asked for before they are read
    tail: int = 0  # outputs of the last group; 0: those beyond sixes are done in pairs

    _temporaries: ClassVar[tuple[str, ...]] = ("sums", "wide")

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, shared_text("utvm_scale_wide"), code.dense_text(core, self._form))
        vector, weights, bias, scaling, limits, sums, wide, output = self._operands
        reads = [vector, weights, bias, scaling, limits]

        def call(buffers: Buffers) -> Any:
            starts = {o.name: o.start(buffers) for o in (*reads, wide, output)}
            return extern(
                self._form.name,
                *(starts[name] for name in ("vector", "wide", "weights", "bias", "scaling")),
                self.scaling_step,
                *(starts[name] for name in ("limits", "output")),
                *(self.inputs, self._padded, self.outputs),
            )

        tensorize(sch, "row", reads, [sums, wide, output], self._meaning, call)
        return f"DSP assembly, {tables.OUTPUTS} outputs in registers, weights streamed once"

    @property
    def _form(self) -> code.Form:
        return code.Form(self.step, self.per_channel, self.preload, self.tail)

    @property
    def _padded(self) -> int:
        return tables.padded_inputs(self.inputs, self.step)

    @property
    def _operands(self) -> tuple[Operand, ...]:
        filled = tables.filled(self.outputs)
        streamed = self.outputs if self.tail else filled
        scales = filled if self.per_channel else 1
        return (
            Operand("vector", (self.inputs,), "int8"),
            Operand("weights", (streamed * self._padded + tables.SLACK_BYTES,), "int8"),
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

        whole = tables.groups_of(self.outputs)[0] * tables.OUTPUTS
        even = whole + self.tail // 2 * 2

        def tail_place_of(o: Any, i: Any) -> Any:
            phase = o // 2 * 4 + o % 2 + i % 4 // 2 * (self.tail // 2 * 4) + i % 2 * 2
            if self.tail % 2:
                alone = self.tail // 2 * 8 + i % 2 * 2 + i % 4 // 2
                phase = tirx.Select(o < self.tail - 1, phase, alone)
            return i // 4 * (4 * self.tail) + phase

        def product(o: Any, i: Any) -> None:
            rest = tail_place_of(o - whole, i) if self.tail else place_of(o - whole, i, tables.PAIR)
            place = rest = whole * self._padded + rest
            if whole:
                place = tirx.Select(o < whole, place_of(o, i, tables.OUTPUTS), rest)
            byte = weights[place].astype("int32")
            is_plain = o % 2 == 1
            if self.tail % 2:
                is_plain = tirx.any(is_plain, o == even)
            weight = tirx.Select(is_plain, byte, tirx.bitwise_and(byte, 255) - 128)
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
    is_best = outputs <= MOST_OUTPUTS and outputs != tables.OUTPUTS
    is_default = candidate is None or not candidate.choices
    if method == NARROW or (is_default and is_best):
        return narrow_call(call, batch, weights, bias, scaling, limits)
    step = tables.best_step(inputs)
    is_preloading = False
    tail = tables.best_tail(outputs) if is_default else 0
    if candidate is not None:
        step = candidate.number("step") or step
        is_preloading = bool(candidate.number("preload"))
        tail = candidate.number("tail") or tail
    if tail not in (0, outputs % tables.OUTPUTS):
        return f"no {tail} outputs are left of {outputs} by {tables.OUTPUTS}"
    if step not in tables.STEPS:
        return f"the inner loop has no step of {step}; there are {tables.STEPS}"
    per_channel = len(scaling) > 1
    rows = np.zeros((tables.filled(outputs) if per_channel else 1, SCALING_WORDS), np.int32)
    rows[: len(scaling)] = scaling
    return replace(
        call,
        kernel=DspDense(batch, inputs, outputs, per_channel, step, is_preloading, tail),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", tables.pack_weights(weights, step, tail)),
            ConstantArgument("bias", tables.pack_bias(bias)),
            ConstantArgument("scaling", rows.reshape(-1)),
            ConstantArgument("limits", np.array(limits, dtype=np.int32)),
            call.arguments[-1],
        ),
    )
