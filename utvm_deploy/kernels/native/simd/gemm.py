"""The matrix product of convolutions and dense layers: tiles of P pixels by four channels.

A step multiplies eight depths of a pixel with those of a channel, as 16 bits. It adds pairs of
products to four sums of 32 bits. The four sums of a channel are added at the end.

Layouts, for channel o = 4 group + slot:
    pixels   int8  [pixel][depth], ``pitch`` bytes from pixel to pixel
    weights  int8  [group][depth / 8][slot][8]
    scaling  int32 [group][bias, multiplier, offset, 2^(32 - shift)][slot]
    limits   int32 [low, high]

Of dense layers (``rounding.WIDE``), scaling and limits are those of the scalar family.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.scalar.rounding import ONCE, TWICE, Rounding

CHANNELS, STEP = 4, 8
#: Shifts are products with 2**(32 - shift), which has a sign and 31 bits.
LEAST_SHIFT = 2
_SLOTS = range(CHANNELS)
#: Instructions for the four outputs of a pixel besides its products, and for a step without them.
_OUTPUTS, _TURN = 60.0, 8.0
_OWN = {ONCE: "utvm_simd_once", TWICE: "utvm_simd_twice"}


@dataclass(frozen=True)
class SimdProduct:
    """The micro-kernel: the pixels of a tile, and how it rounds."""

    pixels: int
    rounding: Rounding

    depth_step = STEP

    @property
    def label(self) -> str:
        return f"simd{self.rounding.label}_{self.pixels}x{CHANNELS}"

    @property
    def function(self) -> str:
        return f"utvm_gemm_{self.label}"

    @property
    def why(self) -> str:
        return f"C with SIMD, {self.pixels} pixels x {CHANNELS} channels in registers"

    def texts(self, core: str) -> tuple[str, ...]:
        own = () if self.rounding in _OWN else (self.rounding.text,)
        return family_text("simd", "utvm_simd_scale"), *own, gemm_text(self)

    def cycles_of_pixel(self, channels: int, depth: int) -> float:
        """About the instructions for all outputs of a pixel, of a depth."""
        groups, tile = -(-channels // CHANNELS), self.pixels * CHANNELS
        step = 2 * (self.pixels + CHANNELS) + 4 * tile + _TURN
        return groups * (step * depth / STEP / self.pixels + _OUTPUTS)

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        groups = -(-channels // CHANNELS)
        words = groups * CHANNELS * len(self.rounding.numbers)
        return (
            Operand("weights", (groups * CHANNELS * depth,), "int8"),
            Operand("scaling", (words,), "int32"),
            Operand("limits", (self.rounding.limits,), "int32"),
        )

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """[channels, depth] and [rows, channels] -> both tables."""
        channels, depth = weights.shape
        filled = np.pad(weights, ((0, -channels % CHANNELS), (0, 0)))
        table = filled.reshape(-1, CHANNELS, depth // STEP, STEP).swapaxes(1, 2)
        if self.rounding in _OWN:
            rows = np.array(rows, np.int32)
            rows[3] = np.int32(1) << (32 - rows[3])
        scaling = by_groups(rows, CHANNELS).reshape(-1).astype(np.int32)
        return np.ascontiguousarray(table).reshape(-1), scaling


@lru_cache(maxsize=32)
def gemm_text(product: SimdProduct) -> str:
    """The C of the function, and of the tiles that it consists of."""
    names = ("GEMM", product.function, 3), ("PIXELS", str(product.pixels), 5)
    types = ("VALUE", "int8_t", 2), ("WEIGHT", "int8_t", 1), ("LIMITS", "limits", 2)
    function = replaced(family_text("scalar", "utvm_scalar_gemm"), *names, *types)
    return "\n".join([*(_tile(product, n) for n in sorted({1, product.pixels})), function])


def _tile(product: SimdProduct, pixels: int) -> str:
    """The C function of a tile: all channels of ``pixels`` pixels."""
    tile = range(pixels)
    add = "a{p}{c} = wasm_i32x4_add(a{p}{c}, wasm_i32x4_dot_i16x8(x{p}, w));"
    products = []
    for c in _SLOTS:
        products += [f"w = wasm_i16x8_load8x8(weights + {STEP * c});"]
        products += [add.format(p=p, c=c) for p in tile]
    loads = [f"const v128_t x{p} = wasm_i16x8_load8x8(p{p} + k);" for p in tile]
    sums = [f"a{p}{c} = wasm_i32x4_const_splat(0)" for p in tile for c in _SLOTS]
    total = "wasm_i32x4_add(bias, utvm_simd_sums({}))"
    totals = [total.format(", ".join(f"a{p}{c}" for c in _SLOTS)) for p in tile]
    own = _OWN.get(product.rounding)
    if own:
        totals = [f"{own}_4({one}, scaling)" for one in totals]
    stores = [f"wasm_v128_store(sums[{p}], {one});" for p, one in enumerate(totals)]
    scaled = product.rounding.scaled("sums[p][c]")
    words = len(product.rounding.numbers) * CHANNELS
    numbers = [
        f"const int32_t {name} = scaling[{row * CHANNELS} + c];"
        for row, name in list(enumerate(product.rounding.numbers))[1:]
    ]
    each = "for (int32_t p = 0; p < {0}; p++) {{ for (int32_t c = 0; c < slots; c++) {{ {1} }} }}"
    if own:
        plain = (
            f"sums[p][c] = {own}(sums[p][c], {', '.join(f'scaling[{n} + c]' for n in (4, 8, 12))});"
        )
        additional = f"#if !defined(__wasm_simd128__)\n{each.format(pixels, plain)}\n#endif\n"
        value = "sums[p][c]"
    else:
        additional, value = "", scaled
    put = f"output[p * channels + c] = (int8_t)utvm_clamp({value}, low, high);"
    put = " ".join([*([] if own else numbers), put])
    return replaced(
        family_text("simd", "utvm_simd_tile"),
        ("TILE", f"{product.function}_{pixels}", 1),
        ("POINTERS", "\n".join(f"const int8_t *p{p} = pixels + {p} * pitch;" for p in tile), 1),
        ("VECTORS", f"v128_t w, {', '.join(sums)};", 1),
        ("LOADS", "\n".join(loads), 1),
        ("PRODUCTS", "\n".join(products), 1),
        ("STORES", "\n".join(stores), 1),
        ("ADDITIONS", "\n".join(f"sums[{p}][c] += p{p}[k + i] * w;" for p in tile), 1),
        ("FINISH", additional + each.format(pixels, put), 1),
        ("PIXELS", str(pixels), 2),
        ("WORDS", str(words), 1),
    )
