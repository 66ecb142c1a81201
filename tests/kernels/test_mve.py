"""The Helium family: its routines, its rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import check
from odd_shapes import (
    write_additions,
    write_convolutions,
    write_dense,
    write_differences,
    write_products,
)
from test_convolutions import spread_scale, weights_and_bias
from tflite_writer import ModelWriter

from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.native.dsp.bytes import JoinedRows
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.mve.patch_depthwise import PatchDepthwise
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise
from utvm_deploy.records.candidate import COMPACT_LITTLE, Candidate

CORE = "cortex-m55"

MICRO_KERNELS = {
    "utvm_mve_gemm",
    "utvm_mve_gemm_left",
    "utvm_mve_depthwise",
    "utvm_mve_depthwise_left",
    "utvm_mve_patches1",
    "utvm_mve_patches2",
    "utvm_mve_dense",
    "utvm_mve_dense_each",
    "utvm_mve_add",
    "utvm_mve_multiply",
}
# Batch, rows, columns, channels; outputs, groups, window, stride.
GROUPED = [
    ((1, 6, 7, 12), 20, 4, 1, 1),
    ((2, 5, 5, 6), 9, 3, 2, 1),
    ((1, 9, 4, 34), 10, 2, 3, 2),
]


def test_each_layer_calls_its_routine(tmp_path: Path) -> None:
    functions = set()
    kernels = set()
    pairs = (write_additions, write_differences, write_products)
    for write in (write_convolutions, write_dense, *pairs):
        path = tmp_path / "model.tflite"
        write(path)
        graph = load_model(path)
        for operator in graph.operators:
            call = lower(graph, operator, CORE, Candidate("mve"))
            kernels.add(call.kernel)
            text = lower_kernel(call.kernel, "kernel", CORE).function.text
            (function,) = (one for one in MICRO_KERNELS if f" {one}(" in text)
            functions.add(function)
    assert functions == MICRO_KERNELS
    assert any(isinstance(one, RowDepthwise) for one in kernels)


def test_pixels_of_groups_are_multiplied_where_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(10)
    m = ModelWriter()
    x = m.input((1, 6, 5, 24), 0.05, 4)
    weights, bias = weights_and_bias(rng, (12, 1, 1, 8), 12)
    m.output(m.conv2d(x, weights, bias, scale=0.05))
    path = tmp_path / "model.tflite"
    m.save(path)
    graph = load_model(path)
    for core, family in ((CORE, "mve"), ("cortex-m3", "thumb")):
        call = lower(graph, graph.operators[0], core, Candidate(family))
        text = lower_kernel(call.kernel, "kernel", core).function.text
        assert call.family == family
        assert isinstance(call.kernel, GatheredConv2D)
        assert "utvm_windows_gather" not in text
        assert [one.name for one in call.kernel.scratch] == ["part"]


def test_vector_requantization_equals_the_reference() -> None:
    """VQRDMULH, one off negative values by VMULH, VRSHL: as Arm defines them."""
    rng = np.random.default_rng(4)
    for _ in range(3000):
        multiplier = int(rng.integers(1 << 30, 1 << 31))
        shift = -int(rng.integers(0, 32))
        value = int(rng.integers(-(2**31), 2**31) >> rng.integers(0, 31))
        # Near the middle between two results, too.
        near = ((2 * int(rng.integers(-200, 200)) + 1) << (31 - shift)) // (2 * multiplier)
        for one in (value, *range(near - 2, near + 3)):
            if not -(2**31) <= one < 2**31:
                continue
            product = (2 * one * multiplier + (1 << 31)) >> 32
            product += product * (shift < 0) >> 32
            rounded = (product + (1 << -shift >> 1)) >> -shift
            assert rounded == requantized(one, multiplier, shift)


def test_depthwise_layers_of_few_channels_and_taps_are_left_to_dsp_code(tmp_path: Path) -> None:
    m = ModelWriter()
    for channels, columns in ((3, 5), (8, 5), (3, 3)):
        x = m.input((1, 9, 9, channels), 0.05, 4)
        weights = np.ones((1, 3, columns, channels), np.int8)
        bias = np.zeros(channels, np.int32)
        m.output(m.depthwise_conv2d(x, weights, bias, weight_scale=0.003, scale=0.1))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    few, many, patches = graph.operators
    assert lower(graph, few, CORE).family == "dsp"
    assert "few channels" in lower(graph, few, CORE).why_not
    assert lower(graph, few, CORE, Candidate("mve")).family == "mve"
    assert lower(graph, many, CORE).family == "mve"
    assert lower(graph, patches, CORE).family == "mve"


def test_windows_are_vectors_unless_less_is_wanted(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 9, 9, 24), 0.05, 4)
    weights, bias = np.ones((1, 3, 3, 24), np.int8), np.zeros(24, np.int32)
    m.output(m.depthwise_conv2d(x, weights, bias, weight_scale=0.003, scale=0.1))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    (operator,) = graph.operators
    vectors, taps = space(graph, operator, CORE)[:2]
    assert [vectors.label, taps.label] == ["mve", "mve patches=0"]

    def kernel(**wanted: Any) -> object:
        return type(lower(graph, operator, CORE, **wanted).kernel)

    assert kernel() == kernel(candidate=vectors) == PatchDepthwise
    for less in ({"candidate": taps}, {"compact": COMPACT_LITTLE}, {"most_scratch": 2_000}):
        assert kernel(**less) == RowDepthwise


def test_rows_are_joined_by_vectors_where_these_have_a_loop(tmp_path: Path) -> None:
    m = ModelWriter()
    rows = ((16, 16), (24, 8), (8, 64), (20, 20, 20), (512, 512))
    for sizes in rows:
        xs = [m.input((1, 3, 5, size), 0.05, 0) for size in sizes]
        options = ("ConcatenationOptions", {"Axis": 3, "FusedActivationFunction": 0})
        m.output(m.node("CONCATENATION", xs, (1, 3, 5, sum(sizes)), options))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    joined = [isinstance(lower(graph, one, CORE).kernel, JoinedRows) for one in graph.operators]
    assert joined == [False, False, True, True, True]
    assert check(m, tmp_path, core=CORE) == len(rows)


@pytest.mark.tools
def test_groups_in_plain_c(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    m = ModelWriter()
    for shape, outputs, groups, window, stride in GROUPED:
        x = m.input(shape, 0.05, 4)
        kernel = (outputs, window, window, shape[3] // groups)
        weights, bias = weights_and_bias(rng, kernel, outputs)
        scale = spread_scale(weights[0].size, 0.05, 0.01)
        m.output(m.conv2d(x, weights, bias, stride=stride, scale=scale, zero_point=-3))
    assert check(m, tmp_path, core=CORE, family="mve") == len(GROUPED)
