"""CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV as calls of the library."""

from __future__ import annotations

import numpy as np

from utvm_deploy.compiler.cmsis_nn import scratch
from utvm_deploy.compiler.cmsis_nn.call import (
    CLAMP,
    OFFSETS,
    PER_CHANNEL,
    SCALING,
    SET_CLAMP,
    SET_OFFSETS,
    WEIGHTS,
    clamp_arguments,
    context,
    dims,
    library_call,
    offset_arguments,
    pointer,
    suffix,
    tile,
)
from utvm_deploy.compiler.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Convolution, TransposeConvolution
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import Argument, ConstantArgument, KernelCall
from utvm_deploy.kernels.convolution import window_of
from utvm_deploy.kernels.operands import (
    bias_of,
    constant_of,
    effective_scales,
    input_of,
    output_of,
)
from utvm_deploy.kernels.quantize import quantize_multipliers

_TRANSPOSED = "arm_transpose_conv_wrapper_s8"
_REVERSED_SIZE = "arm_transpose_conv_s8_get_reverse_conv_buffer_size"


def lower_convolution(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D of int8 or int16."""
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    is_depthwise, is_wide = operator.kind == "DEPTHWISE_CONV_2D", source.dtype == "int16"
    rows, columns = weights.shape[1:3]
    channels, outputs = source.shape[3], result.shape[3]
    if not is_depthwise and weights.shape[3] != channels:
        return f"it has {channels // weights.shape[3]} groups"
    if is_wide and is_depthwise and attributes.sums_in_32_bits:
        return "CMSIS-NN's depthwise convolution of int16 sums up in 64 bits only"
    window = window_of(graph, operator, (rows, columns))
    if is_depthwise:
        function, kind = "arm_depthwise_conv_wrapper", "cmsis_nn_dw_conv_params"
        extra = f"        .ch_mult = {outputs // channels},\n"
        filter_dims = (1, rows, columns, outputs)
        scratch_bytes = scratch.depthwise(library, window, channels, outputs, is_wide=is_wide)
    else:
        function, kind, extra = "arm_convolve_wrapper", "cmsis_nn_conv_params", ""
        filter_dims = (outputs, rows, columns, channels)
        scratch_bytes = scratch.convolution(library, window, channels, is_wide=is_wide)
    function = f"{function}_{suffix(source.dtype)}"
    shapes = (
        f"    {kind} parameters = {{\n{extra}"
        f"        .stride = {tile(window.strides)},\n"
        f"        .padding = {tile((window.top, window.left))},\n"
        f"        .dilation = {tile(window.dilations)}}};\n"
        + dims("input_dims", source.shape)
        + dims("filter_dims", filter_dims)
        + dims("output_dims", result.shape)
    )
    bias_type = "int64" if is_wide and not attributes.sums_in_32_bits else "int32"
    bias, set_bias = "bias", ""
    if is_wide and not is_depthwise:
        bias = "&bias_data"
        set_bias = (
            f"    const cmsis_nn_bias_data bias_data = {{bias, {int(bias_type == 'int32')}}};\n"
        )
    return library_call(
        graph,
        operator,
        ours,
        function,
        (
            pointer(source.dtype, "input"),
            WEIGHTS,
            pointer(bias_type, "bias"),
            *PER_CHANNEL,
            *OFFSETS,
            *CLAMP,
            pointer(source.dtype, "output", is_const=False),
        ),
        (
            *_tables(graph, operator, outputs, bias_type),
            *offset_arguments(graph, operator),
            *clamp_arguments(attributes.clamp),
        ),
        shapes
        + SET_OFFSETS
        + SET_CLAMP
        + SCALING
        + set_bias
        + dims("bias_dims", (1, 1, 1, outputs))
        + context(scratch_bytes)
        + f"    return (int32_t){function}(\n"
        "        &context, &parameters, &scaling, &input_dims, input, &filter_dims, weights,\n"
        f"        &bias_dims, {bias}, &output_dims, output);\n",
        scratch_bytes,
        f"{shapes}    return {function}_get_buffer_size(\n"
        "        &parameters, &input_dims, &filter_dims, &output_dims);\n",
    )


def lower_transpose_convolution(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """TRANSPOSE_CONV of int8."""
    attributes = operator.attributes
    assert isinstance(attributes, TransposeConvolution)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    if source.dtype != "int8":
        return f"no call of CMSIS-NN does {operator.kind} of {source.dtype}"
    if not library.has(_REVERSED_SIZE):
        return f"this revision of CMSIS-NN has no {_REVERSED_SIZE}"
    outputs, rows, columns, channels = constant_of(graph, operator, 1).shape
    sums, reversed_weights = scratch.transpose_convolution(
        library, source.shape, outputs, (rows, columns), attributes.strides
    )
    shapes = (
        "    cmsis_nn_transpose_conv_params parameters = {\n"
        f"        .stride = {tile(attributes.strides)},\n"
        f"        .padding = {tile(attributes.padding)},\n"
        f"        .dilation = {tile((1, 1))}}};\n"
        + dims("input_dims", source.shape)
        + dims("filter_dims", (outputs, rows, columns, channels))
        + dims("output_dims", result.shape)
    )
    second = f"scratch + {sums}, {reversed_weights}" if reversed_weights else "0, 0"
    return library_call(
        graph,
        operator,
        ours,
        _TRANSPOSED,
        (
            pointer("int8", "input"),
            WEIGHTS,
            pointer("int32", "bias"),
            *PER_CHANNEL,
            *OFFSETS,
            *CLAMP,
            pointer("int8", "output", is_const=False),
        ),
        (
            *_tables(graph, operator, outputs, "int32"),
            *offset_arguments(graph, operator),
            *clamp_arguments(attributes.clamp),
        ),
        shapes
        + SET_OFFSETS
        + SET_CLAMP
        + SCALING
        + dims("bias_dims", (1, 1, 1, outputs))
        + f"    const cmsis_nn_context sums = {{scratch, {sums}}};\n"
        f"    const cmsis_nn_context weights_reversed = {{{second}}};\n"
        f"    return (int32_t){_TRANSPOSED}(\n"
        "        &sums, &weights_reversed, &parameters, &scaling, &input_dims, input,\n"
        "        &filter_dims, weights, &bias_dims, bias, &output_dims, output);\n",
        sums + reversed_weights,
        f"{shapes}    return arm_transpose_conv_s8_get_buffer_size(\n"
        "               &parameters, &input_dims, &filter_dims, &output_dims)\n"
        f"           + {_REVERSED_SIZE}(\n"
        "               &parameters, &input_dims, &filter_dims);\n",
    )


def _tables(graph: Graph, operator: Operator, outputs: int, bias_type: str) -> tuple[Argument, ...]:
    """Weights, bias, multipliers and shifts."""
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    return (
        ConstantArgument("weights", constant_of(graph, operator, 1)),
        ConstantArgument("bias", bias_of(graph, operator, outputs).astype(np.dtype(bias_type))),
        ConstantArgument("multiplier", multiplier),
        ConstantArgument("shift", shift),
    )
