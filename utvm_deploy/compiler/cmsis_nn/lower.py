"""Operator -> call of CMSIS-NN, for the operators and shapes that it covers.

Every function here gives the reason where the library has no function for the case; then our own
kernel does it. Offsets and multipliers are those of TFLite, which the library was made for; only
its fully connected layers round unlike LiteRT's reference kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from utvm_deploy.compiler.cmsis_nn import scratch
from utvm_deploy.compiler.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Add, Convolution, FullyConnected, Pad, Pool, Softmax
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.operands import (
    bias_of,
    constant_of,
    effective_scales,
    input_of,
    output_of,
    quantization_of,
    why_only_generic,
)
from utvm_deploy.kernels.quantize import (
    fold_input_offset,
    quantize_multiplier,
    quantize_multipliers,
)
from utvm_deploy.kernels.window import Window

_HEADER = "arm_nnfunctions.h"
# The library counts rows, columns and channels in 16 bits.
_LARGEST_EXTENT = 0xFFFF
# What the reference shifts both sides of ADD by before it scales them.
_ADD_LEFT_SHIFT = 20
# SOFTMAX's differences to the largest element are Q5.26.
_SOFTMAX_INTEGER_BITS = 5

_INPUT = "const int8_t *input"
_OUTPUT = "int8_t *output"
_TABLES = ("const int8_t *weights", "const int32_t *bias")
_PER_CHANNEL = ("const int32_t *multiplier", "const int32_t *shift")
_CLAMP = ("int32_t low", "int32_t high")
_OFFSETS = ("int32_t input_offset", "int32_t output_offset")
# The structs want pointers to writable tables, which the library only reads.
_SCALING = (
    "    const cmsis_nn_per_channel_quant_params scaling = {\n"
    "        (int32_t *)multiplier, (int32_t *)shift};\n"
)
_SET_OFFSETS = (
    "    parameters.input_offset = input_offset;\n    parameters.output_offset = output_offset;\n"
)
_SET_CLAMP = "    parameters.activation.min = low;\n    parameters.activation.max = high;\n"
_WEIGHTED_CALL = (
    "    return (int32_t){function}(\n"
    "        &context, &parameters, &scaling, &input_dims, input, &filter_dims, weights,\n"
    "        &bias_dims, bias, &output_dims, output);\n"
)


def lower_cmsis_nn(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """The library's call that does what ``ours`` does, or in a phrase why there is none."""
    lowering = _LOWERINGS.get(operator.kind)
    if lowering is None:
        return f"no call of CMSIS-NN does {operator.kind}"
    why = why_only_generic(graph, operator)
    if why:
        return why
    tensors = [graph.tensors[i] for i in (*operator.inputs, *operator.outputs) if i is not None]
    if any(extent > _LARGEST_EXTENT for tensor in tensors for extent in tensor.shape):
        return f"CMSIS-NN has no {operator.kind} beyond {_LARGEST_EXTENT:,} elements a side"
    call = lowering(graph, operator, ours, library)
    if isinstance(call, KernelCall):
        assert isinstance(call.kernel, LibraryKernel)
        if not library.has(call.kernel.function):
            return f"this revision of CMSIS-NN has no {call.kernel.function}"
    return call


def _convolution(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    attributes = operator.attributes
    assert isinstance(attributes, Convolution)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    is_depthwise = operator.kind == "DEPTHWISE_CONV_2D"
    rows, columns = weights.shape[1:3]
    channels, outputs = source.shape[3], result.shape[3]
    window = Window.of(
        source.shape,
        result.shape,
        (rows, columns),
        attributes.strides,
        attributes.dilations,
        attributes.padding,
    )
    if is_depthwise:
        function, kind, extra = "arm_depthwise_conv_wrapper_s8", "cmsis_nn_dw_conv_params", ""
        extra = f"        .ch_mult = {outputs // channels},\n"
        filter_dims = (1, rows, columns, outputs)
        scratch_bytes = scratch.depthwise(library, window, channels, outputs)
    else:
        function, kind, extra = "arm_convolve_wrapper_s8", "cmsis_nn_conv_params", ""
        filter_dims = (outputs, rows, columns, channels)
        scratch_bytes = scratch.convolution(library, window, channels)
    shapes = (
        f"    {kind} parameters = {{\n{extra}"
        f"        .stride = {_tile(window.strides)},\n"
        f"        .padding = {_tile((window.top, window.left))},\n"
        f"        .dilation = {_tile(window.dilations)}}};\n"
        + _dims("input_dims", source.shape)
        + _dims("filter_dims", filter_dims)
        + _dims("output_dims", result.shape)
    )
    multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
    return _call(
        graph,
        operator,
        ours,
        function,
        (_INPUT, *_TABLES, *_PER_CHANNEL, *_OFFSETS, *_CLAMP, _OUTPUT),
        (
            ConstantArgument("weights", weights),
            ConstantArgument("bias", bias_of(graph, operator, outputs)),
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
            *_offset_arguments(graph, operator),
            *_clamp_arguments(attributes.clamp),
        ),
        shapes
        + _SET_OFFSETS
        + _SET_CLAMP
        + _SCALING
        + _dims("bias_dims", (1, 1, 1, outputs))
        + _context(scratch_bytes)
        + _WEIGHTED_CALL.format(function=function),
        scratch_bytes,
        f"{shapes}    return {function}_get_buffer_size(\n"
        "        &parameters, &input_dims, &filter_dims, &output_dims);\n",
    )


def _fully_connected(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    attributes = operator.attributes
    assert isinstance(attributes, FullyConnected)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    weights = constant_of(graph, operator, 1)
    outputs, inputs = weights.shape
    batch = int(np.prod(result.shape)) // outputs
    scales = quantization_of(input_of(graph, operator, 1)[1]).scales
    multipliers: tuple[Argument, ...]
    if len(scales) > 1:
        function, parameters, scaling = (
            "arm_fully_connected_per_channel_s8",
            _PER_CHANNEL,
            _SCALING,
        )
        multiplier, shift = quantize_multipliers(effective_scales(graph, operator, outputs))
        multipliers = (
            ConstantArgument("multiplier", multiplier),
            ConstantArgument("shift", shift),
        )
    else:
        function, parameters, scaling = (
            "arm_fully_connected_s8",
            ("int32_t multiplier", "int32_t shift"),
            "    const cmsis_nn_per_tensor_quant_params scaling = {multiplier, shift};\n",
        )
        pair = quantize_multiplier(effective_scales(graph, operator, outputs)[0])
        multipliers = (ScalarArgument("multiplier", pair[0]), ScalarArgument("shift", pair[1]))
    bias = bias_of(graph, operator, outputs)
    sums: list[Argument] = []
    context = _context(0)
    if library.has_mve:
        # The Helium kernel wants the input's offset folded into the bias, by the caller.
        zero_point = quantization_of(source).zero_point
        sums = [ConstantArgument("kernel_sums", fold_input_offset(bias, weights, zero_point))]
        context = (
            "    const cmsis_nn_context context = {"
            f"(int32_t *)kernel_sums, {outputs * np.dtype(np.int32).itemsize}}};\n"
        )
    shapes = _dims("filter_dims", (inputs, 1, 1, outputs))
    # The table is no scratch, so the library may ask for its bytes without asking for too much.
    table_bytes = outputs * np.dtype(np.int32).itemsize if library.has_mve else 0
    return _call(
        graph,
        operator,
        ours,
        function,
        (
            _INPUT,
            *_TABLES,
            *(["const int32_t *kernel_sums"] if sums else []),
            *parameters,
            *_OFFSETS,
            *_CLAMP,
            _OUTPUT,
        ),
        (
            ConstantArgument("weights", weights),
            ConstantArgument("bias", bias),
            *sums,
            *multipliers,
            *_offset_arguments(graph, operator),
            *_clamp_arguments(attributes.clamp),
        ),
        "    cmsis_nn_fc_params parameters = {.filter_offset = 0};\n"
        + shapes
        + _SET_OFFSETS
        + _SET_CLAMP
        + scaling
        + _dims("input_dims", (batch, 1, 1, inputs))
        + _dims("bias_dims", (1, 1, 1, outputs))
        + _dims("output_dims", (batch, 1, 1, outputs))
        + context
        + _WEIGHTED_CALL.format(function=function),
        0,
        f"{shapes}    return arm_fully_connected_s8_get_buffer_size(&filter_dims)"
        f" - {table_bytes};\n",
    )


def _pool(graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    attributes = operator.attributes
    assert isinstance(attributes, Pool)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    is_average = operator.kind == "AVERAGE_POOL_2D"
    function = "arm_avgpool_s8" if is_average else "arm_max_pool_s8"
    top, _, left, _ = attributes.padding
    channels = source.shape[3]
    scratch_bytes = scratch.average_pool(library, channels) if is_average else 0
    body = (
        "    const cmsis_nn_pool_params parameters = {\n"
        f"        .stride = {_tile(attributes.strides)},\n"
        f"        .padding = {_tile((top, left))},\n"
        "        .activation = {.min = low, .max = high}};\n"
        + _dims("input_dims", source.shape)
        + _dims("filter_dims", (1, *attributes.window, 1))
        + _dims("output_dims", result.shape)
        + _context(scratch_bytes)
        + f"    return (int32_t){function}(\n"
        "        &context, &parameters, &input_dims, input, &filter_dims, &output_dims, output);\n"
    )
    return _call(
        graph,
        operator,
        ours,
        function,
        (_INPUT, *_CLAMP, _OUTPUT),
        _clamp_arguments(attributes.clamp),
        body,
        scratch_bytes,
        f"    return {function}_get_buffer_size({result.shape[2]}, {channels});\n"
        if is_average
        else "",
    )


def _add(graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    assert isinstance(operator.attributes, Add)
    sides = [input_of(graph, operator, i)[1] for i in (0, 1)]
    _, result = output_of(graph, operator)
    if any(side.shape != result.shape for side in sides):
        return "CMSIS-NN has no ADD that broadcasts"
    # Ours takes the same numbers under the same names.
    given = {a.name: a for a in ours.arguments if isinstance(a, ScalarArgument)}
    scaling = [
        given[f"{side}_{field}"]
        for side in ("left", "right", "output")
        for field in ("zero_point", "multiplier", "shift")
    ]
    left, right = (TensorArgument(input_of(graph, operator, i)[0]) for i in (0, 1))
    count = int(np.prod(result.shape))
    body = (
        "    return (int32_t)arm_elementwise_add_s8(\n"
        "        left, right, -left_zero_point, left_multiplier, left_shift, -right_zero_point,\n"
        f"        right_multiplier, right_shift, {_ADD_LEFT_SHIFT}, output, output_zero_point,\n"
        f"        output_multiplier, output_shift, low, high, {count});\n"
    )
    call = _call(
        graph,
        operator,
        ours,
        "arm_elementwise_add_s8",
        (
            "const int8_t *left",
            "const int8_t *right",
            *(f"int32_t {scalar.name}" for scalar in scaling),
            *_CLAMP,
            _OUTPUT,
        ),
        (*scaling, given["low"], given["high"]),
        body,
        first=(left, right),
        # Elements are read before they are written.
        in_place=ours.in_place,
    )
    return call


def _softmax(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    assert isinstance(operator.attributes, Softmax)
    _, source = input_of(graph, operator, 0)
    fraction_bits = 31 - _SOFTMAX_INTEGER_BITS
    scale = operator.attributes.beta * quantization_of(source).scale * 2.0**fraction_bits
    multiplier, shift = quantize_multiplier(min(scale, 2.0**31 - 1.0))
    if shift < 0:
        return "CMSIS-NN has no SOFTMAX for a scale this small"
    # Differences beyond this would overflow; the library counts them as infinitely small.
    whole_range = ((1 << _SOFTMAX_INTEGER_BITS) - 1) << fraction_bits
    smallest = -math.floor(whole_range / (1 << shift))
    depth = source.shape[-1]
    rows = int(np.prod(source.shape[:-1], dtype=np.int64))
    body = (
        f"    arm_softmax_s8(input, {rows}, {depth}, multiplier, shift, smallest, output);\n"
        "    return 0;\n"
    )
    return _call(
        graph,
        operator,
        ours,
        "arm_softmax_s8",
        (_INPUT, "int32_t multiplier", "int32_t shift", "int32_t smallest", _OUTPUT),
        (
            ScalarArgument("multiplier", multiplier),
            ScalarArgument("shift", shift),
            ScalarArgument("smallest", smallest),
        ),
        body,
        # A row is read whole before its first element is written, and then element by element.
        in_place=ours.in_place,
    )


def _pad(graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    attributes = operator.attributes
    assert isinstance(attributes, Pad)
    _, source = input_of(graph, operator, 0)
    missing = 4 - len(source.shape)
    if missing < 0 or source.dtype != "int8":
        return "no call of CMSIS-NN pads more than four dimensions, or other types than int8"
    paddings = ((0, 0),) * missing + attributes.paddings
    before, after = zip(*paddings, strict=True)
    body = (
        _dims("input_dims", (1,) * missing + source.shape)
        + _dims("before", before)
        + _dims("after", after)
        + "    return (int32_t)arm_pad_s8(\n"
        "        input, output, (int8_t)value, &input_dims, &before, &after);\n"
    )
    return _call(
        graph,
        operator,
        ours,
        "arm_pad_s8",
        (_INPUT, "int32_t value", _OUTPUT),
        (ScalarArgument("value", quantization_of(source).zero_point),),
        body,
    )


def _call(
    graph: Graph,
    operator: Operator,
    ours: KernelCall,
    function: str,
    parameters: Sequence[str],
    arguments: Sequence[Argument],
    body: str,
    scratch_bytes: int = 0,
    wanted: str = "",
    *,
    first: Sequence[Argument] = (),
    in_place: tuple[tuple[int, int], ...] = (),
) -> KernelCall:
    """A call whose inputs come first and whose output comes last."""
    inputs = first or (TensorArgument(input_of(graph, operator, 0)[0]),)
    output = TensorArgument(output_of(graph, operator)[0])
    kernel = LibraryKernel(
        f"cmsis_nn_{ours.kernel.name}",
        function,
        _HEADER,
        tuple(parameters),
        body,
        scratch_bytes,
        wanted,
    )
    assert len(parameters) == len(inputs) + len(arguments) + 1
    return KernelCall(kernel, (*inputs, *arguments, output), in_place, ours.macs)


def _offset_arguments(graph: Graph, operator: Operator) -> tuple[Argument, ...]:
    source, result = input_of(graph, operator, 0)[1], output_of(graph, operator)[1]
    return (
        ScalarArgument("input_offset", -quantization_of(source).zero_point),
        ScalarArgument("output_offset", quantization_of(result).zero_point),
    )


def _clamp_arguments(clamp: tuple[int, int]) -> tuple[Argument, ...]:
    return ScalarArgument("low", clamp[0]), ScalarArgument("high", clamp[1])


def _context(scratch_bytes: int) -> str:
    buffer = f"scratch, {scratch_bytes}" if scratch_bytes else "0, 0"
    return f"    const cmsis_nn_context context = {{{buffer}}};\n"


def _dims(name: str, extents: Sequence[int]) -> str:
    n, h, w, c = extents
    return f"    const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};\n"


def _tile(rows_and_columns: Sequence[int]) -> str:
    rows, columns = rows_and_columns
    return f"{{.w = {columns}, .h = {rows}}}"


_Lowering = Callable[[Graph, Operator, KernelCall, CmsisNn], KernelCall | str]

_LOWERINGS: Mapping[str, _Lowering] = {
    "ADD": _add,
    "AVERAGE_POOL_2D": _pool,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "FULLY_CONNECTED": _fully_connected,
    "MAX_POOL_2D": _pool,
    "PAD": _pad,
    "SOFTMAX": _softmax,
}
