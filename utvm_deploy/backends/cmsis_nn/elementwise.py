"""ADD, MUL, MINIMUM and MAXIMUM as calls of the library.

Its ADD and MUL repeat no side. Where a whole side is repeated, as factors of channels are for every
pixel, the library is called once for each time.
"""

from __future__ import annotations

from utvm_deploy.backends import (
    BroadcastAdd,
    BroadcastMultiply,
    KernelCall,
    Operation,
    ScalarArgument,
)
from utvm_deploy.backends.cmsis_nn.call import (
    SIDES,
    dims,
    four_extents,
    library_call,
    scalars_of,
    suffix,
)
from utvm_deploy.backends.cmsis_nn.library import CmsisNn

# What the reference shifts both sides of ADD by before it scales them.
_ADD_LEFT_SHIFT = {"int8": 20, "int16": 15}
_SIDES = ("left", "right", "output")
_ADD_SCALING = (
    "-left_zero_point, left_multiplier, left_shift, -right_zero_point,\n"
    "            right_multiplier, right_shift, {shift}"
)


def lower_sum_or_product(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """ADD and MUL of int8 or int16."""
    kernel = ours.kernel
    if not isinstance(kernel, BroadcastAdd | BroadcastMultiply):
        return f"ours is a table or shifts, not {op.kind} of two tensors"
    *outer, inner = zip(kernel.extents, kernel.left_follows, kernel.right_follows, strict=True)
    if len(outer) > 1 or not (inner[1] and inner[2]):
        return f"CMSIS-NN has no {op.kind} that repeats single elements"
    dtype, count = kernel.dtype, inner[0]
    if op.kind == "ADD":
        function = f"arm_elementwise_add_{suffix(dtype)}"
        scaling = _ADD_SCALING.format(shift=_ADD_LEFT_SHIFT[dtype])
    else:
        function = f"arm_elementwise_mul_{suffix(dtype)}"
        scaling = "-left_zero_point, -right_zero_point"
    times, sides = 1, list(_SIDES)
    if outer:
        ((times, *follow),) = outer
        follows = zip(sides, (*follow, True), strict=True)
        sides = [f"{side} + i * {count}" if moves else side for side, moves in follows]
    left, right, output = sides
    # Ours has no zero points of int16.
    names = [f"{side}_zero_point" for side in _SIDES]
    scalars = {name: ScalarArgument(name, 0) for name in names} | scalars_of(ours)
    return library_call(
        op,
        ours,
        function,
        tuple(scalars.values()),
        "    int32_t status = 0;\n"
        f"    for (int32_t i = 0; i < {times} && status == 0; i++) {{\n"
        f"        status = (int32_t){function}(\n"
        f"            {left}, {right}, {scaling},\n"
        f"            {output}, output_zero_point, output_multiplier, output_shift, low, high,\n"
        f"            {count});\n"
        "    }\n"
        "    return status;\n",
        inputs=SIDES,
        # Elements are read before they are written.
        in_place=ours.in_place,
    )


def lower_extremum(op: Operation, ours: KernelCall, library: CmsisNn) -> KernelCall | str:
    """MINIMUM and MAXIMUM of int8, which the library repeats by itself."""
    names = ("left", "right", "output")
    tensors = (*(op.input(i) for i in (0, 1)), op.result)
    if tensors[2].dtype != "int8":
        return f"no call of CMSIS-NN does {op.kind} of {tensors[2].dtype}"
    shapes = ""
    for name, tensor in zip(names, tensors, strict=True):
        extents = four_extents(tensor.shape)
        if extents is None:
            return f"no call of CMSIS-NN does {op.kind} of more than four dimensions"
        shapes += dims(f"{name}_dims", extents)
    function = f"arm_{op.kind.lower()}_s8"
    return library_call(
        op,
        ours,
        function,
        (),
        f"{shapes}    const cmsis_nn_context context = {{0, 0}};\n"
        f"    return (int32_t){function}(\n"
        "        &context, left, &left_dims, right, &right_dims, output, &output_dims);\n",
        inputs=SIDES,
    )
