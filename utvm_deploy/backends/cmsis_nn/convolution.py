"""CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV as calls of the library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utvm_deploy.backends import (
    ConstantArgument,
    KernelCall,
    Operation,
    Window,
    quantize_multipliers,
    replaced,
    window_of,
)
from utvm_deploy.backends.cmsis_nn import scratch
from utvm_deploy.backends.cmsis_nn.call import (
    SCALING,
    SET_CLAMP,
    SET_OFFSETS,
    WEIGHTED_CALL,
    clamp_arguments,
    context,
    dims,
    library_call,
    offset_arguments,
    suffix,
    tile,
)
from utvm_deploy.backends.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Convolution, TransposeConvolution

# Revisions that have it take groups; the columns of all channels are planned for each group.
_OF_GROUPS = "arm_nn_mat_mult_kernel_row_offset_s8_s16"
_TRANSPOSED = "arm_transpose_conv_wrapper_s8"
_REVERSED_SIZE = "arm_transpose_conv_s8_get_reverse_conv_buffer_size"


def lower_convolution(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """CONV_2D of int8 or int16."""
    attributes = op.attributes(Convolution)
    source = op.source
    weights = op.constant(1)
    _, rows, columns, channels = weights.shape
    groups, is_int16 = source.shape[3] // channels, source.dtype == "int16"
    if groups > 1 and (is_int16 or not library.has(_OF_GROUPS)):
        return f"it has {groups} groups"
    function = f"arm_convolve_wrapper_{suffix(source.dtype)}"
    window = window_of(op, (rows, columns))
    scratch_bytes = scratch.convolution(library, window, source.shape[3], groups, is_int16=is_int16)
    call, set_bias = WEIGHTED_CALL.format(function=function), ""
    bias_type = "int64" if is_int16 and not attributes.sums_in_32_bits else "int32"
    if is_int16:
        call = replaced(call, (" bias,", " &bias_data,", 1))
        set_bias = (
            f"    const cmsis_nn_bias_data bias_data = {{bias, {int(bias_type == 'int32')}}};\n"
        )
    return _weighted(
        op,
        ours,
        function,
        _shapes(op, "cmsis_nn_conv_params", window, weights.shape),
        set_bias + context(scratch_bytes) + call,
        scratch_bytes,
        bias_type,
    )


def lower_depthwise(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """DEPTHWISE_CONV_2D of int8 or int16."""
    attributes = op.attributes(Convolution)
    source = op.source
    weights = op.constant(1)
    _, rows, columns, outputs = weights.shape
    channels, is_int16 = source.shape[3], source.dtype == "int16"
    if is_int16 and attributes.sums_in_32_bits:
        return "CMSIS-NN's depthwise convolution of int16 sums up in 64 bits only"
    function = f"arm_depthwise_conv_wrapper_{suffix(source.dtype)}"
    window = window_of(op, (rows, columns))
    scratch_bytes = scratch.depthwise(library, window, channels, outputs, is_int16=is_int16)
    multiplier = f"        .ch_mult = {outputs // channels},\n"
    return _weighted(
        op,
        ours,
        function,
        _shapes(op, "cmsis_nn_dw_conv_params", window, weights.shape, multiplier),
        context(scratch_bytes) + WEIGHTED_CALL.format(function=function),
        scratch_bytes,
        "int64" if is_int16 else "int32",
    )


def lower_transpose_convolution(
    op: Operation, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """TRANSPOSE_CONV of int8."""
    attributes = op.attributes(TransposeConvolution)
    source = op.source
    if source.dtype != "int8":
        return f"no call of CMSIS-NN does {op.kind} of {source.dtype}"
    if not library.has(_REVERSED_SIZE):
        return f"this revision of CMSIS-NN has no {_REVERSED_SIZE}"
    filter_dims = outputs, rows, columns, _ = op.constant(1).shape
    sums, reversed_weights = scratch.transpose_convolution(
        library, source.shape, outputs, (rows, columns), attributes.strides
    )
    shapes = (
        "    cmsis_nn_transpose_conv_params parameters = {\n"
        f"        .stride = {tile(attributes.strides)},\n"
        f"        .padding = {tile(attributes.padding)},\n"
        f"        .dilation = {tile((1, 1))}}};\n"
        + dims("input_dims", source.shape)
        + dims("filter_dims", filter_dims)
        + dims("output_dims", op.result.shape)
    )
    second = f"scratch + {sums}, {reversed_weights}" if reversed_weights else "0, 0"
    return _weighted(
        op,
        ours,
        _TRANSPOSED,
        shapes,
        f"    const cmsis_nn_context sums = {{scratch, {sums}}};\n"
        f"    const cmsis_nn_context weights_reversed = {{{second}}};\n"
        f"    return (int32_t){_TRANSPOSED}(\n"
        "        &sums, &weights_reversed, &parameters, &scaling, &input_dims, input,\n"
        "        &filter_dims, weights, &bias_dims, bias, &output_dims, output);\n",
        sums + reversed_weights,
        wanted="    return arm_transpose_conv_s8_get_buffer_size(\n"
        "               &parameters, &input_dims, &filter_dims, &output_dims)\n"
        f"           + {_REVERSED_SIZE}(\n"
        "               &parameters, &input_dims, &filter_dims);\n",
    )


def _shapes(
    op: Operation, kind: str, window: Window, filter_dims: Sequence[int], extra: str = ""
) -> str:
    """C text of what does not differ between layers of equal shape."""
    return (
        f"    {kind} parameters = {{\n{extra}"
        f"        .stride = {tile(window.strides)},\n"
        f"        .padding = {tile((window.top, window.left))},\n"
        f"        .dilation = {tile(window.dilations)}}};\n"
        + dims("input_dims", op.source.shape)
        + dims("filter_dims", filter_dims)
        + dims("output_dims", op.result.shape)
    )


def _weighted(
    op: Operation,
    ours: KernelCall,
    function: str,
    shapes: str,
    rest: str,
    scratch_bytes: int,
    bias_type: str = "int32",
    wanted: str = "",
) -> KernelCall:
    """A call with weights; ``shapes`` and ``rest`` are C, the latter ends with the call itself."""
    attributes = op.operator.attributes
    assert isinstance(attributes, Convolution | TransposeConvolution)
    outputs = op.result.shape[3]
    multiplier, shift = quantize_multipliers(op.scales(outputs))
    bias = op.bias(outputs).astype(np.dtype(bias_type))
    return library_call(
        op,
        ours,
        function,
        (
            ConstantArgument("weights", op.constant(1)),
            ConstantArgument("bias", bias),
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
            *offset_arguments(op),
            *clamp_arguments(attributes.clamp),
        ),
        shapes + SET_OFFSETS + SET_CLAMP + SCALING + dims("bias_dims", (1, 1, 1, outputs)) + rest,
        scratch_bytes,
        shapes
        + (
            wanted
            or f"    return {function}_get_buffer_size(\n"
            "        &parameters, &input_dims, &filter_dims, &output_dims);\n"
        ),
    )
