"""Pools and SOFTMAX as calls of the library."""

from __future__ import annotations

import math

from utvm_deploy.backends import (
    ConstantArgument,
    KernelCall,
    Operation,
    ScalarArgument,
    quantization_of,
    quantize_multiplier,
)
from utvm_deploy.backends.cmsis_nn import scratch
from utvm_deploy.backends.cmsis_nn.call import (
    clamp_arguments,
    context,
    dims,
    library_call,
    scalars_of,
    suffix,
    tile,
)
from utvm_deploy.backends.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Pool, Softmax

# SOFTMAX's differences to the largest element are Q5.26.
_SOFTMAX_INTEGER_BITS = 5


def lower_pool(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """AVERAGE_POOL_2D and MAX_POOL_2D of int8 or int16."""
    attributes = op.attributes(Pool)
    source = op.source
    result = op.result
    is_average = op.kind == "AVERAGE_POOL_2D"
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
        op,
        ours,
        function,
        clamp_arguments(attributes.clamp),
        body,
        scratch_bytes,
        f"    return {function}_get_buffer_size({result.shape[2]}, {channels});\n"
        if is_average
        else "",
    )


def lower_softmax(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """SOFTMAX of int8 or int16."""
    assert isinstance(op.operator.attributes, Softmax)
    source = op.source
    depth = source.shape[-1]
    rows = math.prod(source.shape[:-1])
    if op.result.dtype != source.dtype:
        return f"no call of CMSIS-NN does SOFTMAX of {source.dtype} to {op.result.dtype}"
    if source.dtype == "int16":
        return _int16_softmax(op, ours, rows, depth)
    fraction_bits = 31 - _SOFTMAX_INTEGER_BITS
    scale = op.operator.attributes.beta * quantization_of(source).scale * 2.0**fraction_bits
    multiplier, shift = quantize_multiplier(min(scale, 2.0**31 - 1.0))
    if shift < 0:
        return "CMSIS-NN has no SOFTMAX for a scale this small"
    # Differences beyond this would overflow; the library counts them as infinitely small.
    whole_range = ((1 << _SOFTMAX_INTEGER_BITS) - 1) << fraction_bits
    smallest = -math.floor(whole_range / (1 << shift))
    return library_call(
        op,
        ours,
        "arm_softmax_s8",
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


def _int16_softmax(op: Operation, ours: KernelCall, rows: int, depth: int) -> KernelCall:
    # The library looks up what the reference does, and our kernel after it: the same tables.
    tables = [a for a in ours.arguments if isinstance(a, ConstantArgument)]
    scalars = scalars_of(ours)
    return library_call(
        op,
        ours,
        "arm_softmax_s16",
        (*tables, *scalars.values()),
        "    const cmsis_nn_softmax_lut_s16 tables = {exponentials, inverses};\n"
        "    return (int32_t)arm_softmax_s16(\n"
        f"        input, {rows}, {depth}, multiplier, shift, &tables, output);\n",
        in_place=ours.in_place,
    )
