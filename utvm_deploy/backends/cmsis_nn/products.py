"""FULLY_CONNECTED and BATCH_MATMUL as calls of the library."""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.backends import (
    Argument,
    Array,
    ConstantArgument,
    KernelCall,
    Operation,
    ScalarArgument,
    Tensor,
    fold_input_offset,
    quantization_of,
    quantize_multiplier,
    quantize_multipliers,
)
from utvm_deploy.backends.cmsis_nn import scratch
from utvm_deploy.backends.cmsis_nn.call import (
    SCALING,
    SET_CLAMP,
    SET_OFFSETS,
    SIDES,
    WEIGHTED_CALL,
    clamp_arguments,
    context,
    dims,
    four_extents,
    library_call,
    offset_arguments,
    scalars_of,
    suffix,
)
from utvm_deploy.backends.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import BatchMatmul, FullyConnected

_INT32_BYTES = 4


def lower_dense(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """FULLY_CONNECTED of int8 or int16."""
    attributes = op.attributes(FullyConnected)
    source = op.source
    weights = op.constant(1)
    outputs, inputs = weights.shape
    batch = math.prod(op.result.shape) // outputs
    is_int16, kind = source.dtype == "int16", suffix(source.dtype)
    is_per_channel = len(quantization_of(op.input(1)).scales) > 1
    if is_per_channel and is_int16:
        return "no call of CMSIS-NN does FULLY_CONNECTED of int16 with a scale for each output"
    function = f"arm_fully_connected_{'per_channel_' if is_per_channel else ''}{kind}"
    multipliers, scaling = _scaling(op, outputs, is_per_channel)
    bias = op.bias(outputs).astype(np.int64 if is_int16 else np.int32)
    sums: list[Argument] = []
    if library.has_mve and not is_int16:
        # The Helium kernel wants the input's offset folded into the bias, by the caller.
        sums.append(_kernel_sums(source, weights, bias))
    # The table is not scratch, so the library may ask for its bytes without asking for too much.
    table_bytes = _INT32_BYTES * outputs * len(sums)
    scratch_bytes = 0 if is_int16 else scratch.dense(library, outputs)
    given = f"    const cmsis_nn_context context = {{(int32_t *)kernel_sums, {table_bytes}}};\n"
    shapes = dims("filter_dims", (inputs, 1, 1, outputs))
    return library_call(
        op,
        ours,
        function,
        (
            ConstantArgument("weights", weights),
            ConstantArgument("bias", bias),
            *sums,
            *multipliers,
            *offset_arguments(op),
            *clamp_arguments(attributes.clamp),
        ),
        "    cmsis_nn_fc_params parameters = {.filter_offset = 0};\n"
        + shapes
        + SET_OFFSETS
        + SET_CLAMP
        + scaling
        + dims("input_dims", (batch, 1, 1, inputs))
        + dims("bias_dims", (1, 1, 1, outputs))
        + dims("output_dims", (batch, 1, 1, outputs))
        + (given if sums else context(scratch_bytes))
        + WEIGHTED_CALL.format(function=function),
        scratch_bytes,
        f"{shapes}    return arm_fully_connected_{kind}_get_buffer_size(&filter_dims)"
        f" - {table_bytes};\n",
    )


def _kernel_sums(source: Tensor, weights: Array, bias: Array) -> Argument:
    folded = fold_input_offset(bias, weights, quantization_of(source).zero_point)
    return ConstantArgument("kernel_sums", folded)


def _scaling(op: Operation, outputs: int, is_per_channel: bool) -> tuple[tuple[Argument, ...], str]:
    """Arguments and C text of what scales the sums: tables, or two numbers."""
    scales = op.scales(outputs)
    if is_per_channel:
        multiplier, shift = quantize_multipliers(scales)
        tables = ConstantArgument("multiplier", multiplier), ConstantArgument("shift", shift)
        return tables, SCALING
    one = quantize_multiplier(scales[0])
    return (
        (ScalarArgument("multiplier", one[0]), ScalarArgument("shift", one[1])),
        "    const cmsis_nn_per_tensor_quant_params scaling = {multiplier, shift};\n",
    )


def lower_products(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """BATCH_MATMUL of int8 whose right side is stored as the library reads it."""
    attributes = op.attributes(BatchMatmul)
    left, right = (op.input(index) for index in (0, 1))
    result = op.result
    if (left.dtype, right.dtype) != ("int8", "int8"):
        return f"no call of CMSIS-NN does {op.kind} of {left.dtype} by {right.dtype}"
    if attributes.left_turned or not attributes.right_turned:
        return "CMSIS-NN multiplies the rows of both sides, which are stored otherwise"
    shapes = ""
    for name, tensor in (("left", left), ("right", right), ("output", result)):
        extents = four_extents(tensor.shape)
        if extents is None:
            return f"no call of CMSIS-NN does {op.kind} of more than four dimensions"
        shapes += dims(f"{name}_dims", extents)
    scratch_bytes = right.shape[-2] * _INT32_BYTES if library.has_mve else 0
    scalars = scalars_of(ours)
    body = (
        "    const cmsis_nn_bmm_params parameters = {\n"
        "        0, 1,\n"
        "        {-left_zero_point, -right_zero_point, output_zero_point, {low, high}}};\n"
        "    const cmsis_nn_per_tensor_quant_params scaling = {multiplier, shift};\n"
        + shapes
        + context(scratch_bytes)
        + "    return (int32_t)arm_batch_matmul_s8(\n"
        "        &context, &parameters, &scaling, &left_dims, left, &right_dims, right,\n"
        "        &output_dims, output);\n"
    )
    return library_call(
        op, ours, "arm_batch_matmul_s8", tuple(scalars.values()), body, scratch_bytes, inputs=SIDES
    )
