"""The Thumb-2 family: its routines, its rounding."""

from __future__ import annotations

import ctypes
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import PREAMBLE, compile_library
from odd_shapes import SHAPES, write_convolutions, write_dense
from tflite_writer import ModelWriter

from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.c_texts import bytes_texts, family_text, shared_text
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise
from utvm_deploy.kernels.native.thumb.armv6m_depthwise import (
    Armv6mRowProduct,
    Armv6mTile,
    best_tile,
)
from utvm_deploy.records.candidate import Candidate

CORE = "cortex-m3"
SMALL_CORE = "cortex-m0plus"


def test_each_layer_calls_its_routine(tmp_path: Path) -> None:
    functions = set()
    for write in (write_convolutions, write_dense):
        path = tmp_path / "model.tflite"
        write(path)
        graph = load_model(path)
        for operator in graph.operators[: len(SHAPES)]:
            kernel = lower(graph, operator, CORE, Candidate("thumb")).kernel
            function = kernel.product.function
            assert f" {function}(" in lower_kernel(kernel, "kernel", CORE).function.text
            functions.add(function)
    kinds = ("gemm_2", "gemm_wide_1", "gemm_wide_each_1", "depthwise_3x3_slide", "depthwise_3x3")
    for kind in (*kinds, "depthwise_5x5", "depthwise_2x7", "depthwise_4x1"):
        assert any(name.startswith(f"utvm_thumb_{kind}") for name in functions), kind


def test_a_small_core_computes_small_pointwise_layers_in_assembly(tmp_path: Path) -> None:
    """Plain C is slow there: it calls a function for each 64-bit product."""
    m, rng = ModelWriter(), np.random.default_rng(2)
    for height, width, inputs, outputs in ((6, 6, 12, 24), (6, 10, 12, 4)):
        x = m.input((1, height, width, inputs), 0.05, -7)
        weights = rng.integers(-127, 128, (outputs, 1, 1, inputs), dtype=np.int8)
        bias = np.zeros(outputs, np.int32)
        m.output(m.conv2d(x, weights, bias, weight_scale=0.01, scale=0.3, stride=2))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    assert {lower(graph, operator, SMALL_CORE).family for operator in graph.operators} == {"thumb"}


def test_each_depthwise_layer_of_a_small_core_has_the_tile_that_fits_its_rows(
    tmp_path: Path,
) -> None:
    write_convolutions(tmp_path / "model.tflite")
    graph = load_model(tmp_path / "model.tflite")
    kernels = [lower(graph, operator, SMALL_CORE).kernel for operator in graph.operators]
    rows = [one for one in kernels[: len(SHAPES)] if isinstance(one, RowDepthwise)]
    products = [one.product for one in rows]
    tiles = [one.tile for one in products if isinstance(one, Armv6mRowProduct)]
    assert len(tiles) == sum(outputs <= 0 and inputs > 1 for _, _, inputs, outputs, *_ in SHAPES)
    assert {one.rest for one in tiles} == {0, 1, 3}
    for kernel, tile in zip(rows, tiles, strict=True):
        assert kernel.window.output_width % tile.pixels == tile.rest
        assert f" {kernel.product.function}(" in lower_kernel(kernel, "k", SMALL_CORE).function.text


@pytest.mark.parametrize(
    ("width", "pixels", "rest"), [(1, 1, 0), (3, 3, 0), (5, 4, 1), (6, 3, 0), (10, 4, 2)]
)
def test_the_tile_of_a_row(width: int, pixels: int, rest: int) -> None:
    assert best_tile(3, 3, width) == Armv6mTile(3, 3, pixels, rest)


def test_large_sums_of_a_small_core_are_left_to_plain_c(tmp_path: Path) -> None:
    """Its requantization takes one bit less than that of Thumb-2."""
    m, scale = ModelWriter(), 0.05 * 0.01 / 3e-7
    # Sums near 2^29, some of which give another output than the others.
    for bias in (round(159.5 / 3e-7), round(161.5 / 3e-7)):
        x = m.input((1, 4, 4, 2), 0.05, 0)
        weights = np.ones((1, 3, 3, 2), np.int8)
        biases = np.full(2, bias, np.int32)
        y = m.depthwise_conv2d(x, weights, biases, weight_scale=0.01, scale=scale, zero_point=-128)
        m.output(y)
    graph = load_model(m.save(tmp_path / "model.tflite"))
    small, large = (lower(graph, operator, SMALL_CORE) for operator in graph.operators)
    assert (small.family, large.family) == ("thumb", "generic")
    assert "an accumulator can reach" in large.why_not
    assert lower(graph, graph.operators[1], CORE).family == "thumb"


@pytest.mark.tools
def test_products_of_halves(tmp_path: Path) -> None:
    source = tmp_path / "scale.c"
    source.write_text(
        PREAMBLE
        + shared_text("utvm_scale")
        + shared_text("utvm_scale_wide")
        + family_text("thumb", "utvm_plain_multiply")
        + family_text("thumb", "utvm_plain_scale")
        + family_text("thumb", "utvm_plain_scale_wide")
        + """
int32_t both(int32_t value, int32_t multiplier, int32_t low, int32_t high, int32_t shift) {
    int32_t top;
    const uint32_t bottom = utvm_plain_multiply(value, multiplier, &top);
    const int64_t product = (int64_t)(((uint64_t)(uint32_t)top << 32) | bottom);
    return product == (int64_t)value * multiplier
        && utvm_plain_scale(value, multiplier, low, shift)
            == utvm_scale(value, multiplier, low, shift)
        && utvm_plain_scale_wide(value / 2, multiplier, low, high / 4, shift)
            == utvm_scale_wide(value / 2, multiplier, low, high / 4, shift);
}
"""
    )
    both = compile_library(source).both
    rng = np.random.default_rng(6)
    ends = [-(2**31), -(2**16), -(2**16) - 1, -1, 0, 1, 2**16 - 1, 2**16, 2**31 - 1]
    values = [*ends, *(int(v) for v in rng.integers(-(2**31), 2**31, 200))]
    multipliers = [0, 1, 2**16 - 1, 2**30, 2**31 - 1]
    multipliers += [int(m) for m in rng.integers(2**30, 2**31, 20)]
    for value in values:
        for multiplier in multipliers:
            low, high = (int(v) for v in rng.integers(-(2**31), 2**31, 2))
            assert both(value, multiplier, low, high, int(rng.integers(1, 23))), value


def test_small_layers_are_left_to_plain_c(tmp_path: Path) -> None:
    """Unless a candidate asks for this family; the space begins with what is taken untuned."""
    m = ModelWriter()
    for channels, outputs in ((1, 1), (24, 16)):
        x = m.input((1, 24, 24, channels), 0.05, -7)
        weights = np.ones((outputs, 3, 3, channels), np.int8)
        bias = np.zeros(outputs, np.int32)
        m.output(m.conv2d(x, weights, bias, weight_scale=0.003, scale=0.1, stride=2))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    for core in (CORE, SMALL_CORE):
        small, large = (lower(graph, operator, core) for operator in graph.operators)
        assert (small.family, large.family) == ("generic", "thumb")
        assert "plain C" in small.why_not and not large.why_not
        for operator, call in zip(graph.operators, (small, large), strict=True):
            assert space(graph, operator, core)[0].family == call.family
            assert lower(graph, operator, core, Candidate("thumb")).family == "thumb"


@pytest.mark.tools
@pytest.mark.parametrize("core", [CORE, SMALL_CORE])
def test_bytes_are_copied_and_set_wherever_they_lie(core: str, tmp_path: Path) -> None:
    source = tmp_path / "bytes.c"
    source.write_text(
        PREAMBLE
        + "".join(bytes_texts(core))
        + """
int8_t *copy(int8_t *to, const int8_t *from, int32_t n) { return utvm_bytes_copy(to, from, n); }
int8_t *fill(int8_t *to, int32_t value, int32_t n) { return utvm_bytes_fill(to, value, n); }
"""
    )
    library = compile_library(source)
    library.copy.restype = library.fill.restype = ctypes.c_void_p
    source_bytes = np.arange(80, dtype=np.int8)
    for to, start, count in product(range(4), range(4), (*range(10), 16, 23, 36, 37)):
        made = np.full(48, 99, np.int8)
        expected = made.copy()
        expected[to : to + count] = source_bytes[start : start + count]
        address, origin = made.ctypes.data + to, source_bytes.ctypes.data + start
        end = library.copy(ctypes.c_void_p(address), ctypes.c_void_p(origin), count)
        assert end == address + count
        np.testing.assert_array_equal(made, expected)
        expected[to : to + count] = -3
        assert library.fill(ctypes.c_void_p(address), -3, count) == address + count
        np.testing.assert_array_equal(made, expected)


def test_a_core_without_thumb2_never_copies_words_from_odd_places() -> None:
    assert "assume_aligned" in "".join(bytes_texts("cortex-m0"))
    assert "assume_aligned" in "".join(bytes_texts(SMALL_CORE))
    assert "assume_aligned" not in "".join(bytes_texts(CORE))
