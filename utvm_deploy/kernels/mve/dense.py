"""FULLY_CONNECTED for cores with Helium: four outputs at once, one rounding in 64 bits.

The input is read where it is, whatever its length. Weights are laid out as in ``gemm.py``.

    bias     int32 [quad][pair][slot]
    scaling  int32 [multiplier, low and high word of the offset, shift - 32, low, high]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument, KernelCall
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
from utvm_deploy.kernels.mve import gemm
from utvm_deploy.kernels.mve.code import CONDITION, c_body
from utvm_deploy.kernels.naked import naked_function

NAME = "utvm_mve_dense"
PARAMETERS = (
    "const int8_t *vector",
    "const int8_t *weights",
    "const int32_t *bias",
    "const int32_t *scaling",
    "int8_t *output",
    "int32_t inputs",
    "int32_t outputs",
)
_SAVED_BYTES = 36 + 32
_FRAME_BYTES = 8
# Slots on the stack.
_VECTOR = 0
_SCALING = 4
_OUTPUT = _FRAME_BYTES + _SAVED_BYTES
_OUTPUTS = _OUTPUT + 8


@dataclass(frozen=True)
class MveDense:
    """Shape parameters of a fully connected layer with one scale."""

    batch: int
    inputs: int
    outputs: int

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_mve"

    def prim_func(self) -> Any:
        _, *tables, sums, _ = self._operands
        source = Operand("source", (self.batch, self.inputs), "int8")
        output = Operand("output", (self.batch, self.outputs), "int8")

        def body(buffers: Buffers) -> None:
            with script.grid(self.batch, 1) as (n, one), script.sblock("row"):
                vn, _ = script.axis.remap("SS", [n, one])
                read = buffers["source"][vn, 0 : self.inputs]
                script.reads(read, *(o.region(buffers) for o in tables))
                script.writes(sums.region(buffers), buffers["output"][vn, 0 : self.outputs])
                self._meaning(buffers, (vn,))

        return prim_func([source, *tables, output], [sums], body)

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, helper("utvm_scale_wide"), dense_text())
        *reads, sums, output = self._operands

        def call(buffers: Buffers) -> Any:
            starts = [o.start(buffers) for o in (*reads, output)]
            return extern(NAME, *starts, self.inputs, self.outputs)

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
        return f"Helium assembly, {gemm.CHANNELS} outputs in registers, weights streamed once"

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand, Operand, Operand, Operand]:
        filled = -(-self.outputs // gemm.CHANNELS) * gemm.CHANNELS
        return (
            Operand("vector", (self.inputs,), "int8"),
            Operand("weights", (filled * gemm.padded_depth(self.inputs),), "int8"),
            Operand("bias", (filled,), "int32"),
            Operand("scaling", (6,), "int32"),
            Operand("sums", (self.outputs,), "int32"),
            Operand("output", (self.outputs,), "int8"),
        )

    def _meaning(self, buffers: Buffers, row: tuple[Any, ...] = ()) -> None:
        """What one row of the batch does."""
        padded = gemm.padded_depth(self.inputs)
        weights, bias, scaling, sums = (
            buffers[name] for name in ("weights", "bias", "scaling", "sums")
        )
        axes = [("o", self.outputs, "S")]

        def start(o: Any) -> None:
            script.buffer_store(sums, bias[o // 4 * 4 + o % 2 * 2 + o % 4 // 2], [o])

        def product(o: Any, k: Any) -> None:
            place = o // 4 * (4 * padded) + o % 2 * (2 * padded) + o % 4 // 2 * 16
            weight = weights[place + k // 16 * 32 + k % 16].astype("int32")
            x = buffers["source"][tuple([*row, k])] if row else buffers["vector"][k]
            script.buffer_store(sums, sums[o] + x.astype("int32") * weight, [o])

        def requantize(o: Any) -> None:
            scaled = pure("utvm_scale_wide", sums[o], *(scaling[n] for n in range(4)))
            clamped = pure("utvm_clamp", scaled, scaling[4], scaling[5])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, o])

        block("bias", axes, start)
        block("product", [*axes, ("k", self.inputs, "R")], product)
        block("requantize", axes, requantize)


@lru_cache(maxsize=1)
def dense_text() -> str:
    """The C text of the function."""
    return naked_function(NAME, PARAMETERS, _lines(), c_body(NAME), CONDITION)


def _lines() -> list[str]:
    sums = ("r0", "r2", "r4", "r6")
    return [
        "push {r4-r11, lr}",
        "vpush {d8-d11}",
        f"sub sp, #{_FRAME_BYTES}",
        f"str r0, [sp, #{_VECTOR}]",
        f"str r3, [sp, #{_SCALING}]",
        "mov r7, r1",
        "mov r12, r2",
        "ldrd r0, r1, [r3, #16]",
        "vdup.32 q4, r0",
        "vdup.32 q5, r1",
        f"ldr r11, [sp, #{_OUTPUT + 4}]",
        "add r9, r11, #15",
        "bic r9, r9, #15",
        "1:",  # four more outputs
        f"ldr r1, [sp, #{_VECTOR}]",
        "ldm r12!, {r0, r2, r4, r6}",
        "add r3, r7, r9, lsl #1",
        "dlstp.8 lr, r11",
        "2:",
        "vldrb.8 q0, [r1], #16",
        "vldrb.8 q1, [r7], #16",
        "vmladava.s8 r0, q0, q1",
        "vldrb.8 q2, [r7], #16",
        "vmladava.s8 r2, q0, q2",
        "vldrb.8 q1, [r3], #16",
        "vmladava.s8 r4, q0, q1",
        "vldrb.8 q2, [r3], #16",
        "vmladava.s8 r6, q0, q2",
        "letp lr, 2b",
        "mov r7, r3",
        f"ldr r10, [sp, #{_SCALING}]",
        "ldm r10, {r1, r3, r5, r8}",
        *(
            line
            for register in sums
            for line in (
                "mov r10, r3",
                "mov lr, r5",
                f"smlal r10, lr, {register}, r1",
                f"asr {register}, lr, r8",
            )
        ),
        f"ldr r1, [sp, #{_OUTPUT}]",
        f"ldr r3, [sp, #{_OUTPUTS}]",
        "vmov q3[2], q3[0], r0, r2",
        "vmov q3[3], q3[1], r4, r6",
        "vctp.32 r3",
        "vmax.s32 q3, q3, q4",
        "vmin.s32 q3, q3, q5",
        "vpst",
        "vstrbt.32 q3, [r1], #4",
        f"str r1, [sp, #{_OUTPUT}]",
        f"subs r3, #{gemm.CHANNELS}",
        f"str r3, [sp, #{_OUTPUTS}]",
        "bgt 1b",
        f"add sp, #{_FRAME_BYTES}",
        "vpop {d8-d11}",
        "pop {r4-r11, pc}",
    ]


def mve_dense_call(
    call: KernelCall,
    batch: int,
    weights: Array,
    bias: Array,
    scaling: Array,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``scaling`` as ``wide_scaling`` gives it."""
    outputs, inputs = weights.shape
    quads = -(-outputs // gemm.CHANNELS)
    filled = np.zeros(quads * gemm.CHANNELS, dtype=np.int32)
    filled[:outputs] = bias
    paired = np.ascontiguousarray(filled.reshape(quads, 2, 2).transpose(0, 2, 1)).reshape(-1)
    return replace(
        call,
        kernel=MveDense(batch, inputs, outputs),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", gemm.pack_weights(weights)),
            ConstantArgument("bias", paired),
            ConstantArgument("scaling", np.append(scaling, limits).astype(np.int32)),
            call.arguments[-1],
        ),
    )
