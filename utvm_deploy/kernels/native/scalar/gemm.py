"""The matrix product of convolutions and dense layers: tiles of P pixels by C channels.

A step of the depth takes P C products and P + C loads. If a word has the weights of two channels
(``pairs.py``), it takes half of the products and P + C / 2 loads. Then the P C sums of 32 bits are
only needed between chunks.

Layouts, for channel o = C group + slot:
    pixels   int8  [pixel][depth], ``pitch`` bytes from pixel to pixel
    weights  int8  [group][depth][slot], or int32 as in ``pairs.py``
    scaling  int32 [group][bias, multiplier, offset, shift][slot]
    limits   int32 [low, high]

Of dense layers (``rounding.WIDE``), an offset has two words:
    scaling  int32 [group][bias (, multiplier, low and high word of the offset, shift - 32)][slot]
    limits   int32 [low, high (, multiplier, low and high word of the offset, shift - 32)]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.micro_kernel import by_groups
from utvm_deploy.kernels.native.scalar import pairs, steps
from utvm_deploy.kernels.native.scalar.rounding import TWICE, Rounding

#: Steps of the depth in a turn of the inner loop.
UNITS = (4, 2, 1)
CHANNELS = 4
#: Instructions for an output besides its products.
_OUTPUT = 14.0
#: The largest number that a load adds to an address.
REACH = 2047
_SLOTS, _HALVES = range(CHANNELS), range(CHANNELS // 2)


@dataclass(frozen=True)
class ScalarProduct:
    """The micro-kernel: the pixels of a tile, the steps of a turn, how it rounds."""

    pixels: int
    unit: int
    rounding: Rounding = TWICE
    #: For how many the table of weights has room, if they are paired (``pairs.py``); else 0.
    chunks: int = 0
    # Values from pixel to pixel, if the code is made for them: then a tile needs one pointer.
    pitch: int = 0
    #: Of pixels and outputs.
    dtype: str = "int8"

    @property
    def is_paired(self) -> bool:
        return self.chunks > 0

    @property
    def has_parts(self) -> bool:
        """As ``packed_call`` asks."""
        return not self.is_paired and self.dtype == "int8"

    @property
    def depth_step(self) -> int:
        return self.unit

    @property
    def label(self) -> str:
        form = "_pairs" if self.is_paired else "" if self.dtype == "int8" else f"_{self.dtype}"
        return f"scalar{form}{self.rounding.label}_{self.pixels}x{CHANNELS}_{self.unit}"

    @property
    def function(self) -> str:
        return f"utvm_gemm_{self.label}{f'_at_{self.pitch}' if self.pitch else ''}"

    @property
    def why(self) -> str:
        two = ", two products by one multiplication" if self.is_paired else ""
        return f"C{two}, {self.pixels} pixels x {CHANNELS} channels in registers"

    def texts(self, core: str) -> tuple[str, ...]:
        return family_text("scalar", "utvm_scalar_keep"), self.rounding.text, gemm_text(self)

    def place(self, pixel: int, step: int) -> tuple[str, int]:
        """The pointer to a pixel, and where this step of the depth is from it on."""
        return ("p0", pixel * self.pitch + step) if self.pitch else (f"p{pixel}", step)

    def pointers(self, pixels: int) -> list[str]:
        """The pointers to the pixels of a tile, each once."""
        return list(dict.fromkeys(self.place(p, 0)[0] for p in range(pixels)))

    def cycles_of_pixel(self, channels: int, depth: int) -> float:
        """About the instructions for all outputs of a pixel, of a depth.

        A tile has a load for each pixel and word of weights, and two instructions for a product.
        """
        groups, tile = -(-channels // CHANNELS), self.pixels * CHANNELS
        turns = groups * depth / self.unit
        if self.is_paired:
            step, loop = self.pixels + CHANNELS // 2 + tile, 4 if self.unit > 1 else 0
            chunks = self.chunks * (2 * tile + 2)
        else:
            # The loop's two instructions are counted with each step: short units are rare.
            step, loop, chunks = self.pixels + CHANNELS + 2 * tile + 2, 0, 0
        products = turns * (step * self.unit + loop) + chunks
        return products / self.pixels + channels * _OUTPUT

    def tables(self, channels: int, depth: int) -> tuple[Operand, Operand, Operand]:
        groups = -(-channels // CHANNELS)
        rows, limits = len(self.rounding.numbers), self.rounding.limits
        weights = Operand("weights", (groups * CHANNELS * depth,), "int8")
        if self.is_paired:
            words = groups * (depth * CHANNELS // 2 + 1) + self.chunks
            weights = Operand("weights", (words,), "int32")
        return (
            weights,
            Operand("scaling", (groups * CHANNELS * rows,), "int32"),
            Operand("limits", (limits,), "int32"),
        )

    def pack(self, weights: Array, rows: Array) -> tuple[Array, Array]:
        """[channels, depth] and [rows, channels] -> both tables."""
        scaling = by_groups(rows, CHANNELS).astype(np.int64)  # [group, row, slot]
        if self.is_paired:
            table, chunks = pairs.packed(weights, self.unit, CHANNELS)
            room, *_ = self.tables(*weights.shape)
            table = np.pad(table, (0, room.elements - table.size))
            # Sums of words begin with the bias of both halves.
            scaling[:, 0, ::2] += (scaling[:, 0, 1::2] << 16) - pairs.RAISED * chunks[:, None]
        else:
            table = by_groups(weights.T, CHANNELS).reshape(-1)
        return table, scaling.astype(np.uint32).view(np.int32).reshape(-1)


@lru_cache(maxsize=32)
def gemm_text(product: ScalarProduct) -> str:
    """The C of the function, and of the tiles that it consists of."""
    weights = ("WEIGHT", "int32_t" if product.is_paired else "int8_t", 1)
    names = ("GEMM", product.function, 3), ("PIXELS", str(product.pixels), 5), weights
    # The limits of int16 are behind a zero point.
    limits = "limits" if product.dtype == "int8" else "limits + 1"
    types = ("VALUE", f"{product.dtype}_t", 2), ("LIMITS", limits, 2)
    function = replaced(family_text("scalar", "utvm_scalar_gemm"), *names, *types)
    return "\n".join([*(_tile(product, n) for n in sorted({1, product.pixels})), function])


def _tile(product: ScalarProduct, pixels: int) -> str:
    """The C function of a tile: all channels of ``pixels`` pixels."""
    tile, rows, value = range(pixels), len(product.rounding.numbers), f"{product.dtype}_t"
    pointers = product.pointers(pixels)
    begin_at = [f"const {value} *{one} = pixels + {one[1:]} * pitch;" for one in pointers]
    back = [f"{one} -= depth;" for one in pointers]
    places: list[tuple[str, str | list[str], int]] = [
        ("TILE", f"{product.function}_{pixels}", 1),
        ("BEGIN", begin_at, 1),
        ("SCALING_WORDS", str(rows * CHANNELS), 1),
    ]
    if product.is_paired:
        sums = [f"{p}{h}" for p in tile for h in _HALVES]
        declared = ", ".join(f"t{one}, u{one}" for one in sums)
        finish = [
            f"uint32_t {declared};",
            _chunks(product, pixels, sums, back),
            # What follows has registers for these, which were taken until here.
            "const int32_t low = limits[0], high = limits[1];",
            "int32_t slots = left; UTVM_SCALAR_KEEP(slots);",
        ]
    else:
        finish = back
        begin = "uint32_t t{0}{1} = (uint32_t)scaling[{1}];"
        places += [
            ("VALUE", value, 2),
            ("CLEAR", [begin.format(p, c) for c in _SLOTS for p in tile], 1),
            ("MULTIPLY", _turn(product, pixels), 1),
            ("UNIT", str(product.unit), 1),
        ]
    places += [("FINISH", [*finish, *_finish(product, pixels)], 1)]
    text = family_text("scalar", f"utvm_scalar{'_pair' if product.is_paired else ''}_tile")
    joined = (
        (old, new if isinstance(new, str) else "\n".join(new), count) for old, new, count in places
    )
    return replaced(text, *joined)


def _chunks(product: ScalarProduct, pixels: int, sums: list[str], back: list[str]) -> str:
    """The C of all chunks of a group of channels."""
    begin = "uint32_t a{0}; t{0} = (uint32_t)scaling[{1}]; u{0} = (uint32_t)scaling[{1} + 1];"
    split = "t{0} += a{0}; u{0} += (uint32_t)((int32_t)a{0} >> 16);"
    text = replaced(
        family_text("scalar", "utvm_scalar_chunks"),
        ("RAISED", str(pairs.RAISED), 1),
        ("CLEAR", "\n".join(begin.format(one, 2 * int(one[1])) for one in sums), 1),
        ("FIRST", "\n".join(_paired_turn(product, pixels, "= raised +")), 1),
        ("MULTIPLY", "\n".join(_paired_turn(product, pixels, "+=")), 1),
        ("SPLIT", "\n".join(split.format(one) for one in sums), 1),
        ("BACK", "\n".join(back), 1),
    )
    if product.unit > 1 or pixels != steps.PIXELS or not product.pitch:
        return text
    return f"#if {steps.CONDITION}\n{steps.chunks(product.pitch)}\n#else\n{text}#endif"


def _turn(product: ScalarProduct, pixels: int) -> list[str]:
    """The C of a turn of the inner loop."""
    lines = []
    for k in range(product.unit):
        lines += [f"w{c} = (uint32_t)(int32_t)taps[{k * CHANNELS + c}];" for c in _SLOTS]
        for p in range(pixels):
            lines += [_loaded(product, p, k), *(f"t{p}{c} += x * w{c};" for c in _SLOTS)]
    return [*lines, *_steps(product, pixels, "taps", CHANNELS)]


def _paired_turn(product: ScalarProduct, pixels: int, begins: str) -> list[str]:
    """The same of pairs; ``begins``: how the first products go to their sums."""
    lines = []
    for k in range(product.unit):
        lines += [f"w{h} = (uint32_t)words[{k * len(_HALVES) + h}];" for h in _HALVES]
        for p in range(pixels):
            lines += [_loaded(product, p, k)]
            lines += [f"a{p}{h} {'+=' if k else begins} x * w{h};" for h in _HALVES]
    return [*lines, *_steps(product, pixels, "words", len(_HALVES))]


def _loaded(product: ScalarProduct, pixel: int, step: int) -> str:
    """The C that loads an input."""
    pointer, place = product.place(pixel, step)
    return f"x = (uint32_t)(int32_t){pointer}[{place}];"


def _steps(product: ScalarProduct, pixels: int, weights: str, each: int) -> list[str]:
    """The C that moves the pointers of a turn."""
    unit = product.unit
    steps = dict.fromkeys(product.pointers(pixels), unit) | {weights: unit * each}
    return [f"{pointer} += {step}; UTVM_SCALAR_KEEP({pointer});" for pointer, step in steps.items()]


def _finish(product: ScalarProduct, pixels: int) -> list[str]:
    """The C that requantizes and stores the sums of a group of channels."""
    lines, value_type = [], f"{product.dtype}_t"
    for p in range(pixels):
        lines += [f"{value_type} *to{p} = {f'to{p - 1} + channels' if p else 'output'};"]
        lines += [f"UTVM_SCALAR_KEEP(to{p});"]
    for c in _SLOTS:
        lines += [f"if (slots > {c}) {{"] if c else ["{"]
        # The bias is in the sums.
        lines += [
            f"const int32_t {name}{c} = scaling[{row * CHANNELS + c}];"
            for row, name in list(enumerate(product.rounding.numbers))[1:]
        ]
        for p in range(pixels):
            total = f"t{p}{c}"
            if product.is_paired:
                half = f"{p}{c // 2}"
                total = f"u{half}" if c % 2 else f"(t{half} - (u{half} << 16))"
            value = product.rounding.scaled(total, c)
            lines += [f"to{p}[{c}] = ({value_type})utvm_clamp({value}, low, high);"]
        lines += ["}"]
    return lines
