"""FULLY_CONNECTED for cores with the DSP extension: weights streamed once, outputs by four."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.dsp import dense_code as code
from utvm_deploy.kernels.dsp.routine import helper
from utvm_deploy.kernels.dsp.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    pure,
    script,
    tensorize,
)


@dataclass(frozen=True)
class DspDense:
    """Shape parameters of a fully connected layer with one scale."""

    batch: int
    inputs: int
    outputs: int

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_dsp"

    @property
    def is_copied(self) -> bool:
        """Whether the vector is filled up in scratch."""
        return code.padded_inputs(self.inputs) != self.inputs

    def prim_func(self) -> Any:
        vector, weights, bias, scaling, sums, _ = self._operands
        source = Operand("source", (self.batch, self.inputs), "int8")
        output = Operand("output", (self.batch, self.outputs), "int8")

        def body(buffers: Buffers) -> None:
            with script.grid(self.batch, 1) as (n, one):
                if self.is_copied:
                    with script.grid(vector.shape[0], 1) as (k, other), script.sblock("fill"):
                        vn, vk, _, _ = script.axis.remap("SSSS", [n, k, one, other])
                        value = tirx.if_then_else(
                            vk < self.inputs, buffers["source"][vn, vk], tirx.const(0, "int8")
                        )
                        script.buffer_store(buffers["vector"], value, [vk])
                with script.sblock("row"):
                    vn, _ = script.axis.remap("SS", [n, one])
                    read = (
                        vector.region(buffers)
                        if self.is_copied
                        else buffers["source"][vn, 0 : self.inputs]
                    )
                    script.reads(read, *(o.region(buffers) for o in (weights, bias, scaling)))
                    script.writes(sums.region(buffers), buffers["output"][vn, 0 : self.outputs])
                    self._meaning(buffers, (vn,))

        copied = [vector] if self.is_copied else []
        return prim_func([source, weights, bias, scaling, output], [sums, *copied], body)

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, helper("utvm_scale_wide"), code.dense_text(core))
        vector, weights, bias, scaling, sums, output = self._operands
        reads = [vector, weights, bias, scaling]

        def call(buffers: Buffers) -> Any:
            starts = [o.start(buffers) for o in (*reads, output)]
            return extern(code.NAME, *starts, vector.shape[0], self.outputs)

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
        return f"DSP assembly, {code.OUTPUTS} outputs in registers, weights streamed once"

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand, Operand, Operand, Operand]:
        padded = code.padded_inputs(self.inputs)
        filled = -(-self.outputs // code.OUTPUTS) * code.OUTPUTS
        return (
            Operand("vector", (padded,), "int8"),
            Operand("weights", (filled * padded,), "int8"),
            Operand("bias", (filled,), "int32"),
            Operand("scaling", (6,), "int32"),
            Operand("sums", (self.outputs,), "int32"),
            Operand("output", (self.outputs,), "int8"),
        )

    def _meaning(self, buffers: Buffers, row: tuple[Any, ...] = ()) -> None:
        """What one row of the batch does."""
        padded = code.padded_inputs(self.inputs)
        weights, bias, scaling, sums = (
            buffers[name] for name in ("weights", "bias", "scaling", "sums")
        )
        axes = [("o", self.outputs, "S")]

        def start(o: Any) -> None:
            first = bias[o] - bias[o // 2 * 2 + 1] * 256
            script.buffer_store(sums, tirx.Select(o % 2 == 1, bias[o], first), [o])

        def product(o: Any, k: Any) -> None:
            place = k // 4 * 16 + k % 2 * 8 + o % 4 // 2 * 4 + k % 4 // 2 * 2 + o % 2
            byte = weights[o // 4 * (4 * padded) + place].astype("int32")
            weight = tirx.Select(o % 2 == 1, byte, tirx.bitwise_and(byte, 255) - 128)
            place = (*row, k)
            x = buffers["vector"][k] if "vector" in buffers else buffers["source"][place]
            script.buffer_store(sums, sums[o] + x.astype("int32") * weight, [o])

        def requantize(o: Any) -> None:
            scaled = pure("utvm_scale_wide", sums[o], *(scaling[n] for n in range(4)))
            clamped = pure("utvm_clamp", scaled, scaling[4], scaling[5])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, o])

        block("bias", axes, start)
        block("product", [*axes, ("k", padded, "R")], product)
        block("requantize", axes, requantize)


def dsp_dense_call(
    call: KernelCall,
    batch: int,
    weights: Array,
    bias: Array,
    scaling: Array,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``scaling`` as ``wide_scaling`` gives it."""
    outputs, inputs = weights.shape
    return replace(
        call,
        kernel=DspDense(batch, inputs, outputs),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", code.pack_weights(weights)),
            ConstantArgument("bias", code.pack_bias(bias)),
            ConstantArgument("scaling", np.append(scaling, limits).astype(np.int32)),
            call.arguments[-1],
        ),
    )
