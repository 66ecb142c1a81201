"""What ``benchmarks/kernels/vector_cycles.py`` counts, against a tile that is counted by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from utvm_deploy.kernels.native.rvv.gemm import VectorProduct

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "kernels"))
from vector_cycles import Walk, routines


@pytest.mark.parametrize("depth", [4, 40])
def test_a_block_of_three_pixels(depth: int) -> None:
    product = VectorProduct(2, 4)
    (lines,) = routines(product.texts("rv32imc_zve32x")).values()
    one, two = (
        Walk(lines, (0, 0, 0, 0, 0, 3, 32, steps, steps), 128) for steps in (depth, 2 * depth)
    )
    # A load, a conversion and a step of weights; a load and a product of each pixel; the pointers
    # and the branch of each four steps.
    assert two.instructions - one.instructions == depth * (3 + 2 * 3) + depth // 4 * 4
    assert two.elements - one.elements == depth * 32 * (2 + 3)
    bits = depth * 32 * (8 + 16 + 3 * 32)
    for width in (64, 128):
        assert (two.bits[width] - one.bits[width]) * width == bits


def test_longer_vectors_take_fewer_instructions_for_the_same_work() -> None:
    (lines,) = routines(VectorProduct(2, 4).texts("rv32imc_zve32x")).values()
    short, long = (Walk(lines, (0, 0, 0, 0, 0, 6, 128, 64, 64), vlen) for vlen in (128, 256))
    assert long.instructions < 0.55 * short.instructions
    assert long.bits == short.bits
