"""Depthwise convolutions over planes: the table of taps, and the choice between kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import unwrap

import numpy as np
import pytest

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Wish
from utvm_deploy.kernels.isa import assembler
from utvm_deploy.kernels.isa.instructions import Instruction
from utvm_deploy.kernels.isa.list_scheduler import cycles, ordered
from utvm_deploy.kernels.native.dsp.assembly.depthwise_planes_code import planes_text
from utvm_deploy.kernels.native.dsp.assembly.depthwise_planes_table import (
    PARTIAL,
    SHIFTED,
    Variant,
    pack_table,
)
from utvm_deploy.kernels.native.estimated import MOST_SCRATCH_BYTES, best_kernel
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.contract.timing import Timing

CHANNELS = 2


def halves(word: int) -> dict[str, int]:
    """The int16 in the bottom and in the top of a word."""
    bottom, top = np.array([word], dtype="<i4").view("<i2")
    return {"b": int(bottom), "t": int(top)}


def product(name: str, left: dict[str, int], right: dict[str, int]) -> int:
    """What smlad or smlaxy adds to its sum."""
    if name == "smlad":
        return left["b"] * right["b"] + left["t"] * right["t"]
    return left[name[-2]] * right[name[-1]]


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7])
def test_words_of_taps_give_doubled_sums(columns: int, odd: int, stride: int) -> None:
    variant = Variant(2, columns, stride, odd, outputs=4, tail=PARTIAL)
    random = np.random.default_rng(columns)
    weights = random.integers(-127, 128, (2, columns, CHANNELS)).astype(np.int8)
    scaling = Scaling(*(random.integers(1, 99, (4, CHANNELS)).astype(np.int32)))
    table = pack_table(weights, scaling, variant).reshape(CHANNELS, -1)
    plane = random.integers(-128, 128, (2, variant.reach)).astype("<i2")
    words = plane.view("<i4")
    for channel in range(CHANNELS):
        *_, bias, multiplier, offset, shift = table[channel]
        expected = [2 * scaling.bias[channel], *(one[channel] for one in scaling[1:])]
        assert [bias, multiplier, offset, shift] == expected
        for output in range(variant.outputs):
            total = 0
            for row in range(2):
                for column in range(0, variant.reach, 2):
                    found = variant.product(column - odd - stride * output)
                    if found is not None:
                        name, word = found
                        taps = halves(table[channel][row * variant.words + word])
                        total += product(name, halves(words[row, column // 2]), taps)
            first = odd + stride * output
            seen = plane[:, first : first + columns].astype(int)
            assert total == 2 * int((seen * weights[:, :, channel]).sum())


def test_the_products_bound_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """3x3 at stride 1: six outputs take 48 slots of products and stored bytes, which never pair."""
    blocks: list[list[Instruction]] = []

    def note(code: Sequence[Instruction], timing: Timing, *, is_loop: bool) -> list[Instruction]:
        blocks.append(ordered(code, timing, is_loop=is_loop))
        return blocks[-1]

    monkeypatch.setattr(assembler, "ordered", note)
    unwrap(planes_text)("cortex-m7", Variant(3, 3, 1, 1, 6, SHIFTED, once=True))
    # It goes on to the next block, too.
    assert cycles(max(blocks, key=len), CORTEX_M7, repeat=10) <= 10 * 58 + 2


@dataclass(frozen=True)
class Kernel:
    scratch_bytes: int
    estimated_cycles: float

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (Operand("scratch", (self.scratch_bytes,), "int8"),)


def test_the_least_scratch_is_taken_that_costs_at_most_two_percent() -> None:
    fastest, small, smallest = Kernel(9000, 1000), Kernel(500, 1020), Kernel(100, 1021)
    assert best_kernel([fastest, small, smallest], Wish()) is small


def test_a_kernel_with_too_much_scratch_is_taken_only_if_all_have_too_much() -> None:
    large, larger = Kernel(MOST_SCRATCH_BYTES + 4, 100), Kernel(MOST_SCRATCH_BYTES + 8, 10)
    fitting = Kernel(MOST_SCRATCH_BYTES, 900)
    assert best_kernel([larger, large, fitting], Wish()) is fitting
    assert best_kernel([larger, large], Wish()) is large
    assert best_kernel([larger, large], Wish(most_scratch=10**6)) is larger
    assert best_kernel([], Wish()) is None
