"""FULLY_CONNECTED for cores with Helium: four outputs at once, one rounding in 64 bits.

The vector is read in place and can have any length. Weights have the layout of ``gemm.py``.

    bias     int32 [four outputs][bias][pair][slot]
    scaling  int32 [multiplier, low and high word of the offset, shift - 32, low, high]
or, with a scale for each output,
    bias     int32 [four outputs][bias, multiplier, low word, high word, shift - 32][pair][slot]

Two weights of int4 share a byte, each with 8 added: those of a block of 16 and of the next one.
No blocks are in reverse.
Their scales are often larger, so multiples of the sums are scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.isa.assembler import Assembler, StackFrame
from utvm_deploy.kernels.isa.mnemonics import Slot, at, post
from utvm_deploy.kernels.native.dense import DenseRoutine
from utvm_deploy.kernels.native.layer_tables import DenseTables
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.shared_blocks import CONDITION, multiply_four_channels
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

#: What sums with weights of int4 are multiplied by, and how large they may be.
FACTOR, SUM_LIMIT = 16, 2**27
_SUMS = ("r0", "r2", "r4", "r6")
_PARAMETERS = """
const int8_t *vector, const int8_t *weights, const int32_t *bias, const int32_t *scaling,
int8_t *output, int32_t inputs, int32_t outputs""".strip()


class _Slots(StackFrame):
    """What the routine keeps on the stack."""

    vector: Slot
    scaling: Slot


@dataclass(frozen=True)
class MveDense(DenseRoutine):
    """The routine."""

    halves: bool = False  # the weights are int4

    labels: ClassVar[tuple[str, str]] = ("mve", "mve_each")
    why: ClassVar[str] = (
        f"Helium assembly, {gemm.CHANNELS} outputs in registers, weights streamed once"
    )

    @property
    def parameters(self) -> str:
        return f"{_PARAMETERS}{', int8_t *filled' if self.halves else ''}"

    @property
    def label(self) -> str:
        return f"{super().label}{'_int4' if self.halves else ''}"

    @property
    def function(self) -> str:
        ends = "_int4" if self.halves else ""
        return f"utvm_mve_dense{'_each' if self.per_channel else ''}{ends}"

    @property
    def unpacked_part(self) -> float:
        # 256 inputs and 128 outputs take 0.15 cycles for each.
        return 0.25 if self.halves else 0.0

    @property
    def helpers(self) -> tuple[str, ...]:
        return (family_text("mve", "utvm_mve_halves"),) if self.halves else ()

    def scratch(self, inputs: int) -> tuple[Operand, ...]:
        return (Operand("filled", (-(-inputs // 32) * 32,), "int8"),) if self.halves else ()

    def text(self, core: str) -> str:
        each, one = (f"b[{n}]" for n in (4, 8, 12, 16)), (f"scaling[{n}]" for n in range(4))
        scaling = ", ".join(each if self.per_channel else one)
        rows = "5" if self.per_channel else "1"
        if self.halves:
            text = family_text("mve", "utvm_mve_dense_int4")
            names = ("DENSE", self.function, 1), ("SCALING", scaling, 1), ("ROWS", rows, 1)
            return replaced(text, *names, ("FACTOR", str(FACTOR), 1))
        a = Assembler(CORTEX_M55, self.parameters)
        a.enter(frame=_Slots, vectors=("d8-d11",))
        a.store(r0=_Slots.vector, r3=_Slots.scaling)
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
            a.add("r3", "r7", "r9", "lsl #2")
            multiply_four_channels(a, _SUMS)
            a.add("r7", "r7", "r9", "lsl #1")
            _scale(a, self.per_channel)
            a.load(r1=a.stack_argument("output"), r3=a.stack_argument("outputs"))
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
        portable = replaced(
            family_text("mve", "utvm_mve_dense"), ("SCALING", scaling, 1), ("ROWS", rows, 1)
        )
        return a.c_function(self.function, portable, CONDITION)

    def pack(self, layer: DenseTables) -> dict[str, Array]:
        scales = np.array(layer.scales)
        rows = np.array([layer.bias, *scales.T] if self.per_channel else [layer.bias])
        filled = np.pad(rows, ((0, 0), (0, -layer.bias.size % gemm.CHANNELS)))
        # row, four outputs, slot, pair -> four outputs, row, pair, slot
        bias = filled.reshape(len(rows), -1, 2, 2).transpose(1, 0, 3, 2)
        return {
            "weights": self._pack_weights(layer.weights),
            "bias": np.ascontiguousarray(bias, dtype=np.int32).reshape(-1),
            "scaling": np.append(scales[0], layer.limits).astype(np.int32),
        }

    def _pack_weights(self, weights: Array) -> Array:
        if not self.halves:
            return gemm.pack_weights(weights)
        blocks = (
            (gemm.pack_blocks(weights) + np.int8(8))
            .view(np.uint8)
            .reshape(-1, -(-weights.shape[1] // 16), 2, 16)
        )
        filled = np.pad(blocks, ((0, 0), (0, blocks.shape[1] % 2), (0, 0), (0, 0)))
        packed: Array = (filled[:, ::2] | filled[:, 1::2] << np.uint8(4)).view(np.int8)
        return packed.reshape(-1)


def _scale(a: Assembler, per_channel: bool) -> None:
    """Scale four sums in place; with a scale for each, r12 ends at the next four biases."""
    if not per_channel:
        a.ldr("r10", _Slots.scaling)
        a.ldm("r10", ("r1", "r3", "r5", "r8"))
    for n, total in enumerate(_SUMS):
        if per_channel:
            for row, target in enumerate(("r1", "r10", "lr", "r8")):
                a.ldr(target, at("r12", 16 * row + 4 * n))
        else:
            a.mov("r10", "r3")
            a.mov("lr", "r5")
        a.smlal("r10", "lr", total, "r1")
        a.asr(total, "lr", "r8")
    if per_channel:
        a.add("r12", 64)
