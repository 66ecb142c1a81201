"""ONNX operators that TVM does not import become others, and refusals name the operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_suite import OK, last_end, node_cases

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.frontend.qdq.job import symmetric_int8
from utvm_deploy.frontend.qdq.operators import Node
from utvm_deploy.frontend.qdq.values import Constant
from utvm_deploy.frontend.relax.facts import loaded
from utvm_deploy.frontend.relax.road import relax_graph

# TVM's importer warns. Users do not see it, because a child process reads their models.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.tools]

#: Tests of the ``onnx`` package, of rewrites, and of what they leave as it is.
REWRITTEN = (
    "test_attention_4d_gqa_causal",
    "test_attention_23_boolmask_fullymasked_row_nan_robustness",
    "test_bitshift_right_uint8",
    "test_celu",
    "test_center_crop_pad_crop_and_pad",
    "test_col2im_pads",
    "test_compress_0",
    "test_convtranspose_output_shape",
    "test_cumprod_1d_int32_exclusive",
    "test_det_nd",
    "test_dft_irfft",
    "test_dropout_default_mask",
    "test_group_normalization_epsilon",
    "test_if",
    "test_isinf_negative",
    "test_layer_normalization_4d_axis1",
    "test_linear_attention_gated",
    "test_loop11",
    "test_lpnormalization_default",
    "test_nesterov_momentum",
    "test_onehot_negative_indices",
    "test_qlinearconv",
    "test_resize_downsample_scales_cubic",
    "test_reversesequence_batch",
    "test_rotary_embedding",
    "test_scan9_sum",
    "test_sce_mean_weight_ii",
    "test_size",
    "test_spacetodepth_crd_mode_example",
    "test_stft_with_window",
    "test_swish",
    "test_tensorscatter_circular",
)


@pytest.mark.parametrize("name", REWRITTEN)
def test_operators_that_are_rewritten(name: str, tmp_path: Path) -> None:
    (case,) = (case for case in node_cases() if case.name == name)
    end = last_end(case, tmp_path)
    assert end.kind == OK, end.said


def saved(
    path: Path,
    node: onnx.NodeProto,
    inputs: Sequence[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    version: int = 17,
) -> Path:
    graph = helper.make_graph([node], "one", inputs, [output])
    opsets = [helper.make_opsetid("", version)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.mark.parametrize("kernel", [[3, 3, 0], [3, 0], [3]])
def test_a_convolution_that_contradicts_itself(kernel: list[int], tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=kernel)
    inputs = [floats("x", 1, 2, 8, 8), floats("w", 4, 2, 3, 3)]
    path = saved(tmp_path / "conv.onnx", node, inputs, floats("y", 1, 4, 6, 6))
    with pytest.raises(ModelError, match=r"operator 0 \(Conv\), which makes 'y', contradicts"):
        onnx_to_model(path)


def computed_depth() -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto]]:
    inputs = [floats("x", 3), floats("depth", 1), floats("values", 2)]
    return helper.make_node("OneHot", ["x", "depth", "values"], ["y"]), inputs


def computed_pads() -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto]]:
    pads = helper.make_tensor_value_info("pads", TensorProto.INT64, [4])
    return helper.make_node("Pad", ["x", "pads"], ["y"]), [floats("x", 2, 3), pads]


def unknown() -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto]]:
    return helper.make_node("RandomNormalLike", ["x"], ["y"]), [floats("x", 2, 3)]


def by_values() -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto]]:
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [6])
    return helper.make_node("Compress", ["x", "c"], ["y"]), [floats("x", 2, 3), condition]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (computed_depth, "OneHot.*has a computed depth; make it a constant"),
        (computed_pads, "Pad, which makes 'y', .*on values; make 'pads' constant"),
        (unknown, "RandomNormalLike, which makes 'y', cannot be imported"),
        (by_values, "Compress.*make the condition a constant"),
    ],
)
def test_refusals_in_our_words(make: object, said: str, tmp_path: Path) -> None:
    node, inputs = make()  # type: ignore[operator]
    path = saved(tmp_path / "refused.onnx", node, inputs, floats("y", "n"))
    with pytest.raises(ModelError, match=said) as caught:
        onnx_to_model(path)
    assert "Check failed" not in str(caught.value) and "relax." not in str(caught.value)


def test_weights_with_zero_points_move() -> None:
    node = Node(0, "Conv", ("x", "w"), ("y",))
    scales, zero = np.array([0.5, 0.25]), np.array([128, 100], np.uint8)
    data = np.array([[[0, 255]], [[90, 120]]], np.uint8)
    weights = Constant(data, scales, zero, 0)
    made, steps = symmetric_int8(node, weights, "weights", 0)
    assert made.dtype == np.int8 and steps.tolist() == scales.tolist()
    assert made.tolist() == [[[-128, 127]], [[-10, 20]]]


def test_weights_too_large_for_int8_are_rounded() -> None:
    node = Node(0, "Conv", ("x", "w"), ("y",))
    data = np.array([[[0, 128, 255]], [[0, 1, 2]]], np.uint8)
    weights = Constant(data, np.array([0.5]), np.array([0], np.uint8), None)
    made, steps = symmetric_int8(node, weights, "weights", 0)
    assert np.abs(made * steps.reshape(2, 1, 1) - weights.real).max() <= steps.max() / 2
    assert made[1].tolist() == [[0, 1, 2]] and steps[1] == 0.5


def test_a_scalar_stays_one(tmp_path: Path) -> None:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    path = saved(tmp_path / "scalar.onnx", node, [floats("x", 2, 3)], floats("y"))
    graph = relax_graph(loaded(onnx_to_model(path)), "scalar")
    assert graph.tensors[graph.outputs[0]].shape == ()
