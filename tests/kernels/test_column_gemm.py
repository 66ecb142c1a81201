"""Convolutions over columns: how the output is cut into blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.columns import columns_kernels


def window(height: int, width: int, kernel: int, dilation: int = 1) -> Window:
    """A window with stride 1 and as many outputs as pixels."""
    pad = (kernel - 1) * dilation // 2
    sizes = height, width, height, width, (kernel, kernel)
    return Window(1, *sizes, (1, 1), (dilation, dilation), pad, pad)


@pytest.mark.parametrize(
    "shape", [(5, 7, 1), (5, 7, 3), (9, 4, 3), (1, 6, 3), (9, 11, 3, 2), (7, 8, 3, 3)]
)
def test_blocks_compute_each_output_once(shape: tuple[int, ...]) -> None:
    w = window(*shape)
    for kernel in columns_kernels(w, 8, 6, 1):
        seen: Counter[int] = Counter()
        for one in kernel.blocks:
            assert one.times > 0
            phases = range(one.phase, one.phase + max(one.phases, 1))
            for block in range(one.times):
                for row in range(one.rows):
                    for phase in phases:
                        for pixel in range(one.width):
                            if kernel.is_one_row:
                                seen[one.first + block * one.width + pixel] += 1
                            else:
                                y = one.first + block * one.rows + row
                                x = phase + pixel * max(kernel.phases, 1)
                                seen[y * w.output_width + x] += 1
        assert seen == Counter(range(w.output_height * w.output_width))


def test_a_block_of_all_rows_takes_scratch_for_the_rows_there_are() -> None:
    kernels = {one.rows: one for one in columns_kernels(window(5, 7, 3), 8, 6, 1)}
    assert kernels[6].scratch == replace(kernels[6], rows=5).scratch
