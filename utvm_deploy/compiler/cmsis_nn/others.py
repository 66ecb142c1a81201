"""Pools, SOFTMAX, PAD and SVDF as calls of the library."""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.compiler.cmsis_nn import scratch
from utvm_deploy.compiler.cmsis_nn.call import (
    CLAMP,
    clamp_arguments,
    context,
    dims,
    four_extents,
    library_call,
    pointer,
    scalars_of,
    suffix,
    tile,
)
from utvm_deploy.compiler.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Pad, Pool, Softmax, Svdf
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.operands import (
    bias_of_position,
    constant_of,
    input_of,
    output_of,
    quantization_of,
)
from utvm_deploy.kernels.quantize import quantize_multiplier

# SOFTMAX's differences to the largest element are Q5.26.
_SOFTMAX_INTEGER_BITS = 5


def lower_pool(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """AVERAGE_POOL_2D and MAX_POOL_2D of int8 or int16."""
    attributes = operator.attributes
    assert isinstance(attributes, Pool)
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    is_average = operator.kind == "AVERAGE_POOL_2D"
    function = f"arm_{'avgpool' if is_average else 'max_pool'}_{suffix(source.dtype)}"
    top, _, left, _ = attributes.padding
    channels = source.shape[3]
    scratch_bytes = scratch.average_pool(library, channels) if is_average else 0
    body = (
        "    const cmsis_nn_pool_params parameters = {\n"
        f"        .stride = {tile(attributes.strides)},\n"
        f"        .padding = {tile((top, left))},\n"
        "        .activation = {.min = low, .max = high}};\n"
        + dims("input_dims", source.shape)
        + dims("filter_dims", (1, *attributes.window, 1))
        + dims("output_dims", result.shape)
        + context(scratch_bytes)
        + f"    return (int32_t){function}(\n"
        "        &context, &parameters, &input_dims, input, &filter_dims, &output_dims, output);\n"
    )
    return library_call(
        graph,
        operator,
        ours,
        function,
        (
            pointer(source.dtype, "input"),
            *CLAMP,
            pointer(source.dtype, "output", is_const=False),
        ),
        clamp_arguments(attributes.clamp),
        body,
        scratch_bytes,
        f"    return {function}_get_buffer_size({result.shape[2]}, {channels});\n"
        if is_average
        else "",
    )


def lower_softmax(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """SOFTMAX of int8 or int16."""
    assert isinstance(operator.attributes, Softmax)
    _, source = input_of(graph, operator, 0)
    depth = source.shape[-1]
    rows = math.prod(source.shape[:-1])
    if source.dtype == "int16":
        return _wide_softmax(graph, operator, ours, rows, depth)
    fraction_bits = 31 - _SOFTMAX_INTEGER_BITS
    scale = operator.attributes.beta * quantization_of(source).scale * 2.0**fraction_bits
    multiplier, shift = quantize_multiplier(min(scale, 2.0**31 - 1.0))
    if shift < 0:
        return "CMSIS-NN has no SOFTMAX for a scale this small"
    # Differences beyond this would overflow; the library counts them as infinitely small.
    whole_range = ((1 << _SOFTMAX_INTEGER_BITS) - 1) << fraction_bits
    smallest = -math.floor(whole_range / (1 << shift))
    return library_call(
        graph,
        operator,
        ours,
        "arm_softmax_s8",
        (
            pointer("int8", "input"),
            *("int32_t multiplier", "int32_t shift", "int32_t smallest"),
            pointer("int8", "output", is_const=False),
        ),
        (
            ScalarArgument("multiplier", multiplier),
            ScalarArgument("shift", shift),
            ScalarArgument("smallest", smallest),
        ),
        f"    arm_softmax_s8(input, {rows}, {depth}, multiplier, shift, smallest, output);\n"
        "    return 0;\n",
        # A row is read whole before its first element is written, and then element by element.
        in_place=ours.in_place,
    )


def _wide_softmax(
    graph: Graph, operator: Operator, ours: KernelCall, rows: int, depth: int
) -> KernelCall:
    # The library looks up what the reference does, and our kernel after it: the same tables.
    tables = [a for a in ours.arguments if isinstance(a, ConstantArgument)]
    scalars = scalars_of(ours)
    return library_call(
        graph,
        operator,
        ours,
        "arm_softmax_s16",
        (
            pointer("int16", "input"),
            *(pointer("int16", table.name) for table in tables),
            *(f"int32_t {name}" for name in scalars),
            pointer("int16", "output", is_const=False),
        ),
        (*tables, *scalars.values()),
        "    const cmsis_nn_softmax_lut_s16 tables = {exponentials, inverses};\n"
        "    return (int32_t)arm_softmax_s16(\n"
        f"        input, {rows}, {depth}, multiplier, shift, &tables, output);\n",
        in_place=ours.in_place,
    )


def lower_pad(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """PAD of int8."""
    attributes = operator.attributes
    assert isinstance(attributes, Pad)
    _, source = input_of(graph, operator, 0)
    extents = four_extents(source.shape)
    if extents is None or len(source.shape) > len(extents) or source.dtype != "int8":
        return "no call of CMSIS-NN pads more than four dimensions, or other types than int8"
    paddings = ((0, 0),) * (len(extents) - len(source.shape)) + attributes.paddings
    before, after = zip(*paddings, strict=True)
    return library_call(
        graph,
        operator,
        ours,
        "arm_pad_s8",
        (pointer("int8", "input"), "int32_t value", pointer("int8", "output", is_const=False)),
        (ScalarArgument("value", quantization_of(source).zero_point),),
        dims("input_dims", extents)
        + dims("before", before)
        + dims("after", after)
        + "    return (int32_t)arm_pad_s8(\n"
        "        input, output, (int8_t)value, &input_dims, &before, &after);\n",
    )


def lower_svdf(
    graph: Graph, operator: Operator, ours: KernelCall, library: CmsisNn
) -> KernelCall | str:
    """SVDF of int8 with a state of int16, which the library shifts in its place."""
    attributes = operator.attributes
    assert isinstance(attributes, Svdf)
    _, source = input_of(graph, operator, 0)
    _, state = input_of(graph, operator, 4)
    features, times = constant_of(graph, operator, 1), constant_of(graph, operator, 2)
    if (source.dtype, state.dtype) != ("int8", "int16"):
        return f"no call of CMSIS-NN does SVDF of {source.dtype} with a state of {state.dtype}"
    batch, (filters, inputs), memory = source.shape[0], features.shape, times.shape[1]
    units = filters // attributes.rank
    first, second = (4 * batch * count for count in (filters, units))
    scalars = scalars_of(ours)
    scalars["input_zero_point"] = ScalarArgument(
        "input_zero_point", quantization_of(source).zero_point
    )
    limits = [np.iinfo(kind) for kind in (np.int16, np.int8)]
    low_high = [f"{{{kind.min}, {kind.max}}}" for kind in limits]
    body = (
        f"    for (int32_t i = 0; i < {batch * filters * memory}; i++) {{\n"
        "        state_after[i] = state[i];\n    }\n"
        "    const cmsis_nn_svdf_params parameters = {\n"
        f"        {attributes.rank}, input_zero_point, output_zero_point,\n"
        f"        {', '.join(low_high)}}};\n"
        "    const cmsis_nn_per_tensor_quant_params by_feature = {\n"
        "        feature_multiplier, feature_shift};\n"
        "    const cmsis_nn_per_tensor_quant_params by_time = {output_multiplier, output_shift};\n"
        f"    const cmsis_nn_context products = {{scratch, {first}}};\n"
        f"    const cmsis_nn_context sums = {{scratch + {first}, {second}}};\n"
        + dims("input_dims", (batch, inputs, 1, 1))
        + dims("state_dims", (batch, filters, memory, 1))
        + dims("feature_dims", (filters, inputs, 1, 1))
        + dims("time_dims", (filters, memory, 1, 1))
        + dims("bias_dims", (units, 1, 1, 1))
        + dims("output_dims", (batch, units, 1, 1))
        + "    return (int32_t)arm_svdf_state_s16_s8(\n"
        "        &products, &sums, &parameters, &by_feature, &by_time, &input_dims, input,\n"
        "        &state_dims, state_after, &feature_dims, features, &time_dims, times,\n"
        "        &bias_dims, bias, &output_dims, output);\n"
    )
    return library_call(
        graph,
        operator,
        ours,
        "arm_svdf_state_s16_s8",
        (
            pointer("int8", "input"),
            pointer("int16", "state"),
            pointer("int8", "features"),
            pointer("int16", "times"),
            pointer("int32", "bias"),
            *(f"int32_t {name}" for name in scalars),
            pointer("int8", "output", is_const=False),
            pointer("int16", "state_after", is_const=False),
        ),
        (
            ConstantArgument("features", features),
            ConstantArgument("times", times),
            ConstantArgument("bias", bias_of_position(graph, operator, units, 3)),
            *scalars.values(),
        ),
        body,
        first + second,
        inputs=(0, 4),
        in_place=ours.in_place,
    )
