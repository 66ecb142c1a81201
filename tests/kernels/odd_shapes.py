"""Models of layers with odd shapes, for families of kernels that take over from the generic one.

Each has a reason to be here: sizes around the register tiles and vectors (1, one less, one more),
borders on every side, strides, dilations, first layers, scales that need left shifts, weights whose
pairs fit sixteen bits and weights whose pairs do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from test_convolutions import spread_scale, weights_and_bias
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.oracle.reference import run_reference

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
# height, width, channels, outputs (0, -1 ...: depthwise, for each channel one more), kernel,
# stride, dilation, padding
SHAPES = [
    (1, 1, 1, 1, (1, 1), 1, 1, "VALID"),
    (1, 2, 70, 3, (1, 1), 1, 1, "SAME"),
    (3, 7, 4, 70, (1, 1), 1, 1, "SAME"),
    (1, 5, 16, 6, (1, 1), 1, 1, "SAME"),
    (5, 3, 7, 5, (1, 1), 2, 1, "SAME"),
    (2, 40, 3, 9, (3, 3), 2, 1, "SAME"),
    (9, 5, 12, 2, (3, 3), 1, 1, "SAME"),
    (6, 11, 5, 4, (5, 5), 1, 1, "SAME"),
    (10, 9, 4, 7, (3, 2), (1, 2), 2, "SAME"),
    (13, 4, 1, 6, (10, 4), 2, 1, "SAME"),
    (4, 4, 33, 13, (3, 3), 1, 1, "VALID"),
    (3, 3, 9, 0, (3, 3), 1, 1, "SAME"),
    (1, 1, 4, 0, (3, 3), 1, 1, "SAME"),
    (5, 37, 70, 0, (3, 3), 2, 1, "SAME"),
    (7, 6, 8, 0, (3, 3), 1, 1, "VALID"),
    (8, 5, 3, 0, (5, 5), 1, 1, "SAME"),
    (8, 13, 6, 0, (2, 7), (2, 1), 2, "SAME"),
    (11, 3, 16, 0, (4, 1), 2, 1, "SAME"),
    (5, 9, 3, -1, (3, 3), 1, 1, "SAME"),
    (4, 6, 6, -2, (5, 5), 2, 1, "SAME"),
    (9, 11, 33, 0, (7, 7), 1, 1, "SAME"),
    (6, 24, 5, 0, (3, 3), 1, 1, "SAME"),
    (12, 18, 36, 0, (3, 4), 1, 1, "VALID"),
    (7, 9, 32, 0, (3, 3), 1, 1, "VALID"),
    (8, 11, 16, 0, (4, 4), (1, 2), 1, "VALID"),
    (9, 9, 20, 0, (3, 3), 1, 2, "SAME"),
    (3, 13, 4, 0, (9, 9), 1, 1, "SAME"),
    (5, 5, 1, 0, (3, 3), 1, 1, "SAME"),
    # Taps beside the image; one column of pixels; channels packed; taller blocks of rows.
    (2, 1, 6, 7, (5, 5), 1, 1, "SAME"),
    (1, 2, 5, 0, (3, 3), 1, 1, "SAME"),
    (23, 1, 5, 6, (5, 1), 2, 1, "SAME"),
    (17, 1, 6, 0, (3, 1), 1, 1, "VALID"),
    (9, 8, 2, 5, (5, 5), 1, 1, "SAME"),
    (7, 9, 72, 3, (3, 3), 1, 1, "SAME"),
    # Columns that lie apart: phases of two widths, packed, without a border, turned; with none
    # of the image in a phase.
    (9, 11, 6, 5, (3, 3), 1, 2, "SAME"),
    (8, 14, 2, 7, (3, 2), 1, 3, "SAME"),
    (12, 10, 8, 4, (3, 3), 1, 3, "VALID"),
    (19, 1, 5, 6, (3, 1), 1, 4, "SAME"),
    (3, 2, 4, 3, (2, 2), 1, 3, "SAME"),
    # A row of one output more than there are registers for sums.
    (1, 9, 2, 0, (1, 1), 1, 1, "VALID"),
]
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
    (1, 5, 8),
    (2, 35, 3),
    (3, 18, 7),
    (1, 37, 10),
    (2, 19, 11),
    (1, 29, 13),
]


def write_convolutions(path: Path, *, is_cut: bool = False) -> ModelWriter:
    """Convolutions of all shapes; ``is_cut``: no output is below its zero point."""
    rng = np.random.default_rng(21)
    m = ModelWriter()
    for index, (height, width, channels, outputs, kernel, stride, dilation, padding) in enumerate(
        [*SHAPES, *SHAPES[2::3]]
    ):
        is_second = index >= len(SHAPES)
        is_depthwise = outputs <= 0
        made = channels * (1 - outputs) if is_depthwise else outputs
        shape = (1, *kernel, made) if is_depthwise else (made, *kernel, channels)
        weights, bias = weights_and_bias(rng, shape, made)
        weights[..., -1] //= 64  # scales far apart, and a channel of little weight
        if channels == 6:
            weights[0, 0, :2, 0] = -128  # two products come to 2**15
        taps = kernel[0] * kernel[1] * (1 if is_depthwise else channels)
        scale = spread_scale(taps, 0.05, 0.01)
        if is_second:
            # Small weights whose sums are scaled up.
            weights, bias, scale = weights // 16, bias // 4096, 0.05 * 0.007
        x = m.input((1 + index % 2, height, width, channels), 0.05, int(rng.integers(-128, 128)))
        convolution = m.depthwise_conv2d if is_depthwise else m.conv2d
        y = convolution(
            x,
            weights,
            bias,
            weight_scale=rng.uniform(0.003, 0.02, made),
            stride=stride,
            dilation=dilation,
            padding=padding,
            activation=("RELU", "RELU6")[index % 2] if is_cut else ACTIVATIONS[index % 4],
            scale=scale,
            zero_point=int(rng.integers(-128, 128)) if index % 3 or not is_cut else -128,
        )
        m.output(y)
    m.save(path)
    return m


def write_dense(path: Path) -> ModelWriter:
    rng = np.random.default_rng(22)
    m = ModelWriter()
    for index, (rows, inputs, outputs) in enumerate(DENSE):
        weights, bias = weights_and_bias(rng, (outputs, inputs), outputs)
        x = m.input((rows, inputs), 0.05, int(rng.integers(-128, 128)))
        y = m.fully_connected(
            x,
            weights,
            bias,
            activation=ACTIVATIONS[index % len(ACTIVATIONS)],
            weight_scale=0.01 if index % 3 else rng.uniform(0.005, 0.02, outputs),
            scale=spread_scale(inputs, 0.05, 0.01),
            zero_point=int(rng.integers(-128, 128)),
        )
        m.output(y)
    m.save(path)
    return m


#: Sums of at most 32 elements have no table in family "dsp", the others are made by assembly.
PAIRS = [(5,), (1, 7, 3), (1, 4, 4, 8), (4,), (63,), (1, 5, 7), (34,), (33,)]


def write_additions(path: Path) -> ModelWriter:
    return _write_pairs(path, "ADD", "AddOptions")


def write_differences(path: Path) -> ModelWriter:
    return _write_pairs(path, "SUB", "SubOptions")


def write_products(path: Path) -> ModelWriter:
    return _write_pairs(path, "MUL", "MulOptions")


def _write_pairs(path: Path, kind: str, options: str) -> ModelWriter:
    rng = np.random.default_rng(23)
    m = ModelWriter()
    for index, shape in enumerate(PAIRS):
        scales = [0.03, 0.03] if index == 3 else rng.uniform(0.01, 0.2, 2).tolist()
        if index == len(PAIRS) - 1:
            scales = [0.05, 0.05]
        sides = [m.input((1, *shape), scale, int(rng.integers(-128, 128))) for scale in scales]
        scale = float(rng.uniform(0.3, 1.0)) * sum(scales)
        if index == len(PAIRS) - 1:
            scale = 0.1  # half of all sums are ties
        if kind == "MUL":
            scale = float(rng.uniform(10, 100)) * scales[0] * scales[1]
        y = m.tensor((1, *shape), "int8", scale, int(rng.integers(-128, 128)))
        m.operator(kind, sides, [y], (options, {"FusedActivationFunction": index % 4}))
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


def write_bytes(path: Path) -> ModelWriter:
    """What is done by tables, sums, extrema and copies of bytes."""
    rng = np.random.default_rng(26)
    m = ModelWriter()
    for shape in (*PAIRS, (5, 7, 6), (3, 40), (9, 3, 33), (17, 19, 5)):
        x = m.input((1, *shape), 0.05, int(rng.integers(-128, 128)))
        m.output(m.relu6(x, scale=0.03, zero_point=int(rng.integers(-128, 128))))
        # Of each row, and of the pixels where there are some.
        for axes in ((-1,), *([(1, 2)] if len(shape) == 3 else [])):
            m.output(m.mean(x, axes, scale=0.04, zero_point=int(rng.integers(-128, 128))))
            places = m.constant(np.array(axes, np.int32))
            kept = [1, shape[-1]] if axes == (1, 2) else [1, *shape[:-1]]
            for kind in ("REDUCE_MAX", "REDUCE_MIN", "SUM"):
                options = ("ReducerOptions", {"KeepDims": False})
                m.output(m.node(kind, [x, places], kept, options, scale=0.05))
        joined = (1, *shape[:-1], shape[-1] + 3)
        other = m.input((1, *shape[:-1], 3), 0.05, m.tensors[x].zero_points[0])
        options = ("ConcatenationOptions", {"Axis": len(shape), "FusedActivationFunction": 0})
        m.output(m.node("CONCATENATION", [other, x], joined, options))
    image = m.input((2, 17, 19, 21), 0.05, 3)
    m.output(m.average_pool(image, (17, 19), padding="VALID", activation="RELU"))
    m.save(path)
    return m


def random_inputs(model: ModelWriter, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    tensors = [model.tensors[number] for number in model.inputs]
    return [
        rng.integers(np.iinfo(t.dtype).min, np.iinfo(t.dtype).max + 1, t.shape, dtype=t.dtype)
        for t in tensors
    ]


def compare_on(
    device: Device,
    folder: Path,
    write: Callable[[Path], ModelWriter],
    phrase: str,
    *,
    scales_up: bool = True,
) -> None:
    """All layers in one session, byte for byte; every one must say ``phrase`` of itself.

    ``scales_up``: also those whose sums are scaled up, which some families leave to others.
    """
    path = folder / "model.tflite"
    model = write(path)
    samples = [random_inputs(model, seed) for seed in range(2)]
    expected = run_reference(path, samples).outputs
    compiled = utvm_deploy.compile(path, device.board)
    expected_from = compiled.layers if scales_up else compiled.layers[: len(SHAPES)]
    others = [layer.why for layer in expected_from if phrase not in layer.why]
    assert [why for why in others if "without a table" not in why] == []
    assert len(others) < len(expected_from)
    loaded = device.load(compiled, into="ram")
    for sample, wanted in zip(samples, expected, strict=True):
        for layer, one, other in zip(compiled.layers, loaded(*sample), wanted, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=layer.kernel)


def write_few(path: Path) -> ModelWriter:
    """A layer of each kind."""
    rng = np.random.default_rng(8)
    m = ModelWriter()
    for kernel, outputs in (((1, 1), 11), ((3, 3), 5)):
        weights, bias = weights_and_bias(rng, (outputs, *kernel, 7), outputs)
        x = m.input((1, 5, 3, 7), 0.05, 4)
        scale = spread_scale(weights[0].size, 0.05, 0.01)
        m.output(m.conv2d(x, weights, bias, scale=scale, zero_point=-9, activation="RELU6"))
    weights, bias = weights_and_bias(rng, (9, 21), 9)
    x = m.input((3, 21), 0.05, -3)
    m.output(m.fully_connected(x, weights, bias, scale=spread_scale(21, 0.05, 0.01)))
    m.save(path)
    return m


def compare_candidates(
    device: Device,
    folder: Path,
    family: str,
    core: str,
    *,
    write: Callable[[Path], ModelWriter] = write_few,
    flags: Sequence[str] = ("-O3",),
    only_default: bool = False,
    rounded: Callable[[KernelCall], KernelCall] = lambda call: call,
) -> int:
    """Every candidate of a model's layers, byte for byte, in one module; returns how many.

    ``only_default``: just what the family takes by itself. ``rounded``: the form of a call.
    """
    path = folder / "model.tflite"
    m = write(path)
    sample = random_inputs(m, 8)
    (wanted,) = run_reference(path, [sample]).outputs
    graph = load_model(path)
    kernels, calls = {}, []
    for operator, image, expected in zip(graph.operators, sample, wanted, strict=True):
        found = [one for one in space(graph, operator, core) if one.family == family]
        for candidate in found[:1] if only_default else found:
            call = rounded(lower(graph, operator, core, candidate))
            name = f"k{len(kernels)}"
            assert call.kernel not in kernels.values(), candidate.label
            kernels[name] = call.kernel
            calls.append((name, call, image, expected, candidate.label))
    with device.load_kernels(kernels, flags=flags) as module:
        for name, call, image, expected, label in calls:
            output = device.empty(expected.shape)
            constants = [a.data for a in call.arguments if isinstance(a, ConstantArgument)]
            tensors = iter([device.tensor(a) for a in (image, *constants)] + [output])
            arguments = [
                a.value if isinstance(a, ScalarArgument) else next(tensors) for a in call.arguments
            ]
            module[name](*arguments)
            np.testing.assert_array_equal(output.numpy(), expected, err_msg=label)
            for one in arguments:
                if not isinstance(one, int):
                    one.free()
    return len(calls)
