"""Estimates of Winograd's method along one axis, and of larger tiles, for the DSP extension.

    python benchmarks/kernels/larger_winograd.py

No kernel has these forms. The inner loop is that of F(2x2, 3x3), with its cycles. Transforms are
counted as instructions, at the rate that F(2x2, 3x3) takes. The integers are checked first. Weights
are tables, or int8 that each strip transforms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.native.dsp.assembly import tile

#: Height, width, inputs, outputs: layers of docs/internals/kernel-figures.md.
LAYERS = [
    (32, 32, 16, 16), (16, 16, 32, 32), (8, 8, 64, 64), (17, 17, 16, 32), (24, 24, 8, 8),
    (25, 5, 64, 64), (7, 7, 96, 32), (48, 48, 4, 8), (5, 5, 128, 64), (3, 3, 64, 64),
]  # fmt: skip
#: Bytes of transformed inputs in a strip.
STRIP_BYTES = 12_288
STEP, GROUP, POSITION, CALL = 6.0, 18.5, 18.0, 130.0

# Factors of weights, inputs and outputs. Each row of G is an integer; ``PARTS`` make up for that.
G2 = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
B2 = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
A2 = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
G4 = np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]])
B4 = np.array(
    [
        [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
    ]
)  # fmt: skip
A4 = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
PARTS = np.array([6, -4, -4, 1, 1, 24])


class Form(NamedTuple):
    """A form, and the cycles of its transforms: of a tile and two outputs, or four inputs.

    ``expansion`` is of weights of int8, for two outputs and two inputs; 0: they are tables.
    """

    name: str
    rows: int  # of outputs in a tile
    columns: int
    output: float
    input: float
    expansion: float = 0.0

    @property
    def positions(self) -> int:
        return (self.columns + 2) * (self.rows + 2 if self.rows > 1 else 1)

    def cycles(self, height: int, width: int, inputs: int, outputs: int) -> float:
        tiles = math.ceil(height / self.rows) * math.ceil(width / self.columns)
        depth = inputs if self.rows > 1 else 3 * inputs
        pairs, passes = outputs / 2, math.ceil(tiles * self.positions * inputs * 2 / STRIP_BYTES)
        groups = math.ceil(tiles / 3)
        products = self.positions * (groups * (depth / 2 * STEP + GROUP) + passes * POSITION)
        rest = tiles * self.output + passes * CALL
        weights = pairs * depth * (18 if self.expansion else 4 * self.positions)
        products += passes * depth / 2 * self.expansion
        filled = tiles * inputs / 4 * self.input + height * width * inputs / 2
        return pairs * (products + rest) + filled + tile.cache_cycles(passes, int(weights))


FORMS = [
    Form("F(2x2, 3x3)", 2, 2, 104, 112),
    Form("F(2, 3)", 1, 2, 39, 28),
    Form("F(4, 3)", 1, 4, 89, 60),
    Form("F(4x4, 3x3)", 4, 4, 524, 468),
    Form("F(2x2, 3x3), int8", 2, 2, 104, 112, 64),
    # 207 instructions instead of 70.
    Form("F(4x4, 3x3), int8", 4, 4, 524, 468, 190),
]


def check() -> None:
    """The integers of F(4, 3) and F(4x4, 3x3) give 24 and 576 times the sums."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        d, g = rng.integers(-128, 128, (6, 6)), rng.integers(-128, 128, (3, 3))
        wanted = [[int((d[y : y + 3, x : x + 3] * g).sum()) for x in range(4)] for y in range(4)]
        made = A4 @ (np.outer(PARTS, PARTS) * (G4 @ g @ G4.T) * (B4 @ d @ B4.T)) @ A4.T
        assert (made == 576 * np.array(wanted)).all()
        row: Array = A4 @ (PARTS * (G4 @ g[0]) * (B4 @ d[0]))
        assert row.tolist() == [24 * int((d[0, x : x + 3] * g[0]).sum()) for x in range(4)]
        pair: Array = A2 @ ((G2 @ g[0]) * (B2 @ d[0, :4]))
        assert pair.tolist() == [2 * int((d[0, x : x + 3] * g[0]).sum()) for x in range(2)]


def main() -> None:
    """Print the bounds and the table."""
    check()
    for name, g, b in (("F(2, 3)", G2, B2), ("F(4, 3)", G4, B4)):
        u, v = (int(128 * np.abs(one).sum(axis=1).max()) for one in (g, b))
        print(f"{name}: weights within {u}, inputs within {v}; ", end="")
        print(f"in two dimensions {u * u // 128} and {v * v // 128}")
    print(f"| layer | {' | '.join(one.name for one in FORMS)} |")
    print(f"|---|{'--:|' * len(FORMS)}")
    for height, width, inputs, outputs in LAYERS:
        counts = [form.cycles(height, width, inputs, outputs) for form in FORMS]
        cells = " | ".join(f"{count:,.0f}" for count in counts)
        print(f"| {height}x{width}x{inputs} -> {outputs} | {cells} |")


if __name__ == "__main__":
    main()
