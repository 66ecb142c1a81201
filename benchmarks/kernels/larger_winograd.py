"""Bounds of Winograd's forms for the DSP extension, and estimates of those along one axis.

    python benchmarks/kernels/larger_winograd.py

F(2x2, 3x3) and F(4x4, 3x3) have kernels: their columns are the kernels' estimates, with weights of
int8. F(2, 3) and F(4, 3) have none. Theirs are of the same inner loop, and of transforms that are
counted as instructions, at the rate of F(2x2, 3x3). The integers are checked first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.assembly import tile, winograd_code
from utvm_deploy.kernels.native.dsp.winograd import MOST_WINOGRAD_BYTES, winograd_kernels
from utvm_deploy.kernels.native.estimated import scratch_bytes

#: Height, width, inputs, outputs: layers of docs/internals/kernel-figures.md.
LAYERS = [
    (32, 32, 16, 16), (16, 16, 32, 32), (8, 8, 64, 64), (17, 17, 16, 32), (24, 24, 8, 8),
    (25, 5, 64, 64), (7, 7, 96, 32), (48, 48, 4, 8), (5, 5, 128, 64), (3, 3, 64, 64),
]  # fmt: skip
#: Cycles of a step for each tile, of a group, of its loop over channels, of a position, of the
#: calls for two channels: as the kernels' estimates have them.
STEP, GROUP, TURNS, POSITION, CALL = 2.0, 4.5, 14.0, 18.0, 130.0

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
    """A form along one axis, and the cycles of its transforms.

    ``output`` is of a tile and two outputs, ``input`` of a tile and four inputs, ``expansion`` of
    the weights of int8 for two outputs and two inputs.
    """

    name: str
    columns: int  # of outputs in a tile
    output: float
    input: float
    expansion: float

    def cycles(self, height: int, width: int, inputs: int, outputs: int) -> float:
        """Cycles of a layer with borders, whose strips take as much scratch as the kernels may."""
        positions, tiles = self.columns + 2, math.ceil(width / self.columns)
        depth, pairs = 3 * inputs, outputs / 2
        strip = max((MOST_WINOGRAD_BYTES // (2 * positions * tiles * inputs)) - 2, 1)
        passes = math.ceil(height / strip)
        step = winograd_code.step_of(depth)
        group = GROUP + (0 if step == depth else TURNS + 2 * depth / step)
        steps = tiles * depth / 2 * STEP + math.ceil(tiles / 3) * group
        products = positions * (height * steps + passes * POSITION)
        rest = height * tiles * self.output + passes * (CALL + depth / 2 * self.expansion)
        filled = height * tiles * inputs / 4 * self.input + height * width * inputs / 2
        return pairs * (products + rest) + filled + tile.cache_cycles(passes, 9 * inputs * outputs)


FORMS = [Form("F(2, 3)", 2, 39, 28, 16), Form("F(4, 3)", 4, 89, 60, 24)]


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


def of_kernels(outputs_of_tile: int, layer: tuple[int, int, int, int]) -> float:
    """The estimate of the fastest kernel that is a candidate; NaN if there is none."""
    height, width, inputs, outputs = layer
    window = Window(1, height, width, height, width, (3, 3), (1, 1), (1, 1), 1, 1)
    kernels = winograd_kernels(window, inputs, outputs, 1, is_compact=True)
    found = (one for one in kernels if one.outputs == outputs_of_tile)
    small = [one for one in found if scratch_bytes(one) <= MOST_WINOGRAD_BYTES]
    return min((one.estimated_cycles for one in small), default=math.nan)


def main() -> None:
    """Print the bounds and the table."""
    check()
    for name, g, b in (("F(2, 3)", G2, B2), ("F(4, 3)", G4, B4)):
        u, v = (int(128 * np.abs(one).sum(axis=1).max()) for one in (g, b))
        print(f"{name}: weights within {u}, inputs within {v}; ", end="")
        print(f"in two dimensions {u * u // 128} and {v * v // 128}")
    print(f"| layer | F(2x2, 3x3) | F(4x4, 3x3) | {' | '.join(one.name for one in FORMS)} |")
    print(f"|---|{'--:|' * (2 + len(FORMS))}")
    for layer in LAYERS:
        counts = [*(of_kernels(m, layer) for m in (2, 4)), *(form.cycles(*layer) for form in FORMS)]
        cells = " | ".join("" if math.isnan(count) else f"{count:,.0f}" for count in counts)
        height, width, inputs, outputs = layer
        print(f"| {height}x{width}x{inputs} -> {outputs} | {cells} |")


if __name__ == "__main__":
    main()
