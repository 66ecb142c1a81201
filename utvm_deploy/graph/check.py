"""The verifier: what every graph must fulfil, run after import and after each pass.

Kernels and the arena planner rely on this instead of checking again.
"""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.attributes import (
    ArgExtremum,
    BatchMatmul,
    CallTir,
    Convolution,
    FullyConnected,
    Gather,
    OfMixedTypes,
    OfOneType,
    Softmax,
    TransposeConvolution,
)
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.shapes import shapes_of
from utvm_deploy.graph.signals.attributes import Signal

_MOVABLE = {"int8", "int16", "uint8", "int32", "int64", "float32", "bool"}
_BOUNDARY = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool", "float32")
_CONVERTED = ("int8", "uint8", "int16", "int32")
_COMPUTED = ("int8", "int16")
_POSITIONS = ("int32", "int64")
_OF_BOOLEANS = ("REDUCE_ALL", "REDUCE_ANY")
_FLOAT_INPUT, _FLOAT_OUTPUT = "QUANTIZE", "DEQUANTIZE"


def check_graph(graph: Graph) -> None:
    """Raise ModelError, naming operator and tensor, if the graph is not well formed."""
    _check_numbers(graph)
    defined = _check_inputs(graph)
    for operator in graph.operators:
        where = f"{place_of(graph, operator)},"
        for number in (i for i in operator.inputs if i is not None):
            tensor = graph.tensors[number]
            if number not in defined and tensor.data is None:
                raise ModelError(
                    f"{where} reads '{tensor.name}' before any operator has made it "
                    "(variables and loops are not supported)"
                )
        for number in operator.outputs:
            tensor = graph.tensors[number]
            if number in defined or tensor.data is not None:
                raise ModelError(f"{where} makes '{tensor.name}', which has a value already")
            defined.add(number)
        _check_shapes(graph, operator, where)
        _check_types(graph, operator, where)
    _check_outputs(graph, defined)


def place_of(graph: Graph, operator: Operator) -> str:
    """An operator in a message: its position in the file, its kind, and the tensors it makes."""
    position = operator.sources[0] if operator.sources else graph.operators.index(operator)
    made = ", ".join(f"'{graph.tensors[i].name}'" for i in operator.outputs)
    return f"operator {position} ({operator.kind}), which makes {made}"


def _check_numbers(graph: Graph) -> None:
    """Every tensor number is one."""
    count = len(graph.tensors)
    numbers = [*graph.inputs, *graph.outputs, *(i for pair in graph.states for i in pair)]
    for operator in graph.operators:
        numbers += [i for i in operator.inputs if i is not None]
        numbers += operator.outputs
        if not operator.outputs:
            raise ModelError(f"an operator {operator.kind} makes nothing")
    for number in numbers:
        if not 0 <= number < count:
            raise ModelError(f"tensor {number} is used, but there are only {count}")


def _check_inputs(graph: Graph) -> set[int]:
    if not graph.inputs:
        raise ModelError("the model has no inputs")
    defined: set[int] = set()
    for number in graph.inputs:
        tensor = graph.tensors[number]
        if tensor.data is not None:
            raise ModelError(f"model input '{tensor.name}' is a constant")
        if number in defined:
            raise ModelError(f"model input '{tensor.name}' is listed twice")
        _check_boundary(graph, tensor, "input")
        defined.add(number)
    first = graph.found_states
    for found, left in graph.states:
        one, other = graph.tensors[found], graph.tensors[left]
        if found in defined or one.data is not None:
            raise ModelError(f"state '{one.name}' has a value already")
        if (one.shape, one.dtype, one.quantization) != (
            other.shape,
            other.dtype,
            other.quantization,
        ):
            raise ModelError(f"state '{one.name}' becomes '{other.name}', which is another tensor")
        if found in first:  # an operator makes the others
            defined.add(found)
    return defined


def _check_outputs(graph: Graph, defined: set[int]) -> None:
    if not graph.outputs:
        raise ModelError("the model has no outputs")
    made = defined - set(graph.inputs)
    seen: set[int] = set()
    for number in graph.outputs:
        tensor = graph.tensors[number]
        if number not in made:
            raise ModelError(f"model output '{tensor.name}' is not made by any operator")
        if number in seen:
            raise ModelError(f"model output '{tensor.name}' is listed twice")
        _check_boundary(graph, tensor, "output")
        seen.add(number)


def _check_boundary(graph: Graph, tensor: Tensor, what: str) -> None:
    if tensor.dtype not in _BOUNDARY:
        raise ModelError(
            f"model {what} '{tensor.name}' is {tensor.dtype}; only {', '.join(_BOUNDARY)} are "
            f"supported: convert with inference_{what}_type int8 (utvm docs quantization)"
        )
    # Relax modules and front ends have plain integers; of other files, int8 means real numbers.
    is_plain = any(
        isinstance(operator.attributes, CallTir | Signal) for operator in graph.operators
    )
    if tensor.dtype == "int8" and (tensor.quantization or not is_plain):
        _check_per_tensor(tensor, f"model {what}")


def _check_shapes(graph: Graph, operator: Operator, where: str) -> None:
    try:
        shapes = shapes_of(graph, operator)
    except ModelError as exc:
        raise ModelError(f"{where} has wrong shapes: {exc}") from exc
    if len(shapes) != len(operator.outputs):
        raise ModelError(f"{where} has {len(operator.outputs)} outputs instead of {len(shapes)}")
    for number, shape in zip(operator.outputs, shapes, strict=True):
        tensor = graph.tensors[number]
        if tensor.shape != shape:
            raise ModelError(
                f"{where} computes the shape {shape}, but the file says {tensor.shape}"
            )


def _check_types(graph: Graph, operator: Operator, where: str) -> None:
    """int8 or int16, except for conversions, weights, biases, and operators that only move."""
    if isinstance(operator.attributes, OfOneType):
        _check_moved(graph, operator.inputs + operator.outputs, where)
        return
    if isinstance(operator.attributes, Gather):
        _check_moved(graph, (operator.inputs[0], *operator.outputs), where)
        positions = _dtype(graph, operator.inputs[1])
        if positions not in _POSITIONS:
            raise ModelError(f"{where} gathers by positions of {positions or 'nothing'}")
        return
    if isinstance(operator.attributes, OfMixedTypes | Signal):
        return
    if operator.kind in _OF_BOOLEANS:
        return
    if works_in_float(graph, operator):
        _check_floats(graph, operator, where)
        return
    weighted = isinstance(operator.attributes, Convolution | FullyConnected | TransposeConvolution)
    # What is not converted is of the first input's type throughout.
    first = _dtype(graph, operator.inputs[0])
    types: tuple[str, ...] = (first,) if first in _COMPUTED else _COMPUTED
    if operator.kind in (_FLOAT_INPUT, _FLOAT_OUTPUT):
        types = _CONVERTED
    if isinstance(operator.attributes, Softmax):
        types = _COMPUTED
    for position, number in enumerate(operator.inputs):
        if number is None:
            continue
        tensor = graph.tensors[number]
        if operator.kind == _FLOAT_INPUT and tensor.dtype == "float32":
            continue
        if weighted and position > 0:
            _check_weights(tensor, position, where, ("int64",) if first == "int16" else ())
            continue
        by_bytes = isinstance(operator.attributes, BatchMatmul) and position == 1
        _check_quantized(tensor, where, (*_COMPUTED, "int4") if by_bytes else types)
    for number in operator.outputs:
        tensor = graph.tensors[number]
        if operator.kind == _FLOAT_OUTPUT:
            if tensor.dtype != "float32":
                raise ModelError(f"{where} must make float32, not {tensor.dtype}")
        elif isinstance(operator.attributes, ArgExtremum):
            if tensor.dtype not in _POSITIONS:
                raise ModelError(f"{where} must make int32 or int64, not {tensor.dtype}")
        else:
            _check_quantized(tensor, where, types)


def works_in_float(graph: Graph, operator: Operator) -> bool:
    """Whether an operator reads or makes float32, conversions from and to integers aside."""
    numbers = (*operator.inputs, *operator.outputs)
    return operator.kind not in (_FLOAT_INPUT, _FLOAT_OUTPUT) and any(
        _dtype(graph, number) == "float32" for number in numbers
    )


def _check_floats(graph: Graph, operator: Operator, where: str) -> None:
    """No operand is quantized."""
    for number in (*operator.inputs, *operator.outputs):
        if number is not None and graph.tensors[number].dtype in _COMPUTED:
            tensor = graph.tensors[number]
            raise ModelError(
                f"{where} works on '{tensor.name}', which is {tensor.dtype}, not float32"
            )


def _check_moved(graph: Graph, numbers: Sequence[int | None], where: str) -> None:
    """One element type that has a C name; its meaning does not matter."""
    types = {_dtype(graph, number) for number in numbers if number is not None}
    own = graph.number_format
    if len(types) != 1 or not types <= (_MOVABLE | {own.dtype} if own else _MOVABLE):
        raise ModelError(f"{where} moves {', '.join(sorted(types))}")


def _dtype(graph: Graph, number: int | None) -> str:
    return "" if number is None else graph.tensors[number].dtype


def _check_weights(tensor: Tensor, position: int, where: str, wide: Sequence[str]) -> None:
    expected, what = (("int8", "int4"), "weights") if position == 1 else (("int32", *wide), "bias")
    if tensor.dtype not in expected or tensor.data is None:
        needed = " or ".join(expected)
        raise ModelError(f"{where} needs constant {what} of {needed}, but '{tensor.name}' is not")
    if position == 1 and tensor.quantization is None:
        raise ModelError(f"{where} has weights '{tensor.name}' without a scale")


def _check_quantized(tensor: Tensor, where: str, types: Sequence[str]) -> None:
    if tensor.dtype not in types:
        raise ModelError(
            f"{where} works on '{tensor.name}', which is {tensor.dtype}, not {' or '.join(types)}"
        )
    _check_per_tensor(tensor, where)


def _check_per_tensor(tensor: Tensor, where: str) -> None:
    q = tensor.quantization
    if q is None or len(q.scales) != 1 or len(q.zero_points) != 1:
        raise ModelError(f"{where} '{tensor.name}' must have one scale and one zero point")
