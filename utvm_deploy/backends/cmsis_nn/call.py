"""What all calls of the library share: its structs as C text, its arguments, and their order."""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.backends import (
    Argument,
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    Operation,
    ScalarArgument,
    TensorArgument,
)

_HEADER = "arm_nnfunctions.h"

#: The inputs of an operator of two tensors: names in C, and numbers.
SIDES = (("left", 0), ("right", 1))
# The structs want pointers to writable tables, which the library only reads.
SCALING = (
    "    const cmsis_nn_per_channel_quant_params scaling = {\n"
    "        (int32_t *)multiplier, (int32_t *)shift};\n"
)
SET_OFFSETS = (
    "    parameters.input_offset = input_offset;\n    parameters.output_offset = output_offset;\n"
)
SET_CLAMP = "    parameters.activation.min = low;\n    parameters.activation.max = high;\n"
WEIGHTED_CALL = (
    "    return (int32_t){function}(\n"
    "        &context, &parameters, &scaling, &input_dims, input, &filter_dims, weights,\n"
    "        &bias_dims, bias, &output_dims, output);\n"
)


def library_call(
    op: Operation,
    ours: KernelCall,
    function: str,
    arguments: Sequence[Argument],
    body: str,
    scratch_bytes: int = 0,
    wanted: str = "",
    *,
    inputs: Sequence[tuple[str, int]] = (("input", 0),),
    outputs: Sequence[str] = ("output",),
    in_place: tuple[tuple[int, int], ...] = (),
) -> KernelCall:
    """A call of ``function`` whose ``inputs`` come first and whose ``outputs`` come last.

    ``body`` and ``wanted`` are a ``LibraryKernel``'s. They use the names of all arguments.
    """
    made = op.operator.outputs
    parameters = (
        *(pointer(op.input(number).dtype, name) for name, number in inputs),
        *map(_declared, arguments),
        *(
            pointer(op.graph.tensors[position].dtype, name, is_const=False)
            for name, position in zip(outputs, made, strict=True)
        ),
    )
    kernel = LibraryKernel(
        f"cmsis_nn_{ours.kernel.name}", function, _HEADER, parameters, body, scratch_bytes, wanted
    )
    first = (op.argument(number) for _, number in inputs)
    passed = (*first, *arguments, *map(TensorArgument, made))
    return KernelCall(kernel, passed, in_place, ours.macs)


def _declared(argument: Argument) -> str:
    """The parameter for a table or a number."""
    if isinstance(argument, ConstantArgument):
        return pointer(argument.data.dtype.name, argument.name)
    assert isinstance(argument, ScalarArgument)
    return f"int32_t {argument.name}"


def scalars_of(ours: KernelCall) -> dict[str, ScalarArgument]:
    """The numbers that our own kernel takes, by their names."""
    return {a.name: a for a in ours.arguments if isinstance(a, ScalarArgument)}


def offset_arguments(op: Operation) -> tuple[Argument, ...]:
    """For ``SET_OFFSETS``."""
    source, result = op.ends
    return (
        ScalarArgument("input_offset", -source.zero_point),
        ScalarArgument("output_offset", result.zero_point),
    )


def clamp_arguments(clamp: tuple[int, int]) -> tuple[Argument, ...]:
    """For ``SET_CLAMP``."""
    return ScalarArgument("low", clamp[0]), ScalarArgument("high", clamp[1])


def pointer(dtype: str, name: str, *, is_const: bool = True) -> str:
    """A parameter that points to elements of ``dtype``."""
    return f"{'const ' if is_const else ''}{dtype}_t *{name}"


def suffix(dtype: str) -> str:
    """How the library's names of functions end for activations of ``dtype``."""
    return "s16" if dtype == "int16" else "s8"


def context(scratch_bytes: int) -> str:
    """``context``: the scratch, or none."""
    buffer = f"scratch, {scratch_bytes}" if scratch_bytes else "0, 0"
    return f"    const cmsis_nn_context context = {{{buffer}}};\n"


def dims(name: str, extents: Sequence[int]) -> str:
    """The variable ``name``, with four extents."""
    n, h, w, c = extents
    return f"    const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};\n"


def tile(rows_and_columns: Sequence[int]) -> str:
    """An initializer."""
    rows, columns = rows_and_columns
    return f"{{.w = {columns}, .h = {rows}}}"


def four_extents(shape: Sequence[int]) -> tuple[int, ...] | None:
    """A shape with ones in front; None if four do not hold it."""
    extents = list(shape)
    while len(extents) > 4 and extents[0] == 1:
        extents.pop(0)
    return None if len(extents) > 4 else (1,) * (4 - len(extents)) + tuple(extents)
