"""The DSP family: odd shapes on emulated cores and as plain C, its intrinsics, its arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from test_convolutions import spread_scale, weights_and_bias
from tflite_writer import ModelWriter
from tvm import s_tir

import utvm_deploy
from utvm_deploy.bench.oracle import run_reference
from utvm_deploy.cores.timing_m4 import CORTEX_M4
from utvm_deploy.cores.timing_m7 import CORTEX_M7
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.dsp import gemm
from utvm_deploy.kernels.lowering import lower
from utvm_deploy.kernels.micro.order import cycles, ordered
from utvm_deploy.kernels.micro.scaling import short_scaling
from utvm_deploy.kernels.quantize import quantize_multipliers, requantized

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
# height, width, channels, outputs (0, -1 ...: depthwise, for each channel one more), kernel,
# stride, dilation, padding
SHAPES = [
    (1, 1, 1, 1, (1, 1), 1, 1, "VALID"),
    (1, 2, 70, 3, (1, 1), 1, 1, "SAME"),
    (3, 7, 4, 70, (1, 1), 1, 1, "SAME"),
    (5, 3, 7, 5, (1, 1), 2, 1, "SAME"),
    (2, 40, 3, 9, (3, 3), 2, 1, "SAME"),
    (9, 5, 12, 2, (3, 3), 1, 1, "SAME"),
    (6, 11, 5, 4, (5, 5), 1, 1, "SAME"),
    (10, 9, 4, 7, (3, 2), (1, 2), 2, "SAME"),
    (13, 4, 1, 6, (10, 4), 2, 1, "SAME"),
    (4, 4, 33, 13, (3, 3), 1, 1, "VALID"),
    (3, 3, 9, 0, (3, 3), 1, 1, "SAME"),
    (1, 1, 4, 0, (3, 3), 1, 1, "SAME"),
    (2, 37, 70, 0, (3, 3), 2, 1, "SAME"),
    (7, 6, 8, 0, (3, 3), 1, 1, "VALID"),
    (8, 5, 3, 0, (5, 5), 1, 1, "SAME"),
    (8, 13, 6, 0, (2, 7), (2, 1), 2, "SAME"),
    (11, 3, 16, 0, (4, 1), 2, 1, "SAME"),
    (5, 9, 3, -1, (3, 3), 1, 1, "SAME"),
    (4, 6, 6, -2, (5, 5), 2, 1, "SAME"),
    (9, 11, 33, 0, (7, 7), 1, 1, "SAME"),
    (6, 24, 5, 0, (3, 3), 1, 1, "SAME"),
    (12, 18, 36, 0, (3, 4), 1, 1, "VALID"),
    (3, 13, 4, 0, (9, 9), 1, 1, "SAME"),
]


def write_convolutions(path: Path) -> ModelWriter:
    rng = np.random.default_rng(21)
    m = ModelWriter()
    for index, (height, width, channels, outputs, kernel, stride, dilation, padding) in enumerate(
        SHAPES
    ):
        made = outputs if outputs > 0 else channels * (1 - outputs)
        shape = (outputs, *kernel, channels) if outputs > 0 else (1, *kernel, made)
        weights, bias = weights_and_bias(rng, shape, made)
        weights[..., -1] //= 64  # scales far apart, and a channel of little weight
        x = m.input((1, height, width, channels), 0.05, int(rng.integers(-128, 128)))
        convolution = m.conv2d if outputs > 0 else m.depthwise_conv2d
        taps = kernel[0] * kernel[1] * (channels if outputs > 0 else 1)
        y = convolution(
            x,
            weights,
            bias,
            weight_scale=rng.uniform(0.003, 0.02, made),
            stride=stride,
            dilation=dilation,
            padding=padding,
            activation=ACTIVATIONS[index % len(ACTIVATIONS)],
            scale=spread_scale(taps, 0.05, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    m.save(path)
    return m


# rows, inputs, outputs
DENSE = [
    (1, 1, 1),
    (3, 7, 5),
    (1, 16, 4),
    (2, 70, 9),
    (1, 48, 33),
    (1, 64, 2),
    (1, 33, 70),
    (2, 21, 12),
    (1, 22, 7),
    (1, 256, 6),
]


def write_dense(path: Path) -> ModelWriter:
    rng = np.random.default_rng(22)
    m = ModelWriter()
    for index, (rows, inputs, outputs) in enumerate(DENSE):
        weights, bias = weights_and_bias(rng, (outputs, inputs), outputs)
        channels = {"weight_scale": rng.uniform(0.003, 0.02, outputs)} if index % 3 == 1 else {}
        x = m.input((rows, inputs), 0.05, int(rng.integers(-128, 128)))
        y = m.fully_connected(
            x,
            weights,
            bias,
            activation=ACTIVATIONS[index % len(ACTIVATIONS)],
            **channels,
            scale=spread_scale(inputs, 0.05, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    m.save(path)
    return m


ADDED = [(5,), (1, 7, 3), (1, 4, 4, 8), (4,), (63,)]


def write_additions(path: Path) -> ModelWriter:
    rng = np.random.default_rng(23)
    m = ModelWriter()
    for index, shape in enumerate(ADDED):
        scales = [0.03, 0.03] if index == 3 else rng.uniform(0.01, 0.2, 2).tolist()
        sides = [m.input((1, *shape), scale, int(rng.integers(-128, 128))) for scale in scales]
        y = m.add(
            *sides,
            activation=ACTIVATIONS[index % len(ACTIVATIONS)],
            scale=sum(scales) * float(rng.uniform(0.3, 1.0)),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    m.save(path)
    return m


# height, width, channels, window, stride, padding
POOLS = [
    (5, 7, 4, (3, 3), 2, "SAME"),
    (4, 4, 70, (2, 2), 2, "VALID"),
    (25, 5, 64, (25, 5), 25, "VALID"),
    (1, 1, 9, (1, 1), 1, "SAME"),
    (6, 3, 37, (5, 2), (1, 2), "SAME"),
    (17, 15, 5, (17, 15), 1, "VALID"),
    (3, 8, 32, (3, 3), 1, "SAME"),
]


def write_pools(path: Path) -> ModelWriter:
    rng = np.random.default_rng(24)
    m = ModelWriter()
    for index, (height, width, channels, window, stride, padding) in enumerate(POOLS):
        x = m.input((1, height, width, channels), 0.05, int(rng.integers(-128, 128)))
        activation = ACTIVATIONS[index % len(ACTIVATIONS)]
        for pool in (m.average_pool, m.max_pool):
            m.output(pool(x, window, stride=stride, padding=padding, activation=activation))
    m.save(path)
    return m


def random_inputs(model: ModelWriter, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-128, 128, model.tensors[number].shape, dtype=np.int8)
        for number in model.inputs
    ]


def skip_without_dsp(device: Device) -> None:
    if not device.board.cpu.dsp or device.board.cpu.mve:
        pytest.skip(f"kernels for the DSP extension are not what {device.board.name} gets")


def compare_on(device: Device, path: Path, model: ModelWriter) -> None:
    samples = [random_inputs(model, seed) for seed in range(2)]
    expected = run_reference(path, samples).outputs
    compiled = utvm_deploy.compile(path, device.board)
    assert any("DSP assembly" in layer.why for layer in compiled.layers)
    loaded = device.load(compiled)
    for sample, wanted in zip(samples, expected, strict=True):
        made = loaded(*sample)
        made = made if isinstance(made, list | tuple) else [made]
        for layer, one, other in zip(compiled.layers, made, wanted, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=layer.kernel)


def test_odd_convolutions_on_cores(device: Device, tmp_path: Path) -> None:
    skip_without_dsp(device)
    path = tmp_path / "convolutions.tflite"
    compare_on(device, path, write_convolutions(path))


def test_odd_dense_layers_on_cores(device: Device, tmp_path: Path) -> None:
    skip_without_dsp(device)
    path = tmp_path / "dense.tflite"
    compare_on(device, path, write_dense(path))


def test_odd_dense_layers_in_plain_c(tmp_path: Path) -> None:
    model = write_dense(tmp_path / "dense.tflite")
    assert check(model, tmp_path, core="cortex-m7") == len(DENSE)


def test_odd_additions_on_cores(device: Device, tmp_path: Path) -> None:
    skip_without_dsp(device)
    path = tmp_path / "additions.tflite"
    compare_on(device, path, write_additions(path))


def test_odd_pools_on_cores(device: Device, tmp_path: Path) -> None:
    skip_without_dsp(device)
    path = tmp_path / "pools.tflite"
    compare_on(device, path, write_pools(path))


def test_odd_pools_in_plain_c(tmp_path: Path) -> None:
    model = write_pools(tmp_path / "pools.tflite")
    assert check(model, tmp_path, core="cortex-m7") == 2 * len(POOLS)


def test_odd_additions_in_plain_c(tmp_path: Path) -> None:
    model = write_additions(tmp_path / "additions.tflite")
    assert check(model, tmp_path, core="cortex-m7") == len(ADDED)


def test_odd_convolutions_in_plain_c(tmp_path: Path) -> None:
    model = write_convolutions(tmp_path / "convolutions.tflite")
    assert check(model, tmp_path, core="cortex-m7") == len(SHAPES)


@pytest.mark.parametrize("write", [write_dense, write_additions, write_pools])
def test_what_is_not_scheduled(write: Callable[[Path], ModelWriter], tmp_path: Path) -> None:
    model = write(tmp_path / "model.tflite")
    assert check(model, tmp_path, core="cortex-m7", scheduled=False)


MICRO_KERNELS = (
    "utvm_gemm_8",
    "utvm_gemm_16",
    "utvm_gemm_whole_8",
    "utvm_gemm_whole_32",
    "utvm_depthwise_3x3",
    "utvm_depthwise",
    "utvm_planes_3x3_s1_odd_by_8_shifted",
    "utvm_planes_3x3_s1_odd_by_3_single",
    "utvm_planes_3x4_s1_by_6_partial",
    "utvm_dense_8",
    "utvm_dense_16",
    "utvm_dense_8_channels",
    "utvm_dense_16_channels",
)


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7"])
def test_inner_blocks_are_tensorized(core: str, tmp_path: Path) -> None:
    write_convolutions(tmp_path / "convolutions.tflite")
    write_dense(tmp_path / "dense.tflite")
    graphs = [load_model(tmp_path / f"{name}.tflite") for name in ("convolutions", "dense")]
    functions = set()
    for graph, operator in ((one, op) for one in graphs for op in one.operators):
        call = lower(graph, operator, core)
        assert not call.why_not
        schedule = s_tir.Schedule(call.kernel.prim_func())
        before = schedule.mod["main"].script()
        call.kernel.schedule(schedule, core)
        after = schedule.mod["main"].script()
        for function in MICRO_KERNELS:
            call_text = f'T.call_extern("int32", "{function}",'
            assert call_text not in before
            if call_text in after:
                functions.add(function)
                # Nothing is left of the products.
                assert "product" in before and 'T.sblock("product' not in after
    assert functions == set(MICRO_KERNELS)


def test_short_requantization_equals_the_reference() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        scale = float(2.0 ** rng.uniform(-20, -1.01))
        zero_point = int(rng.integers(-128, 128))
        multiplier, shift = quantize_multipliers([scale])
        bias = rng.integers(-(2**20), 2**20, 1, dtype=np.int32)
        weights = rng.integers(-127, 128, (1, 64), dtype=np.int8)
        scaling = short_scaling(bias, weights, multiplier, shift, zero_point)
        assert not isinstance(scaling, str)
        right = int(scaling.shift[0])
        # Values around the middle between two results, and the smallest magnitudes.
        centre = int((int(rng.integers(-140, 140)) + 0.5) / scale)
        values = [*range(-3, 4), *range(centre - 3, centre + 4)]
        for value in values:
            product = (2 * value * int(scaling.multiplier[0]) + 0x80000000) >> 32
            short = (product + int(scaling.offset[0]) - (value < 0)) >> right
            if int(scaling.multiplier[0]) == 0:
                continue
            assert short == requantized(value, int(multiplier[0]), int(shift[0])) + zero_point


def test_order_is_as_fast_as_the_units_allow() -> None:
    loop = gemm._loop(gemm.DEPTH_STEP, is_whole=False)
    issued = ordered(loop, CORTEX_M7, is_loop=True)
    assert sorted(i.text for i in issued) == sorted(i.text for i in loop)
    # 24 products, one a cycle, and 26 instructions beside them.
    assert cycles(issued, CORTEX_M7, repeat=10) <= 10 * 26 + 2
    alone = ordered(loop, CORTEX_M4, is_loop=True)
    assert cycles(alone, CORTEX_M4, repeat=10) < cycles(loop, CORTEX_M4, repeat=10)
