"""FULLY_CONNECTED for cores with Helium: four outputs at once, one rounding in 64 bits.

The input is read where it is, whatever its length. Weights are laid out as in ``gemm.py``.

    bias     int32 [quad][bias][pair][slot]
    scaling  int32 [multiplier, low and high word of the offset, shift - 32, low, high]
or, with a scale for each output,
    bias     int32 [quad][bias, multiplier, low word, high word, shift - 32][pair][slot]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.isa.routine import naked_function
from utvm_deploy.kernels.native.layer_tables import DenseTables
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.code import CONDITION, quad_products

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
    """Shape parameters of a fully connected layer."""

    batch: int
    inputs: int
    outputs: int
    is_each: bool  # a scale for each output

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        each = "_each" if self.is_each else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_mve{each}"

    @property
    def rows(self) -> int:
        """Rows of the table that begins with the bias."""
        return 5 if self.is_each else 1

    why: ClassVar[str] = (
        f"Helium assembly, {gemm.CHANNELS} outputs in registers, weights streamed once"
    )

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        filled = -(-self.outputs // gemm.CHANNELS) * gemm.CHANNELS
        return (
            Operand("source", (self.batch, self.inputs), "int8"),
            Operand("weights", (filled * gemm.padded_depth(self.inputs),), "int8"),
            Operand("bias", (filled * self.rows,), "int32"),
            Operand("scaling", (6,), "int32"),
            Operand("output", (self.batch, self.outputs), "int8"),
        )

    scratch: ClassVar[tuple[Operand, ...]] = ()

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_scale_wide"), dense_text(self.is_each)

    def drive(self, c: Driver) -> None:
        source, *tables, output = (one for one in self.parameters if isinstance(one, Operand))
        starts = [one.at() for one in tables]
        with c.loop("row", self.batch) as row:
            places = source.at(row * self.inputs), *starts, output.at(row * self.outputs)
            c.call(name_of(self.is_each), *places, self.inputs, self.outputs)


def name_of(is_each: bool) -> str:
    """The C function."""
    return f"{NAME}_each" if is_each else NAME


_SCALED = {
    False: "scaling[0], scaling[1], scaling[2], scaling[3]",
    True: "b[4], b[8], b[12], b[16]",
}


@lru_cache(maxsize=2)
def dense_text(is_each: bool) -> str:
    """The C text of the function."""
    rows = "5" if is_each else "1"
    body = replaced(family_text("mve", NAME), ("SCALING", _SCALED[is_each], 1), ("ROWS", rows, 1))
    return naked_function(name_of(is_each), PARAMETERS, _lines(is_each), body, CONDITION)


def _lines(is_each: bool) -> list[str]:
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
        *quad_products("2", sums),
        "mov r7, r3",
        *(_scaled_each(sums) if is_each else _scaled(sums)),
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


def _scaled(sums: tuple[str, ...]) -> list[str]:
    """All with the same numbers."""
    code = [f"ldr r10, [sp, #{_SCALING}]", "ldm r10, {r1, r3, r5, r8}"]
    for register in sums:
        code += ["mov r10, r3", "mov lr, r5", f"smlal r10, lr, {register}, r1"]
        code.append(f"asr {register}, lr, r8")
    return code


def _scaled_each(sums: tuple[str, ...]) -> list[str]:
    """Each with numbers of its own, behind the bias."""
    code = []
    for n, register in enumerate(sums):
        rows = (("r1", 0), ("r10", 16), ("lr", 32), ("r8", 48))
        code += [f"ldr {t}, [r12, #{row + 4 * n}]" for t, row in rows]
        code += [f"smlal r10, lr, {register}, r1", f"asr {register}, lr, r8"]
    return [*code, "add r12, #64"]


def mve_dense_call(call: KernelCall, tables: DenseTables) -> KernelCall:
    """The call instead of the generic one."""
    (outputs, inputs), scales = tables.weights.shape, tables.scales
    is_each = len(scales) > 1
    rows = [tables.bias, *np.array(scales).T] if is_each else [tables.bias]
    quads = -(-outputs // gemm.CHANNELS)
    filled = np.zeros((len(rows), quads * gemm.CHANNELS), dtype=np.int32)
    filled[:, :outputs] = rows
    # row, quad, slot, pair -> quad, row, pair, slot
    table = filled.reshape(len(rows), quads, 2, 2).transpose(1, 0, 3, 2)
    return replace(
        call,
        kernel=MveDense(tables.batch, inputs, outputs, is_each),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", gemm.pack_weights(tables.weights)),
            ConstantArgument("bias", np.ascontiguousarray(table).reshape(-1)),
            ConstantArgument("scaling", np.append(scales[0], tables.limits).astype(np.int32)),
            call.arguments[-1],
        ),
    )
