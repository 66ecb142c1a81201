"""SVDF as a call of the library."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from utvm_deploy.backends import (
    ConstantArgument,
    KernelCall,
    Operation,
    ScalarArgument,
    quantization_of,
)
from utvm_deploy.backends.cmsis_nn.call import dims, library_call, scalars_of
from utvm_deploy.backends.cmsis_nn.library import CmsisNn
from utvm_deploy.graph.attributes import Svdf

_FUNCTION = "arm_svdf_state_s16_s8"
_INT32_BYTES = 4
_INT16, _INT8 = (f"{{{np.iinfo(kind).min}, {np.iinfo(kind).max}}}" for kind in (np.int16, np.int8))


def lower_svdf(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """SVDF of int8 with a state of int16, which the library shifts in place."""
    attributes = op.attributes(Svdf)
    source = op.source
    state = op.input(4)
    features, times = op.constant(1), op.constant(2)
    if (source.dtype, state.dtype) != ("int8", "int16"):
        return f"no call of CMSIS-NN does SVDF of {source.dtype} with a state of {state.dtype}"
    batch, (filters, inputs), memory = source.shape[0], features.shape, times.shape[1]
    units = filters // attributes.rank
    first, second = (_INT32_BYTES * batch * count for count in (filters, units))
    zero_point = ScalarArgument("input_zero_point", quantization_of(source).zero_point)
    scalars = [*scalars_of(ours).values(), zero_point]
    shapes = {
        "input": (batch, inputs, 1, 1),
        "state": (batch, filters, memory, 1),
        "feature": (filters, inputs, 1, 1),
        "time": (filters, memory, 1, 1),
        "bias": (units, 1, 1, 1),
        "output": (batch, units, 1, 1),
    }
    return library_call(
        op,
        ours,
        _FUNCTION,
        (
            ConstantArgument("features", features),
            ConstantArgument("times", times),
            ConstantArgument("bias", op.bias(units, 3)),
            *scalars,
        ),
        _body(attributes.rank, shapes, first, second),
        first + second,
        inputs=(("input", 0), ("state", 4)),
        outputs=("output", "state_after"),
        in_place=ours.in_place,
    )


def _body(
    rank: int, shapes: Mapping[str, tuple[int, int, int, int]], first: int, second: int
) -> str:
    """C: the call, after the state was moved to its place. ``first`` and ``second`` are bytes of
    scratch, for the products over time and for their sums."""
    batch, filters, memory, _ = shapes["state"]
    return (
        f"    for (int32_t i = 0; i < {batch * filters * memory}; i++) {{\n"
        "        state_after[i] = state[i];\n    }\n"
        "    const cmsis_nn_svdf_params parameters = {\n"
        f"        {rank}, input_zero_point, output_zero_point,\n"
        f"        {_INT16}, {_INT8}}};\n"
        "    const cmsis_nn_per_tensor_quant_params by_feature = {\n"
        "        feature_multiplier, feature_shift};\n"
        "    const cmsis_nn_per_tensor_quant_params by_time = {output_multiplier, output_shift};\n"
        f"    const cmsis_nn_context products = {{scratch, {first}}};\n"
        f"    const cmsis_nn_context sums = {{scratch + {first}, {second}}};\n"
        + "".join(dims(f"{name}_dims", extents) for name, extents in shapes.items())
        + f"    return (int32_t){_FUNCTION}(\n"
        "        &products, &sums, &parameters, &by_feature, &by_time, &input_dims, input,\n"
        "        &state_dims, state_after, &feature_dims, features, &time_dims, times,\n"
        "        &bias_dims, bias, &output_dims, output);\n"
    )
