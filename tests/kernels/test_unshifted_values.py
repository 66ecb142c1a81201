"""Tables of scaling without shifts: the lowest bit of an offset gives the shift."""

from __future__ import annotations

import numpy as np

from utvm_deploy.kernels.native.dsp.assembly.value_types import INT8, INT8_UNSHIFTED
from utvm_deploy.kernels.native.scaling import LARGEST_SHIFT, SMALLEST_SHIFT, short_scaling


def test_the_lowest_bit_of_an_offset_gives_the_shift() -> None:
    shifts = np.arange(SMALLEST_SHIFT, LARGEST_SHIFT + 1)
    weights = np.ones((shifts.size, 4), np.int8)
    bias, multiplier = np.zeros(shifts.size, np.int32), np.full(shifts.size, 1 << 30, np.int32)
    for zero_point in (-128, -1, 0, 1, 127):
        found = short_scaling(bias, weights, multiplier, -shifts, zero_point)
        assert not isinstance(found, str)
        offsets = found.offset.astype(np.int64)
        lowest = [int(one & -one).bit_length() for one in offsets]
        assert lowest == found.shift.tolist()


def test_the_table_has_three_words_a_channel() -> None:
    rows, weights = np.arange(20, dtype=np.int32).reshape(4, 5), np.zeros((5, 8), np.int8)
    _, whole = INT8.pack(weights, rows, 8)
    _, short = INT8_UNSHIFTED.pack(weights, rows[:3], 8)
    assert (whole.size, short.size) == (24, 18)
    assert short[:6].tolist() == [0, 1, 5, 6, 10, 11]
