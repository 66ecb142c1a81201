"""Everything but convolutions and fully connected layers, against the reference."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import Compiled, check, check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")

# image, channels, window, stride, padding
POOLS = [
    ((1, 1, 1), 1, (1, 1), 1, "VALID"),
    ((1, 25, 5), 64, (25, 5), 25, "VALID"),
    ((1, 8, 8), 10, (8, 8), 8, "VALID"),
    ((1, 3, 3), 7, (3, 3), 3, "VALID"),
    ((1, 8, 8), 4, (2, 2), 2, "VALID"),
    ((1, 9, 7), 5, (2, 2), 2, "SAME"),
    ((1, 9, 7), 5, (3, 3), 2, "SAME"),
    ((1, 9, 7), 5, (3, 3), 1, "SAME"),
    ((1, 9, 7), 1, (3, 2), (1, 2), "SAME"),
    ((1, 4, 4), 3, (7, 7), 1, "SAME"),
    ((1, 5, 5), 3, (1, 1), 2, "VALID"),
    ((1, 5, 5), 3, (2, 2), 3, "VALID"),
    ((2, 5, 5), 3, (2, 2), 2, "SAME"),
    ((3, 6, 6), 13, (3, 3), 3, "VALID"),
    ((1, 1, 30), 2, (1, 5), 3, "SAME"),
    ((1, 30, 1), 2, (5, 1), 3, "SAME"),
]


@pytest.mark.parametrize("kind", ["average_pool", "max_pool"])
def test_pool(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    m = ModelWriter()
    for (image, channels, window, stride, padding), activation in itertools.product(
        POOLS, ACTIVATIONS[:3]
    ):
        x = m.input((*image, channels), 0.05, int(rng.integers(-128, 100)))
        pool = getattr(m, kind)
        m.output(pool(x, window, stride=stride, padding=padding, activation=activation))
    assert check(m, tmp_path) == 3 * len(POOLS)


# left shape, right shape
ADDENDS = [
    ((1,), (1,)),
    ((1, 8, 8, 4), (1, 8, 8, 4)),
    ((2, 3), (2, 3)),
    ((1, 4, 4, 3), (3,)),
    ((3,), (1, 4, 4, 3)),
    ((1, 4, 4, 3), (1, 1, 1, 1)),
    ((1,), (2, 5)),
    ((1, 4, 1, 3), (1, 1, 5, 3)),
    ((1, 4, 1, 3), (4, 5, 1)),
    ((2, 1, 3, 1, 2), (2, 4, 3, 5, 2)),
    ((2, 1, 3, 1), (1, 4, 1, 5)),
    ((7, 1), (7, 9)),
]


@pytest.mark.parametrize("constant", [False, True])
def test_add(constant: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    m = ModelWriter()
    activations = itertools.cycle(ACTIVATIONS)
    for left, right in ADDENDS * 2:
        scales = rng.uniform(0.01, 0.1, 3)
        zeros = [int(z) for z in rng.integers(-128, 128, 3)]
        a = m.input(left, float(scales[0]), zeros[0])
        if constant:
            data = rng.integers(-128, 128, right, dtype=np.int8)
            b = m.constant(data, float(scales[1]), zeros[1])
        else:
            b = m.input(right, float(scales[1]), zeros[1])
        operands = (b, a) if constant and rng.random() < 0.5 else (a, b)
        activation = next(activations)
        y = m.add(*operands, activation=activation, scale=float(scales[2]) * 2, zero_point=zeros[2])
        m.output(y)
    assert check(m, tmp_path) == 2 * len(ADDENDS)


def test_add_extreme_scales(tmp_path: Path) -> None:
    """All pairs of int8, with operands up to 2**12 apart."""
    m = ModelWriter()
    cases = [(1.0, 1.0), (1.0, 2.0), (0.3, 1.7), (1.0, 4096.0), (0.001, 1.0), (0.7, 0.7)]
    for (left, right), factor in itertools.product(cases, (0.01, 0.5, 1.0, 2.0, 3.3, 100.0)):
        a = m.input((256, 1), left, 5)
        b = m.input((1, 256), right, -7)
        m.output(m.add(a, b, scale=factor * max(left, right), zero_point=3))
    path = m.save(tmp_path / "model.tflite")
    every = np.arange(-128, 128, dtype=np.int8)
    inputs = [every.reshape(m.tensors[number].shape) for number in m.inputs]
    assert check_model(path, [inputs], tmp_path) == 6 * len(cases)


# shape, axes
MEANS = [
    ((1, 8, 8, 4), (1, 2)),
    ((1, 25, 5, 64), (1, 2)),
    ((1, 7, 7, 3), (2, 1)),
    ((1, 7, 7, 3), (-1,)),
    ((1, 7, 7, 3), (3, 1)),
    ((2, 5, 6, 3), (1,)),
    ((2, 5, 6, 3), (2,)),
    ((2, 5, 6, 3), (0,)),
    ((2, 5, 6, 3), (0, 1, 2, 3)),
    ((2, 5, 6, 3), (0, 2)),
    ((4, 9), (0,)),
    ((4, 9), (1,)),
    ((11,), (0,)),
    ((1,), (0,)),
    ((2, 1, 3), (1,)),
    ((2, 3, 4, 2, 3), (1, 3)),
    ((1, 33, 31, 2), (1, 2)),
]


@pytest.mark.parametrize("keep_dims", [False, True])
def test_mean(keep_dims: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    m = ModelWriter()
    for (shape, axes), relation in itertools.product(MEANS, (1.0, 0.11, 2.7, 1e-6)):
        zeros = [int(z) for z in rng.integers(-128, 128, 2)]
        x = m.input(shape, 0.05, zeros[0])
        y = m.mean(x, axes, keep_dims=keep_dims, scale=0.05 * relation, zero_point=zeros[1])
        m.output(y)
    assert check(m, tmp_path) == 4 * len(MEANS)


PADDINGS = [
    ((5,), [(2, 3)]),
    ((5,), [(0, 0)]),
    ((2, 3), [(0, 1), (1, 0)]),
    ((1, 4, 5, 3), [(0, 0), (1, 1), (1, 1), (0, 0)]),
    ((1, 4, 5, 3), [(0, 0), (0, 1), (2, 0), (0, 0)]),
    ((1, 4, 5, 3), [(0, 0), (0, 0), (0, 0), (1, 2)]),
    ((1, 4, 5, 3), [(1, 0), (0, 0), (0, 2), (1, 2)]),
    ((1, 4, 5, 3), [(2, 1), (3, 1), (0, 0), (0, 0)]),
    ((2, 4, 5, 3), [(0, 1), (1, 2), (3, 4), (5, 6)]),
    ((2, 2, 1, 3, 2), [(0, 1), (1, 0), (1, 1), (0, 0), (2, 0)]),
    ((1, 1, 1, 1), [(1, 1), (1, 1), (1, 1), (1, 1)]),
]


def test_pad(tmp_path: Path) -> None:
    rng = np.random.default_rng(14)
    m = ModelWriter()
    for shape, paddings in PADDINGS:
        x = m.input(shape, 0.05, int(rng.integers(-128, 128)))
        m.output(m.pad(x, paddings))
    assert check(m, tmp_path) == len(PADDINGS)


def test_reshape(tmp_path: Path) -> None:
    m = ModelWriter()
    shapes = [((1, 4, 4, 3), (1, 48)), ((2, 6), (3, -1)), ((5,), (1, 5, 1)), ((1,), (1, 1))]
    for before, after in shapes:
        m.output(m.reshape(m.input(before), after))
    assert check(m, tmp_path) == len(shapes)


def test_softmax(tmp_path: Path) -> None:
    m = ModelWriter()
    shapes = [(1, 1), (1, 2), (1, 12), (4, 10), (2, 3, 5), (1, 3, 4, 7), (2, 66), (1, 250)]
    scales = [1e-6, 0.001, 1 / 256, 0.02, 0.0625, 0.17, 0.5, 1.0, 3.7, 30.0, 1e4]
    cases = list(itertools.product(shapes, scales, (1.0, 0.3)))
    for shape, scale, beta in cases:
        m.output(m.softmax(m.input(shape, scale, 7), beta=beta))
    assert check(m, tmp_path, samples=4) == len(cases)


def test_softmax_of_more_equal_elements_than_the_reference_takes(tmp_path: Path) -> None:
    """From a sum of 256 on the reference aborts; each element rounds to zero then."""
    m = ModelWriter()
    m.output(m.softmax(m.input((1, 1000))))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    (operator,) = graph.operators
    kernels = Compiled()
    kernels.build([lower(graph, operator).kernel], tmp_path, "host")
    output = kernels.run(graph, operator, {graph.inputs[0]: np.full((1, 1000), 5, np.int8)})
    assert (output == -128).all()


def test_softmax_of_all_pairs(tmp_path: Path) -> None:
    """Every difference of two elements, at many scales."""
    rng = np.random.default_rng(15)
    m = ModelWriter()
    for scale in np.exp(rng.uniform(-7, 2, 40)):
        m.output(m.softmax(m.input((256, 2), float(scale), 0)))
    path = m.save(tmp_path / "model.tflite")
    rows = np.stack([np.full(256, 127), np.arange(-128, 128)], axis=1).astype(np.int8)
    assert check_model(path, [[rows] * 40], tmp_path) == 40


def _softmax_to_int16(m: ModelWriter, shape: tuple[int, ...], scale: float, beta: float) -> int:
    # The scale is that of a model for keywords which is much used: 1/65535.
    options = ("SoftmaxOptions", {"Beta": beta})
    quantization = {"scale": 1 / 65535, "zero_point": -32768, "dtype": "int16"}
    return m.node("SOFTMAX", [m.input(shape, scale, 7)], shape, options, **quantization)


def test_softmax_to_int16(tmp_path: Path) -> None:
    m = ModelWriter()
    shapes = [(1, 1), (1, 2), (1, 12), (4, 10), (2, 3, 5), (1, 3, 4, 7), (1, 250), (1, 5000)]
    scales = [1e-6, 0.001, 1 / 256, 0.02, 0.0625, 0.17, 0.5, 1.0, 3.7, 30.0, 1e4]
    cases = list(itertools.product(shapes, scales, (1.0, 0.3)))
    for shape, scale, beta in cases:
        m.output(_softmax_to_int16(m, shape, scale, beta))
    assert check(m, tmp_path, samples=4) == len(cases)


def test_softmax_to_int16_of_all_pairs(tmp_path: Path) -> None:
    """Every difference of two elements, at many scales; and rows of many equal elements."""
    rng = np.random.default_rng(15)
    m = ModelWriter()
    rows = np.stack([np.full(256, 127), np.arange(-128, 128)], axis=1).astype(np.int8)
    inputs = [rows] * 40
    for scale in np.exp(rng.uniform(-7, 2, 40)):
        m.output(_softmax_to_int16(m, (256, 2), float(scale), 1.0))
    for depth in (255, 256, 1000, 4095):
        m.output(_softmax_to_int16(m, (1, depth), 0.1, 1.0))
        inputs.append(np.full((1, depth), -5, np.int8))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [inputs], tmp_path) == 44


def _log_softmax(m: ModelWriter, shape: tuple[int, ...], scale: float) -> int:
    options = ("LogSoftmaxOptions", {})
    x = m.input(shape, scale, 7)
    return m.node("LOG_SOFTMAX", [x], shape, options, scale=1 / 16, zero_point=127)


def test_log_softmax(tmp_path: Path) -> None:
    m = ModelWriter()
    shapes = [(1,), (1, 2), (4, 10), (2, 3, 5), (1, 3, 4, 7), (2, 250), (1, 4095)]
    scales = [1e-6, 0.001, 1 / 256, 0.02, 0.0625, 0.17, 0.5, 1.0, 3.7, 30.0, 1e4]
    cases = list(itertools.product(shapes, scales))
    for shape, scale in cases:
        m.output(_log_softmax(m, shape, scale))
    assert check(m, tmp_path, samples=3) == len(cases)


def test_log_softmax_of_equal_elements(tmp_path: Path) -> None:
    """The logarithm of every whole number up to 300, and of some beyond."""
    m = ModelWriter()
    lengths = [*range(1, 300), 511, 512, 1000, 2048, 4095]
    for length in lengths:
        m.output(_log_softmax(m, (1, length), 0.1))
    path = m.save(tmp_path / "model.tflite")
    rows = [np.full((1, length), 5, np.int8) for length in lengths]
    assert check_model(path, [rows], tmp_path) == len(lengths)


@pytest.mark.parametrize(
    ("length", "scale", "made", "words"),
    [
        (4096, 0.1, 1 / 16, "rows of 4096 may overflow"),
        (4, 2.0**-25, 1 / 16, "not above"),
        (4, 0.1, 1 / 32, "defined for 1/16 and 127"),
    ],
)
def test_log_softmax_that_the_reference_has_not(
    length: int, scale: float, made: float, words: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    x = m.input((1, length), scale)
    m.output(m.node("LOG_SOFTMAX", [x], (1, length), scale=made, zero_point=127))
    with pytest.raises(UnsupportedOperator, match=words):
        load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize("kind", ["relu", "relu6", "quantize"])
def test_tables(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(16)
    m = ModelWriter()
    ratios = [1.0, 0.5, 2.0, 0.1, 7.3, 1e-3, 300.0, *rng.uniform(0.2, 5.0, 20)]
    for ratio in ratios:
        zeros = [int(z) for z in rng.integers(-128, 128, 2)]
        x = m.input((256,), 0.05, zeros[0])
        m.output(getattr(m, kind)(x, scale=0.05 * float(ratio), zero_point=zeros[1]))
    path = m.save(tmp_path / "model.tflite")
    every = np.arange(-128, 128, dtype=np.int8)
    assert check_model(path, [[every] * len(ratios)], tmp_path) == len(ratios)


def test_float_input_and_output(tmp_path: Path) -> None:
    rng = np.random.default_rng(17)
    m = ModelWriter()
    cases = [
        (0.5, 0),
        (0.1, -128),
        (1 / 255, 127),
        (3.0, 11),
        *zip(rng.uniform(0.01, 1, 12), range(12), strict=True),
    ]
    for scale, zero_point in cases:
        x = m.float_input((40, 25))
        y = m.quantize(x, scale=float(scale), zero_point=zero_point)
        m.output(m.dequantize(y))
    path = m.save(tmp_path / "model.tflite")
    ties = (np.arange(-500, 500) / 2).reshape(40, 25).astype(np.float32)
    tiny = np.float32(1e-38) * ties
    huge = np.float32(1e4) * ties
    values = rng.normal(size=(40, 25)).astype(np.float32) * 20
    samples = [[array] * len(cases) for array in (ties, tiny, huge, values)]
    assert check_model(path, samples, tmp_path) == 2 * len(cases)
