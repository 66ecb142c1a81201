"""Exact Winograd convolutions against the reference, in plain C and on emulated cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from odd_shapes import ACTIVATIONS, compare_candidates, compare_on
from test_convolutions import spread_scale
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp.winograd import packed_weights, winograd_kernels
from utvm_deploy.kernels.native.scalar.winograd import FORMS
from utvm_deploy.kernels.native.scalar.winograd import packed_weights as scalar_weights
from utvm_deploy.records.candidate import Candidate

# height, width, channels, outputs, padding: groups of two and three tiles, odd heights and widths,
# depths with and without a loop, as few tiles as there are.
SHAPES = [
    (4, 8, 4, 2, "SAME"),
    (5, 3, 8, 6, "SAME"),
    (7, 13, 12, 4, "SAME"),
    (6, 5, 4, 2, "VALID"),
    (3, 6, 80, 2, "SAME"),
    (9, 10, 16, 4, "SAME"),
    (8, 8, 132, 2, "VALID"),
    (2, 7, 4, 2, "SAME"),
]
# And for kernels of any number of channels: tiles of 4 x 4 outputs that are cut on both sides.
ODD_SHAPES = [
    (5, 17, 3, 5, "SAME"),
    (8, 8, 6, 9, "SAME"),
    (1, 6, 5, 1, "SAME"),
    (13, 3, 4, 4, "SAME"),
]


def write_convolutions(
    path: Path, shapes: Sequence[tuple[int, int, int, int, str]] = SHAPES
) -> ModelWriter:
    """One layer of each shape; the weights of the first are the largest there are."""
    rng = np.random.default_rng(31)
    m = ModelWriter()
    for index, (height, width, channels, outputs, padding) in enumerate(shapes):
        weights = rng.integers(-128, 128, (outputs, 3, 3, channels), dtype=np.int8)
        if index == 0:
            weights[0], weights[1] = -128, np.where(weights[1] < 0, -128, 127)
        bias = rng.integers(-(2**13), 2**13, outputs, dtype=np.int32)
        x = m.input((1 + index % 2, height, width, channels), 0.05, int(rng.integers(-128, 128)))
        y = m.conv2d(
            x,
            weights,
            bias,
            weight_scale=rng.uniform(0.003, 0.02, outputs),
            padding=padding,
            activation=ACTIVATIONS[index % len(ACTIVATIONS)],
            scale=spread_scale(9 * channels, 0.05, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    m.save(path)
    return m


@pytest.mark.tools
@pytest.mark.parametrize(
    "choices",
    [
        *("rows=1", "rows=2", "int8=1 rows=1", "int8=1 rows=2"),
        *("int8=1 outputs=4 rows=1", "int8=1 outputs=4 rows=2"),
    ],
)
def test_in_plain_c(choices: str, tmp_path: Path) -> None:
    model = write_convolutions(tmp_path / "model.tflite")
    candidate = f"dsp method=winograd {choices}"
    assert check(model, tmp_path, core="cortex-m7", family=candidate)


@pytest.mark.tools
@pytest.mark.parametrize(("outputs", "tiles"), [(4, 4), (4, 3), (4, 1), (2, 2)])
def test_the_scalar_family_on_this_computer(outputs: int, tiles: int, tmp_path: Path) -> None:
    model = write_convolutions(tmp_path / "model.tflite", [*SHAPES, *ODD_SHAPES])
    candidate = f"scalar method=winograd outputs={outputs} tiles={tiles}"
    assert check(model, tmp_path, core="rv32imc", family=candidate)


# tests/kernels/test_bounds.py has every candidate on a Cortex-M7, behind a fence.
@pytest.mark.spread(1, among=("mps2_an386",))
def test_on_cores(device: Device, tmp_path: Path) -> None:
    core = device.board.cpu.kernel_core
    if families_for(core)[0] != "dsp":
        pytest.skip(f"{device.board.name} has no DSP kernels")
    assert compare_candidates(device, tmp_path, "dsp", core, write=write_convolutions) > 2 * len(
        SHAPES
    )
    compare_on(device, tmp_path, write_convolutions, "DSP assembly")


@pytest.mark.spread(1, among=("qemu_rv32imc",))
def test_the_scalar_family_on_cores(device: Device, tmp_path: Path) -> None:
    core = device.board.cpu.kernel_core
    if families_for(core)[0] != "scalar":
        pytest.skip(f"{device.board.name} has no kernels of family scalar")
    write = partial(write_convolutions, shapes=[ODD_SHAPES[0], ODD_SHAPES[3]])
    assert compare_candidates(device, tmp_path, "scalar", core, write=write) > 50


def test_the_transforms_give_four_times_the_convolution() -> None:
    rng = np.random.default_rng(5)
    weights = rng.integers(-128, 128, (2, 3, 3, 4), dtype=np.int8)
    image = rng.integers(-128, 128, (4, 4, 4)).astype(np.int64)
    packed = packed_weights(weights)[:-2].view("<i2").reshape(16, 2, 2, 2)
    # position, half, output, lane -> output, row, column, channel
    u = packed.transpose(2, 0, 3, 1).reshape(2, 4, 4, 4).astype(np.int64)
    b = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    a = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
    v = np.einsum("ik,klc,jl->ijc", b, image, b)
    found = np.einsum("ik,okl,jl->oij", a, (u * v).sum(axis=-1), a)
    for y in range(2):
        for x in range(2):
            direct = (image[y : y + 3, x : x + 3] * weights.astype(np.int64)).sum(axis=(1, 2, 3))
            np.testing.assert_array_equal(found[:, y, x], 4 * direct)


@pytest.mark.parametrize("m", list(FORMS))
def test_the_scalar_familys_sums_are_a_factor_times_the_convolution(m: int) -> None:
    """As ``winograd.py`` says it: words of two channels, raised, and what ``start`` takes off."""
    rng = np.random.default_rng(5)
    n, form = m + 2, FORMS[m]
    weights = rng.integers(-128, 128, (4, 3, 3, 4), dtype=np.int8)
    image = rng.integers(-128, 128, (n, n, 4)).astype(np.int64)
    b, a = {
        2: (
            [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
            [[1, 1, 1, 0], [0, 1, -1, -1]],
        ),
        4: (
            [
                *([4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]),
                *([0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]),
            ],
            [[2, 4, 4, 1, 1, 0], [0, 4, -4, 2, -2, 0], [0, 4, 4, 4, 4, 0], [0, 4, -4, 8, -8, 8]],
        ),
    }[m]
    v = np.einsum("ik,klc,jl->ijc", b, image + 128, b)[..., [0, 2, 1, 3]]
    v[..., ::2] += 1 << 15
    assert v[..., ::2].min() >= 0 and v[..., ::2].max() < 1 << 16
    u, start = scalar_weights(weights, m)
    products = (u.reshape(n, n, 4, 4).astype(np.int64) * v[..., None]).sum(axis=2)
    sums = np.einsum("ik,klo,jl->ijo", a, products + start.reshape(n, n, 4), a)
    for y in range(m):
        for x in range(m):
            seen = image[y : y + 3, x : x + 3] * weights.astype(np.int64)
            wanted = seen.sum(axis=(1, 2, 3)) << form.bits
            found = (sums[y, x] * form.inverse).astype(np.uint32).view(np.int32)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("height", "width"), [(7, 9), (8, 8), (1, 4), (9, 3), (5, 14), (10, 6)])
def test_bands_put_each_output_in_its_place(height: int, width: int) -> None:
    w = Window(1, height, width, height, width, (3, 3), (1, 1), (1, 1), 1, 1)
    for kernel in winograd_kernels(w, 4, 2, 1):
        seen = np.zeros((height, width), dtype=int)
        for band in kernel.bands:
            for number in range(band.times):
                first = kernel.outputs * (band.first + number * band.rows) * width
                for place in kernel.places(band).reshape(kernel.tiles * band.rows, -1):
                    start, (count, *steps) = int(place[2]) // 2, place[3:].tolist()
                    if kernel.outputs == 2:  # the step to the next column, and to the next row
                        count, steps = 1 + (steps[0] > 0), [count]
                    for row in range(count):
                        for column in {0, *np.cumsum(steps).tolist()}:
                            seen.reshape(-1)[first + start + row * width + column // 2] += 1
        assert (seen == 1).all()


def test_tiles_of_4_x_4_leave_large_sums_to_others(tmp_path: Path) -> None:
    """64 times each sum must fit 32 bits, so sums stay below 2**25."""
    wish = Candidate.of("dsp", method="winograd", int8=1, outputs=4)
    graphs = []
    for bias in (0, 2**24):
        m = ModelWriter()
        x = m.input((1, 8, 8, 144), 0.05, 0)
        weights = np.full((2, 3, 3, 144), 127, dtype=np.int8)
        m.output(m.conv2d(x, weights, np.full(2, bias, np.int32), scale=100.0))
        graphs.append(load_model(m.save(tmp_path / f"{bias}.tflite")))
    small, large = ((graph, graph.operators[0], "cortex-m7", wish) for graph in graphs)
    assert "F(4x4, 3x3)" in lower(*small).kernel.why
    with pytest.raises(UnsupportedOperator, match=r"can reach 33554432, .* takes 64 times that"):
        lower(*large)
