"""Layers with weights of int4: all families, odd shapes and odd packing, against the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import check
from small_models import lstm
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.compiler.arena.plan import Step
from utvm_deploy.compiler.planning.kernel_costs import CoreCosts, KernelCosts
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, LibraryKernel
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.records import Records, Setting
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.results.verifying.on_board import verify
from utvm_deploy.targets.table import ESTIMATED

CORES = (
    *("generic", "cortex-m0plus", "cortex-m3", "cortex-m7", "cortex-m55"),
    *("rv32imc", "rv32imc_zve32x"),
)
RNG = np.random.default_rng(4)


def products(dtype: str) -> ModelWriter:
    """BATCH_MATMUL by constants with one scale, and with a scale for each column."""
    m = ModelWriter()
    for shape, columns in [((2, 5, 7), 3), ((1, 4, 16), 9), ((3, 1, 33), 5)]:
        for turned in (False, True):
            for scales in (0.02, [0.01 * (1 + one) for one in range(columns)]):
                sizes = (columns, shape[-1]) if turned else (shape[-1], columns)
                sizes = sizes if isinstance(scales, list) else (shape[0], *sizes)
                x = m.input(shape, 0.0004 if dtype == "int16" else 0.05, 5 * (dtype == "int8"))
                values = RNG.integers(-128, 128, sizes).astype(np.int8)
                axis = len(sizes) - (2 if turned else 1)
                options = ("BatchMatMulOptions", {"AdjX": False, "AdjY": turned})
                operands = [x, m.constant(values, scales, axis=axis)]
                y = m.node("BATCH_MATMUL", operands, (*shape[:-1], columns), options, scale=0.2)
                m.tensors[x].dtype = m.tensors[y].dtype = dtype
                m.output(y)
    m.pack_weights()
    return m


def made(dtype: str = "int8") -> ModelWriter:
    """Convolutions, depthwise ones and dense layers whose weights are odd in number, and not.

    ``dtype`` is that of activations.
    """
    m, is_wide = ModelWriter(), dtype == "int16"

    def values(*shape: int) -> np.ndarray:
        return RNG.integers(-128, 128, shape).astype(np.int8)

    def scales(channels: int) -> list[float]:
        return [float(one) for one in RNG.uniform(0.01, 0.1, channels).astype(np.float32)]

    def bias(channels: int) -> np.ndarray:
        return RNG.integers(-900, 900, channels).astype(np.int64 if is_wide else np.int32)

    def source(shape: tuple[int, ...], zero_point: int) -> int:
        x = m.input(
            shape, scale=0.0004 if is_wide else 0.05, zero_point=0 if is_wide else zero_point
        )
        m.tensors[x].dtype = dtype
        return x

    def result(scale: float, zero_point: int) -> dict[str, Any]:
        """Of int16, most are not at their limits."""
        return {"scale": scale / 60} if is_wide else {"scale": scale, "zero_point": zero_point}

    convolutions = [
        ((1, 9, 7, 3), (5, 3, 3, 3), {}),
        ((1, 8, 8, 16), (8, 1, 1, 16), {}),
        ((1, 9, 7, 5), (7, 1, 1, 5), {"activation": "RELU"}),
        ((1, 8, 8, 8), (6, 3, 3, 8), {"stride": 2}),
        ((1, 6, 6, 8), (14, 1, 1, 8), {}),
        ((1, 6, 6, 8), (24, 2, 2, 8), {}),
        ((1, 9, 9, 4), (4, 3, 3, 2), {}),
        ((1, 12, 12, 3), (5, 3, 2, 3), {"dilation": (1, 4), "padding": "SAME"}),
        ((1, 49, 10, 1), (16, 10, 4, 1), {"stride": 2}),
    ]
    for image, shape, options in convolutions:
        x = source(image, 3)
        given = {**result(0.3, -4), **options}
        w = scales(shape[0])
        m.output(m.conv2d(x, values(*shape), bias(shape[0]), weight_scale=w, **given))
    depthwise = [
        ((1, 9, 7, 5), (3, 3, 5), {}),
        ((1, 9, 9, 8), (3, 3, 8), {"stride": 2, "activation": "RELU6"}),
        ((1, 9, 9, 3), (3, 3, 6), {}),
        ((1, 12, 11, 3), (5, 7, 3), {"padding": "VALID"}),
        ((1, 12, 11, 4), (3, 3, 4), {"dilation": 2}),
        ((2, 5, 6, 33), (3, 1, 33), {}),
    ]
    for image, shape, options in depthwise:
        x = source(image, -3)
        given = {**result(0.2, 5), **options}
        w = scales(shape[-1])
        m.output(m.depthwise_conv2d(x, values(1, *shape), bias(shape[-1]), weight_scale=w, **given))
    for rows, inputs, outputs in [(1, 75, 5), (1, 64, 12), (2, 33, 7), (1, 130, 6), (1, 7, 40)]:
        for w in (scales(outputs), 0.02):
            x, given = source((rows, inputs), 7), result(0.5, 0)
            m.output(
                m.fully_connected(
                    x, values(outputs, inputs), bias(outputs), weight_scale=w, **given
                )
            )
    m.pack_weights()
    return m


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_bytes_are_those_of_the_reference(core: str, tmp_path: Path) -> None:
    assert check(made(), tmp_path, core=core, samples=2) == len(made().operators)


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_bytes_of_int16_are_those_of_the_reference(core: str, tmp_path: Path) -> None:
    assert check(made("int16"), tmp_path, core=core, samples=2) == len(made().operators)


@pytest.mark.tools
@pytest.mark.parametrize("core", ["generic", "cortex-m7", "cortex-m55"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_products_have_the_bytes_of_weights_of_int8(core: str, dtype: str, tmp_path: Path) -> None:
    """LiteRT takes no int4 here. The reference says that it computes with int8."""
    path = products(dtype).save(tmp_path / "products.tflite")
    assert check(products(dtype), tmp_path, core=core, samples=2) == len(products(dtype).operators)
    run = run_reference(path, random_samples(load_model(path), 1).inputs)
    assert "on weights widened to int8 for BATCH_MATMUL" in run.reference


@pytest.mark.tools
@pytest.mark.parametrize(("parts", "is_half"), [({}, True), ({"peeps": True}, False)])
def test_memories_have_the_bytes_of_weights_of_int8(
    parts: dict[str, Any], is_half: bool, tmp_path: Path
) -> None:
    m = ModelWriter()
    m.output(lstm(m, m.input((2, 5, 6), 0.05, -3), 11, **parts))
    m.output(lstm(m, m.input((1, 3, 9), 0.05, -3), 8, time_major=True, **parts))
    m.pack_weights()
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    samples = random_samples(graph, 2)
    for core in ("host", "mps2_an500"):
        compiled = utvm_deploy.compile(path, core, optimize="size")
        assert ["int4" in one.kernel for one in compiled.layers] == [is_half] * 2
        with utvm_deploy.connect(core) as device:
            found = verify(device.load(compiled), path, samples)
        assert found.ok, found
        assert "on weights widened to int8" in found.reference


@pytest.mark.tools
@pytest.mark.parametrize("family", ["dsp compact=1", "dsp compact=2", "dsp once=1"])
def test_forms_for_few_bytes_and_one_rounding(family: str, tmp_path: Path) -> None:
    check(made(), tmp_path, core="cortex-m7", family=family, samples=2)


@pytest.mark.tools
@pytest.mark.parametrize(
    "candidate", ["dsp method=columns rows=1", "dsp method=narrow", "dsp method=pixels"]
)
def test_other_candidates_take_the_weights_as_int8(candidate: str, tmp_path: Path) -> None:
    check(made(), tmp_path, core="cortex-m7", family=candidate, samples=1)


@pytest.mark.tools
def test_loops_as_they_are_written(tmp_path: Path) -> None:
    check(made(), tmp_path, samples=1, scheduled=False)


def weights_bytes(call: KernelCall) -> int:
    (found,) = (
        one.data.nbytes
        for one in call.arguments
        if isinstance(one, ConstantArgument) and one.name == "weights"
    )
    return found


@pytest.mark.parametrize("core", CORES)
def test_portable_kernels_have_the_bytes_of_the_file(core: str, tmp_path: Path) -> None:
    graph = load_model(made().save(tmp_path / "model.tflite"))
    for operator in graph.operators:
        call = lower(graph, operator, core)
        if call.family == "generic":
            assert weights_bytes(call) == graph.tensors[operator.inputs[1] or 0].size_bytes
            assert bool(call.why_not) == (len(families_for(core)) > 1)


@pytest.mark.tools
@pytest.mark.parametrize("core", ["generic", "cortex-m7"])
def test_a_model_may_have_both_weights(core: str, tmp_path: Path) -> None:
    """The C of both goes into one file."""
    m = made("int16")
    for operator in made("int16").operators:
        x, weights = (m.tensors[number] for number in operator.inputs[:2])
        y, *rest = (m.tensors[number] for number in (operator.outputs[0], *operator.inputs[2:]))
        source = m.tensor(x.shape, x.dtype, x.scales, x.zero_points)
        m.inputs.append(source)
        stored = RNG.integers(-8, 8, weights.shape).astype(np.int8)
        number = m.constant(stored, weights.scales, axis=weights.axis)
        biases = [len(m.tensors) + place for place in range(len(rest))]
        m.tensors += rest
        inputs = [source, number, *biases]
        out = m.tensor(y.shape, y.dtype, y.scales, y.zero_points)
        m.operator(operator.kind, inputs, [out], operator.options)
        m.output(out)
    path = m.save(tmp_path / "model.tflite")
    assert check(m, tmp_path, core=core, samples=1) == len(m.operators)
    assert {t.dtype for t in load_model(path).tensors} >= {"int4", "int8", "int16"}


@pytest.mark.parametrize("compact", [0, 2])
@pytest.mark.parametrize(
    ("core", "family"),
    [
        *(("cortex-m3", "thumb"), ("cortex-m55", "mve"), ("rv32imc", "scalar")),
        ("rv32imc_zve32x", "rvv"),
    ],
)
def test_families_unpack_convolutions_and_depthwise_layers(
    core: str, family: str, compact: int, tmp_path: Path
) -> None:
    m, given = ModelWriter(), {"scale": 0.9, "weight_scale": [0.02] * 64}
    x = m.input((1, 8, 5, 64))
    m.output(
        m.conv2d(x, RNG.integers(-128, 128, (64, 1, 1, 64)), np.zeros(64), **given),
        m.depthwise_conv2d(x, RNG.integers(-128, 128, (1, 3, 3, 64)), np.zeros(64), **given),
    )
    m.pack_weights()
    graph = load_model(m.save(tmp_path / "model.tflite"))
    for operator in graph.operators:
        call = lower(graph, operator, core, compact=compact)
        assert call.family == family and "int4" in call.kernel.name
        assert weights_bytes(call) == graph.tensors[operator.inputs[1] or 0].size_bytes


@pytest.mark.parametrize("compact", [0, 2])
def test_assembly_has_half_of_the_bytes_of_int8(compact: int, tmp_path: Path) -> None:
    """Beside the weights, tables of level size have 8 bytes for a channel, and 28 for a layer."""

    def taken(dtype: str) -> list[int]:
        m = ModelWriter()
        given: dict[str, Any] = {"scale": 0.9, "weight_scale": [0.02] * 32}
        bias = np.arange(32, dtype=np.int32)
        values = np.random.default_rng(1).integers(-128, 128, 32 * 288).astype(np.int8)
        x = m.input((1, 8, 8, 32))
        m.output(
            m.conv2d(x, values.reshape(32, 3, 3, 32), bias, **given),
            m.conv2d(x, values[:1024].reshape(32, 1, 1, 32), bias, **given),
            m.fully_connected(x, values[:1024].reshape(32, 32), bias, **given),
        )
        if dtype == "int4":
            m.pack_weights()
        graph = load_model(m.save(tmp_path / f"{dtype}.tflite"))
        wish = Candidate("dsp")
        calls = [lower(graph, one, "cortex-m7", wish, compact=compact) for one in graph.operators]
        beside = 28 + 8 * 32
        return [
            weights_bytes(call) - (beside if compact and "conv" in call.kernel.name else 0)
            for call in calls
        ]

    assert sum(taken("int4")) <= 0.51 * sum(taken("int8"))


def test_the_portable_candidates_are_found(tmp_path: Path) -> None:
    graph = load_model(made().save(tmp_path / "model.tflite"))
    for operator in graph.operators:
        for one in space(graph, operator, "generic")[:2]:
            lower(graph, operator, "generic", one)
        for core in CORES:
            assert lower(graph, operator, core, Candidate("generic")).family == "generic"


def test_the_candidates_of_products_that_unpack_are_all_possible(tmp_path: Path) -> None:
    graph = load_model(made().save(tmp_path / "model.tflite"))
    found = [
        lower(graph, operator, "cortex-m3", one).family
        for operator in graph.operators
        for one in space(graph, operator, "cortex-m3")
    ]
    assert found.count("thumb") > 50


def network() -> ModelWriter:
    """A small network of all three operators."""
    m = ModelWriter()
    x = m.input((1, 12, 12, 3), scale=0.05, zero_point=3)
    made: dict[str, Any] = {"scale": 0.1, "zero_point": -5, "weight_scale": 0.02}
    bias = np.arange(10, dtype=np.int32) * 40
    x = m.conv2d(x, RNG.integers(-128, 128, (10, 3, 3, 3)), bias, stride=2, **made)
    x = m.depthwise_conv2d(x, RNG.integers(-128, 128, (1, 3, 3, 10)), bias, **made)
    x = m.conv2d(x, RNG.integers(-128, 128, (7, 1, 1, 10)), bias[:7], **made)
    m.output(m.fully_connected(x, RNG.integers(-128, 128, (9, 252)), bias[:9], **made))
    m.pack_weights()
    return m


@pytest.mark.tools
def test_dead_channels_go_and_parallel_layers_become_one(tmp_path: Path) -> None:
    m, given = ModelWriter(), {"scale": 0.3, "weight_scale": 0.02}
    bias = np.zeros(16, np.int32)
    bias[7:] = 1 << 22  # at the end of the clamp, whatever the input is
    x = m.conv2d(m.input((1, 6, 6, 3)), RNG.integers(-128, 128, (16, 1, 1, 3)), bias, **given)
    m.output(m.conv2d(x, RNG.integers(-128, 128, (5, 1, 1, 16)), bias[:5], **given))
    y = m.input((1, 30))
    for _ in range(3):
        m.output(m.fully_connected(y, RNG.integers(-128, 128, (16, 30)), bias[:16] // 99, **given))
    m.pack_weights()
    path = m.save(tmp_path / "model.tflite")
    compiled = utvm_deploy.compile(path, "host")
    kernels = [one.kernel for one in compiled.layers]
    assert len(kernels) == 3 and all("int4" in one for one in kernels)
    assert any("3x8" in one for one in kernels) and any("30x48" in one for one in kernels)
    with utvm_deploy.connect("host") as device:
        found = verify(device.load(compiled), path, random_samples(load_model(path), 2))
    assert found.ok, found


def _convolution(folder: Path, size: int, inputs: int, outputs: int) -> Path:
    """A file with one 3x3 convolution of int4 over a square image."""
    m = ModelWriter()
    x = m.input((1, size, size, inputs), scale=0.05)
    values = RNG.integers(-128, 128, (outputs, 3, 3, inputs)).astype(np.int8)
    m.output(m.conv2d(x, values, np.zeros(outputs, np.int32), weight_scale=0.02, scale=3.0))
    m.pack_weights()
    return m.save(folder / "model.tflite")


def test_the_flash_rate_says_whether_weights_become_int8(tmp_path: Path) -> None:
    path = _convolution(tmp_path, 16, 32, 32)
    whys, sizes = [], []
    for rate in (0.0, 1000.0):
        compiled = utvm_deploy.compile(path, "mps2_an500", flash_rate=rate)
        whys.append(compiled.layers[0].kernel)
        sizes.append(compiled.weights_bytes)
    assert ["int4" in one for one in whys] == [False, True]
    assert sizes[1] < 0.6 * 32 * 9 * 32 < sizes[0]


@pytest.mark.parametrize(("name", "kernel"), [("qemu_rv32imc", "winograd"), ("mps2_an386", "dsp")])
def test_weights_become_int8_also_without_room_for_the_fastest_kernel(
    name: str, kernel: str, tmp_path: Path
) -> None:
    path = _convolution(tmp_path, 8, 16, 24)
    (layer,) = utvm_deploy.compile(path, name).layers
    assert kernel in layer.kernel and "int4" not in layer.kernel
    assert "its scratch would make the arena larger" in layer.why


def test_an_estimate_has_weights_of_int8_where_a_compile_has(tmp_path: Path) -> None:
    path = _convolution(tmp_path, 8, 16, 24)
    compiled = utvm_deploy.compile(path, "mps2_an500")
    assert "int4" not in compiled.layers[0].kernel
    (layer,) = utvm_deploy.estimate(path, "mps2_an500").table
    assert layer["weights_bytes"] == pytest.approx(compiled.weights_bytes, rel=0.05)


@pytest.mark.parametrize(
    ("name", "int8_at"),
    [("mps2_an385", (0.0, 4.0)), ("mps3_an547", (0.0,)), ("mps2_an500", ())],
)
def test_the_flash_rate_says_whether_a_dense_layer_becomes_int8(
    name: str, int8_at: tuple[float, ...], tmp_path: Path
) -> None:
    m = ModelWriter()
    values = RNG.integers(-128, 128, (128, 256)).astype(np.int8)
    bias = np.zeros(128, np.int32)
    m.output(m.fully_connected(m.input((1, 256), scale=0.05), values, bias, scale=3.0))
    m.pack_weights()
    path = m.save(tmp_path / "model.tflite")
    for rate in (0.0, 4.0, 1000.0):
        compiled = utvm_deploy.compile(path, name, flash_rate=rate)
        is_int8 = rate in int8_at
        assert ("int4" not in compiled.layers[0].kernel) == is_int8
        assert (compiled.weights_bytes > values.nbytes) == is_int8


def test_a_library_step_does_not_pay_for_unpacking(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(m.fully_connected(m.input((1, 64)), RNG.integers(-128, 128, (32, 64)), np.zeros(32)))
    m.pack_weights()
    graph = load_model(m.save(tmp_path / "model.tflite"))
    call = lower(graph, graph.operators[0])
    library = LibraryKernel("dense", "f", "f.h", (), "return f();", 0, "return 0;")
    step = Step(graph.operators[0], replace(call, kernel=library), ())
    table, near = CoreCosts(ESTIMATED), Setting("generic", "", "", "", "", "")
    costs = KernelCosts(
        graph, Records(), near, lambda s, _: s.call, lambda _: (), lambda c: c, table
    )
    (only,) = costs.forms(step, 0)
    assert only.cycles == costs.of_kernel(step)[0]


@pytest.mark.each_core
def test_a_network_on_boards(device: Device, tmp_path: Path) -> None:
    path = network().save(tmp_path / "model.tflite")
    samples = random_samples(load_model(path), 2)
    for level in ("size", "time"):
        compiled = utvm_deploy.compile(path, device.board, optimize=level)
        found = verify(device.load(compiled), path, samples)
        assert found.ok, found


@pytest.mark.parametrize(
    ("scale", "zero", "error", "told"),
    [
        (0.0, 0, ModelError, "'tensor_1' has the scale 0.0, which must be positive"),
        (0.1, 3, UnsupportedOperator, "'tensor_1' have a zero point other than 0"),
    ],
)
def test_bad_quantization_is_refused(
    scale: float, zero: int, error: type[Exception], told: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    weights = np.zeros((3, 4), np.int8)
    m.output(m.fully_connected(m.input((1, 4)), weights, weight_scale=[0.1, 0.1, 0.1]))
    m.pack_weights()
    m.tensors[1].scales, m.tensors[1].zero_points = (0.1, scale, 0.1), (0, zero, 0)
    with pytest.raises(error, match=told):
        load_model(m.save(tmp_path / "model.tflite"))
