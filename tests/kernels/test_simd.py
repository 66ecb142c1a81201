"""The kernels of SIMD: how four lanes round, and what small shifts become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from needed_machine import skip_without_machine
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device
from utvm_deploy.graph.rounding import requantized
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.kernels.native.scalar.rounding import ONCE, TWICE, WIDE_EACH, Rounding
from utvm_deploy.kernels.native.simd.gemm import SimdProduct
from utvm_deploy.kernels.native.single_rounding import first_sums

pytestmark = [pytest.mark.tools, pytest.mark.emulator]
SHIFTS = (2, 3, 7, 15, 22)
MULTIPLIERS = (1 << 30, (1 << 30) + 1, 1_234_567_891, 1_999_999_999, (1 << 31) - 1)
#: Sums at the ends of those that a convolution may have, and around 0.
LARGEST = (1 << 30) - 1
SUMS = (-LARGEST, LARGEST, -2, -1, 0, 1, 2)


@pytest.fixture(scope="module")
def wasm() -> Iterator[Device]:
    skip_without_machine(load_board("wasm"))
    with utvm_deploy.connect("wasm") as device:
        yield device


def outputs_of(device: Device, rounding: Rounding, rows: np.ndarray, limits: object) -> np.ndarray:
    """What a kernel makes of sums, which are its biases, for three pixels of zeros."""
    product, channels = SimdProduct(2, rounding), rows.shape[1]
    weights, scaling = product.pack(np.ones((channels, 8), np.int8), rows)
    parameters = (
        "const int8_t *p, const int8_t *w, const int32_t *s, const int32_t *l, int8_t *o, "
        "int32_t channels"
    )
    run = f"void run({parameters}) {{ {product.function}(p, w, s, l, o, 3, channels, 8, 8); }}\n"
    text = "\n".join(("#include <stdint.h>", header(), *product.texts("wasm32"), run))
    with device.load_module(text, name="product") as module:
        pixels, output = device.tensor(np.zeros(24, np.int8)), device.empty(3 * channels, np.int8)
        tables = [device.tensor(one) for one in (weights, scaling, np.array(limits, np.int32))]
        module["run"](pixels, *tables, output, channels)
        first, second, third = output.numpy().reshape(3, channels)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    return first


@pytest.mark.parametrize("rounding", [ONCE, TWICE])
def test_four_lanes_round_at_all_borders(wasm: Device, rounding: Rounding) -> None:
    rows = []
    for shift in SHIFTS:
        multipliers = np.array(MULTIPLIERS, np.int64)[:, None]
        outputs = np.arange(-128, 128, 7)[None, :]
        for multiplier, firsts in zip(
            MULTIPLIERS,
            first_sums(multipliers, np.full_like(multipliers, shift), outputs),
            strict=True,
        ):
            sums = np.unique(np.clip([*firsts, *(firsts - 1), *SUMS], -LARGEST, LARGEST))
            offset = (3 << shift) + (1 << (shift - 1))
            rows += [(int(one), multiplier, offset, shift) for one in sums]
    rows = rows[: len(rows) // 4 * 4 + 3]  # the last group is no whole one
    table = np.array(rows, dtype=np.int64).astype(np.int32).T.copy()
    found = outputs_of(wasm, rounding, table, (-128, 127))
    if rounding is TWICE:
        wanted = [requantized(one, multiplier, -shift) + 3 for one, multiplier, _, shift in rows]
    else:
        wanted = [((one * m >> 32) + o) >> s for one, m, o, s in rows]
    np.testing.assert_array_equal(found, np.clip(wanted, -128, 127))


def test_dense_layers_round_in_64_bits(wasm: Device) -> None:
    rng = np.random.default_rng(5)
    sums = [-(2**31), 2**31 - 1, *SUMS, *rng.integers(-(2**31), 2**31, 402).tolist()]
    multiplier = rng.integers(1 << 30, 1 << 31, len(sums))
    shift = rng.integers(15, 23, len(sums))
    offset = (1 << (shift + 31)) + (rng.integers(-128, 128, len(sums)) << (shift + 32))
    rows = [sums, multiplier, offset & 0xFFFFFFFF, (offset >> 32) & 0xFFFFFFFF, shift]
    table = np.array(rows, dtype=np.int64).astype(np.uint32).view(np.int32)
    found = outputs_of(wasm, WIDE_EACH, table, (-120, 100))
    numbers = zip(sums, multiplier.tolist(), offset.tolist(), shift.tolist(), strict=True)
    wanted = [(one * m + o) >> (s + 32) for one, m, o, s in numbers]
    np.testing.assert_array_equal(found, np.clip(wanted, -120, 100))


@pytest.mark.parametrize(("ratio", "engine"), [(0.3, "generic"), (0.2, "simd"), (0.01, "simd")])
def test_small_shifts_and_constant_channels(
    wasm: Device, ratio: float, engine: str, tmp_path: Path
) -> None:
    """A product shifts by two bits or more. A channel of zeros has no shift to keep."""
    rng, m = np.random.default_rng(3), ModelWriter()
    weights = rng.integers(-127, 128, (9, 1, 1, 8), dtype=np.int8)
    weights[4] = 0
    x = m.input((1, 5, 5, 8), scale=0.1)
    bias = np.zeros(9, np.int32)
    m.output(m.conv2d(x, weights, bias, weight_scale=0.1, scale=0.01 / ratio, zero_point=7))
    result = utvm_deploy.verify(m.save(tmp_path / "m.tflite"), wasm)
    assert result.ok and {one.layer.engine for one in result.found.layers} == {engine}
