"""FULLY_CONNECTED for cores with Helium: four outputs at once, one rounding in 64 bits.

The vector is read in place, whatever its length. Weights lie as in ``gemm.py``.

    bias     int32 [four outputs][bias][pair][slot]
    scaling  int32 [multiplier, low and high word of the offset, shift - 32, low, high]
or, with a scale for each output,
    bias     int32 [four outputs][bias, multiplier, low word, high word, shift - 32][pair][slot]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.isa.assembler import Assembler, Frame
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dense import DenseRoutine
from utvm_deploy.kernels.native.layer_tables import DenseTables
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.code import CONDITION, multiply_four_channels

_SUMS = ("r0", "r2", "r4", "r6")


class _Slots(Frame):
    """What the routine keeps on the stack."""

    vector: Slot
    scaling: Slot


@dataclass(frozen=True)
class MveDense(DenseRoutine):
    """The routine."""

    parameters: ClassVar[tuple[str, ...]] = (
        "const int8_t *vector",
        "const int8_t *weights",
        "const int32_t *bias",
        "const int32_t *scaling",
        "int8_t *output",
        "int32_t inputs",
        "int32_t outputs",
    )
    why: ClassVar[str] = (
        f"Helium assembly, {gemm.CHANNELS} outputs in registers, weights streamed once"
    )

    @property
    def label(self) -> str:
        return "mve_each" if self.per_channel else "mve"

    @property
    def function(self) -> str:
        return f"utvm_{self.label.replace('mve', 'mve_dense')}"

    @property
    def rows(self) -> int:
        """Rows of the table that begins with the bias."""
        return 5 if self.per_channel else 1

    def text(self, core: str) -> str:
        return _text(self)

    def padded(self, inputs: int) -> int:
        return gemm.padded_depth(inputs)

    def filled(self, outputs: int) -> int:
        return -(-outputs // gemm.CHANNELS) * gemm.CHANNELS

    def tables(self, inputs: int, outputs: int) -> tuple[Operand, ...]:
        filled = self.filled(outputs)
        return (
            Operand("weights", (filled * self.padded(inputs),), "int8"),
            Operand("bias", (filled * self.rows,), "int32"),
            Operand("scaling", (6,), "int32"),
        )

    def pack(self, layer: DenseTables) -> tuple[Array, ...]:
        scales = layer.scales
        rows = [layer.bias, *np.array(scales).T] if self.per_channel else [layer.bias]
        filled = np.zeros((self.rows, self.filled(layer.bias.size)), dtype=np.int32)
        filled[:, : layer.bias.size] = rows
        # row, four outputs, slot, pair -> four outputs, row, pair, slot
        bias = np.ascontiguousarray(filled.reshape(self.rows, -1, 2, 2).transpose(1, 0, 3, 2))
        scaling = np.append(scales[0], layer.limits).astype(np.int32)
        return self.pack_weights(layer.weights), bias.reshape(-1), scaling

    def pack_weights(self, weights: Array) -> Array:
        return gemm.pack_weights(weights)


@lru_cache(maxsize=2)
def _text(routine: MveDense) -> str:
    """The C text of the function."""
    words = "b[4], b[8], b[12], b[16]" if routine.per_channel else _ONE_SCALE
    replacements = ("SCALING", words, 1), ("ROWS", str(routine.rows), 1)
    portable = replaced(family_text("mve", "utvm_mve_dense"), *replacements)
    a = Assembler(parameters=routine.parameters)
    a.enter(frame=_Slots, vectors=("d8-d11",))
    a.str("r0", _Slots.vector)
    a.str("r3", _Slots.scaling)
    a.mov("r7", "r1")
    a.mov("r12", "r2")
    a.ldrd("r0", "r1", at("r3", 16))
    a.vdup_32("q4", "r0")
    a.vdup_32("q5", "r1")
    a.ldr("r11", a.stack_argument("inputs"))
    a.add("r9", "r11", 15)
    a.bic("r9", "r9", 15)
    with a.loop("gt"):  # four more outputs
        a.ldr("r1", _Slots.vector)
        a.ldm("r12!", _SUMS)
        a.add("r3", "r7", "r9", "lsl #1")
        multiply_four_channels(a, _SUMS)
        a.mov("r7", "r3")
        if routine.per_channel:
            _scale_each(a)
        else:
            _scale_all(a)
        a.ldr("r1", a.stack_argument("output"))
        a.ldr("r3", a.stack_argument("outputs"))
        a.vmov("q3[2]", "q3[0]", "r0", "r2")
        a.vmov("q3[3]", "q3[1]", "r4", "r6")
        a.vctp_32("r3")
        a.vmax_s32("q3", "q3", "q4")
        a.vmin_s32("q3", "q3", "q5")
        with a.predicated():
            a.vstrb_32("q3", post("r1", 4))
        a.str("r1", a.stack_argument("output"))
        a.subs("r3", gemm.CHANNELS)
        a.str("r3", a.stack_argument("outputs"))
    a.leave()
    return a.c_function(routine.function, portable, CONDITION)


_ONE_SCALE = "scaling[0], scaling[1], scaling[2], scaling[3]"


def _scale_all(a: Assembler) -> None:
    """Scale sums that have the same scale."""
    a.ldr("r10", _Slots.scaling)
    a.ldm("r10", ("r1", "r3", "r5", "r8"))
    for total in _SUMS:
        a.mov("r10", "r3")
        a.mov("lr", "r5")
        a.smlal("r10", "lr", total, "r1")
        a.asr(total, "lr", "r8")


def _scale_each(a: Assembler) -> None:
    """Scale sums, each of which has a scale behind the biases; go on to the next biases."""
    for n, total in enumerate(_SUMS):
        for row, target in enumerate(("r1", "r10", "lr", "r8")):
            a.ldr(target, at("r12", 16 * row + 4 * n))
        a.smlal("r10", "lr", total, "r1")
        a.asr(total, "lr", "r8")
    a.add("r12", 64)
