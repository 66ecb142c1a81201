"""CONV_2D and FULLY_CONNECTED of int16 by int8 weights for cores with Helium.

CONV_2D whose sums fit 32 bits, also while they are scaled, is the product of ``gemm.py``. Other
layers sum in 64 bits by VMLALDAVA, and C scales each sum: FULLY_CONNECTED always does, because the
reference scales it in double precision.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.code_cache import code_cache
from utvm_deploy.kernels.isa.mnemonics import post, pre
from utvm_deploy.kernels.native.layer_tables import constants
from utvm_deploy.kernels.native.mve import gemm
from utvm_deploy.kernels.native.mve.gemm import MveProduct
from utvm_deploy.kernels.native.mve.shared_blocks import CONDITION, INT16
from utvm_deploy.kernels.native.routines.int16x8 import (
    Int16x8ProductConv,
    Int16x8ProductDense,
    is_short,
)
from utvm_deploy.kernels.native.routines.int16x8_gathered import WideProduct, wide_conv_call
from utvm_deploy.kernels.native.window_rewrites import simplified
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55

_FOUR = "utvm_mve_wide_four"
_LONG = "utvm_mve_wide_long"
_PARAMETERS = "const int16_t *vector, const int8_t *weights, int64_t *totals, int32_t depth"
_SHORT = MveProduct(by=INT16)
_HOW = "Helium assembly, eight products of int16 in a vector"


def mve_int16x8_conv_call(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D over all channels: the call instead of the portable one."""
    call = layer.portable
    if not isinstance(call.kernel, Int16x8ProductConv):
        return "it sums up in 32 bits, which may wrap, or has groups"
    window, weights = simplified(call.kernel.window, layer.constant(1))
    tables, outputs = constants(call), weights.shape[0]
    bias, multiplier, shift = (tables[name] for name in ("bias", "multiplier", "shift"))
    flat = weights.reshape(outputs, -1)
    if is_short(weights, bias, shift):
        label, bits, function = "mve", 32, _SHORT.function
        texts = _SHORT.texts(layer.core)
        # As ``is_short`` says: the high word, and a shift by 16 less than 15 - shift.
        numbers = bias, multiplier.astype(np.int32) << 16, shift + 1
        packed, scaling = _SHORT.pack(flat, np.array(numbers, dtype=np.int32))
    else:
        label, bits, function = "mve_long", 64, _LONG
        texts = _four_text(), family_text("mve", _LONG)
        packed = gemm.pack_weights(flat, INT16)
        scaling = np.stack([bias, multiplier, shift], axis=1).astype(np.int64).reshape(-1)
    why = f"{_HOW}, summed up in {bits} bits"
    product = WideProduct("mve", function, texts, packed, scaling, label, why, MveProduct())
    return wide_conv_call(layer, window, weights, product)


def mve_int16x8_dense_call(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED: the call instead of the portable one."""
    portable = layer.portable.kernel
    assert isinstance(portable, Int16x8ProductDense)
    batch, inputs, outputs = portable.batch, portable.inputs, portable.outputs
    weights = gemm.pack_weights(layer.constant(1), INT16)
    source, _, *others = layer.portable.arguments
    batches = f"_n{batch}" if batch != 1 else ""
    kernel = CRoutine(
        "utvm_mve_wide_dense",
        portable.parameters,
        (batch, inputs, outputs),
        name=f"fully_connected{batches}_{inputs}x{outputs}_16x8_mve",
        why=f"{_HOW}, summed up in 64 bits",
        c_texts=(_four_text(), family_text("mve", "utvm_mve_wide_dense")),
    )
    arguments = source, ConstantArgument("weights", weights), *others
    return replace(layer.portable, kernel=kernel, arguments=arguments)


@code_cache
def _four_text() -> str:
    """The C text of the product of a vector and four channels; weights are as in ``gemm.py``."""
    a = Assembler(CORTEX_M55, _PARAMETERS)
    a.enter()
    a.mov("r12", a.argument("depth"))
    a.add("r3", 7)
    a.bic("r3", 7)
    a.add("r3", "r1", "r3", "lsl #2")
    for n in range(4, 12):
        a.mov(f"r{n}", 0)
    # Totals are stored in the order of channels; weights have those of a pair side by side.
    with INT16.loop(a, "r12"), a.scheduled(is_loop=True):
        INT16.load_pixels(a, "q0", "r0")
        up, down = post("r1", INT16.lanes), pre("r3", -INT16.lanes)
        for weights, place, low, high in (
            ("q1", up, "r4", "r5"),
            ("q2", up, "r8", "r9"),
            ("q1", down, "r6", "r7"),
            ("q2", down, "r10", "r11"),
        ):
            INT16.load_weights(a, weights, place)
            a.vmlaldava_s16(low, high, "q0", weights)
    a.stm("r2", ("r4-r11",))
    a.leave()
    return a.c_function(_FOUR, family_text("mve", _FOUR), CONDITION)
