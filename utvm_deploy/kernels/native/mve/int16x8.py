"""CONV_2D and FULLY_CONNECTED of int16 by int8 weights for cores with Helium.

Sums that fit 32 bits, and are scaled within them, are made by ``gemm.py``; others are VMLALDAVA, in
64 bits, and scaled one by one, as the reference's double precision of FULLY_CONNECTED is, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from utvm_deploy.cores.timing_m55 import CORTEX_M55
from utvm_deploy.kernels.contract.c_texts import family_text, replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D, gathered
from utvm_deploy.kernels.native.layer_tables import constants, limits_of
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.code import CONDITION, INT16
from utvm_deploy.kernels.native.mve.conv2d import MveProduct
from utvm_deploy.kernels.native.routines.int16x8_products import (
    Int16x8ProductConv,
    Int16x8ProductDense,
    is_short,
)
from utvm_deploy.kernels.native.window_rewrites import simplified

_FOUR = "utvm_mve_wide_four"
_LONG = "utvm_mve_wide_long"
_PARAMETERS = (
    "const int16_t *vector",
    "const int8_t *weights",
    "int64_t *totals",
    "int32_t depth",
)
_HOW = "Helium assembly, eight products of int16 in a vector"


@dataclass(frozen=True)
class MveInt16x8Conv(RoutineKernel):
    """CONV_2D over all channels; ``is_short``: sums fit 32 bits."""

    window: Window
    channels: int
    outputs: int
    is_short: bool

    @property
    def name(self) -> str:
        length = "" if self.is_short else "_long"
        return f"conv2d_{self.window.label}_{self.channels}x{self.outputs}_16x8_mve{length}"

    @property
    def gathering(self) -> GatheredConv2D:
        """How windows are gathered: as if their bytes were channels."""
        return gathered(self.window, (2 * self.channels, self.outputs), MveProduct(False), None)

    @property
    def why(self) -> str:
        return f"{_HOW}, summed up in {32 if self.is_short else 64} bits"

    @property
    def routine(self) -> RoutineCall:
        w, one = self.window, self.gathering
        rows, columns = w.kernel
        depth = rows * columns * self.channels
        places = w.output_height * w.output_width
        # What is read in place is one image of all pixels.
        images = (w.batch, places, one.pixels) if one.is_gathered else (1, *[w.batch * places] * 2)
        return RoutineCall(
            f"utvm_mve_wide_conv_by_{gemm.WIDE_NAME if self.is_short else _LONG}",
            (
                Operand("input", (w.batch * w.height * w.width * self.channels,), "int16"),
                Operand("geometry", (one.geometry.size,), "int32"),
                Operand("weights", (gemm.weights_bytes(self.outputs, depth, INT16),), "int8"),
                self._scaling,
                Operand("limits", (3,), "int32"),
                Operand("output", (w.batch * places * self.outputs,), "int16"),
            ),
            (*images, self.outputs, depth, int(one.is_gathered)),
            (Operand("windows", (max(one.pixels * depth, 1),), "int16"),),
        )

    @property
    def _scaling(self) -> Operand:
        if self.is_short:
            words = gemm.scaling_words(self.outputs, has_left=False)
            return Operand("scaling", (words,), "int32")
        return Operand("scaling", (3 * self.outputs,), "int64")

    def texts(self, core: str) -> tuple[str, ...]:
        driver = family_text("mve", "utvm_mve_wide_conv")
        shared = shared_text("utvm_bytes"), shared_text("utvm_windows")
        if self.is_short:
            made = replaced(driver, ("PRODUCT", gemm.WIDE_NAME, 2), ("SCALING", "int32", 1))
            return *shared, gemm.wide_gemm_text(), made
        made = replaced(driver, ("PRODUCT", _LONG, 2), ("SCALING", "int64", 1))
        return *shared, four_text(), family_text("mve", _LONG), made


@dataclass(frozen=True)
class MveInt16x8Dense(RoutineKernel):
    """FULLY_CONNECTED."""

    batch: int
    inputs: int
    outputs: int

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_16x8_mve"

    why: ClassVar[str] = f"{_HOW}, summed up in 64 bits"

    @property
    def routine(self) -> RoutineCall:
        return RoutineCall(
            "utvm_mve_wide_dense",
            (
                Operand("input", (self.batch * self.inputs,), "int16"),
                Operand("weights", (gemm.weights_bytes(self.outputs, self.inputs, INT16),), "int8"),
                Operand("bias", (self.outputs,), "int64"),
                Operand("scales", (self.outputs, 3), "int32"),
                *("low", "high"),
                Operand("output", (self.batch * self.outputs,), "int16"),
            ),
            (self.batch, self.inputs, self.outputs),
        )

    def texts(self, core: str) -> tuple[str, ...]:
        return four_text(), family_text("mve", "utvm_mve_wide_dense")


@lru_cache(maxsize=1)
def four_text() -> str:
    """The C text of a vector by four channels, whose weights are laid out as in ``gemm.py``."""
    a = Assembler(CORTEX_M55, _PARAMETERS)
    a.enter()
    a.mov("r12", a.argument("depth"))
    a.add("r3", 7)
    a.bic("r3", 7)
    a.add("r3", "r1", "r3", "lsl #1")
    for n in range(4, 12):
        a.mov(f"r{n}", 0)
    # Totals are stored in the order of channels; weights have those of a pair side by side.
    with INT16.loop(a, "r12"), a.scheduled(is_loop=True):
        INT16.load_pixels(a, "q0", "r0")
        for weights, pointer, low, high in (
            ("q1", "r1", "r4", "r5"),
            ("q2", "r1", "r8", "r9"),
            ("q1", "r3", "r6", "r7"),
            ("q2", "r3", "r10", "r11"),
        ):
            INT16.load_weights(a, weights, pointer)
            a.vmlaldava_s16(low, high, "q0", weights)
    a.stm("r2", ("r4-r11",))
    a.leave()
    return a.c_function(_FOUR, family_text("mve", _FOUR), CONDITION)


def mve_wide_conv_call(layer: Layer) -> KernelCall | str:
    """The call of a CONV_2D instead of the generic one."""
    call = layer.portable
    if not isinstance(call.kernel, Int16x8ProductConv):
        return "it sums up in 32 bits, which may wrap, or has groups"
    window, weights = simplified(call.kernel.window, layer.constant(1))
    outputs, tables = weights.shape[0], constants(call)
    bias, multiplier, shift = (tables[name] for name in ("bias", "multiplier", "shift"))
    kernel = MveInt16x8Conv(window, weights.shape[3], outputs, is_short(weights, bias, shift))
    flat = weights.reshape(outputs, -1)
    if kernel.is_short:
        # As ``is_short`` says: the high word, and a shift by 16 less than 15 - shift.
        words = bias.astype(np.int32), multiplier.astype(np.int32) << 16, shift + 1
        scaling = gemm.pack_scaling(*words, has_left=False)
    else:
        scaling = np.stack([bias, multiplier, shift], axis=1).astype(np.int64).reshape(-1)
    return replace(
        call,
        kernel=kernel,
        arguments=(
            call.arguments[0],
            ConstantArgument("geometry", kernel.gathering.geometry),
            ConstantArgument("weights", gemm.pack_weights(flat, INT16)),
            ConstantArgument("scaling", scaling),
            ConstantArgument("limits", np.array([0, *limits_of(call)], dtype=np.int32)),
            call.arguments[-1],
        ),
    )


def mve_wide_dense_call(layer: Layer) -> KernelCall | str:
    """The call of a FULLY_CONNECTED instead of the generic one."""
    call, kernel = layer.portable, layer.portable.kernel
    assert isinstance(kernel, Int16x8ProductDense)
    packed = gemm.pack_weights(layer.constant(1), INT16)
    source, _, *others = call.arguments
    return replace(
        call,
        kernel=MveInt16x8Dense(kernel.batch, kernel.inputs, kernel.outputs),
        arguments=(source, ConstantArgument("weights", packed), *others),
    )
