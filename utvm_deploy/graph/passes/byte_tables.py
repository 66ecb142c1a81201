"""Float arithmetic on bytes becomes a table, such as the mean and the deviation of an image.

    uint8 ──CAST──▶ float32 ──DIV 255──SUB mean──DIV deviation──▶ float32 ──QUANTIZE──▶ int8
    uint8 ──LOOKUP: 256 entries for each channel──▶ int8

Each entry is what the operators make of one byte, in the same float32 arithmetic. There are only
256 bytes, so all of them are tried, and every output byte stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.attributes import Add, Divide, Lookup, Multiply, Subtract
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.rewrite import changed_operators, compacted, consumers

KIND = "LOOKUP"

_BYTES, _INTEGERS = ("int8", "uint8"), ("int8", "uint8", "int16")
_ENTRIES = 256
_STEPS: Mapping[type, np.ufunc] = {
    Add: np.add,
    Divide: np.divide,
    Multiply: np.multiply,
    Subtract: np.subtract,
}


@dataclass(frozen=True)
class _Tables:
    """What operators up to some tensor make of each byte: [channel or 1, 256]."""

    values: Array
    axis: int | None = None  # of the channels


def tabulate_bytes(graph: Graph) -> Graph:
    """Make a table of float operators behind a tensor of bytes, up to QUANTIZE or to the last one.

    Without QUANTIZE, the tables must have no more entries than the tensor.
    """
    read = consumers(graph)
    for first, operator in enumerate(graph.operators):
        positions, tables = _chain(graph, read, first)
        last = graph.operators[positions[-1]] if positions else operator
        if len(positions) < 2 or tables is None:
            continue
        made = graph.tensors[last.outputs[0]]
        if last.kind == "QUANTIZE" or tables.values.size <= np.prod(made.shape):
            return _tabulated(graph, positions, tables)
    return graph


def _chain(
    graph: Graph, read: Mapping[int, Sequence[int]], first: int
) -> tuple[list[int], _Tables | None]:
    """The positions of operators that begin with this one, each reads only the one before."""
    tables = _begun(graph, graph.operators[first])
    positions = [] if tables is None else [first]
    kept = {*graph.outputs, *(left for _, left in graph.states)}
    while tables is not None:
        number = graph.operators[positions[-1]].outputs[0]
        readers = read.get(number, ())
        if number in kept or len(readers) != 1:
            break
        operator = graph.operators[readers[0]]
        after = _after(graph, operator, number, tables)
        if after is None:
            break
        tables, positions = after, [*positions, readers[0]]
        if operator.kind == "QUANTIZE":
            break
    return positions, tables


def _begun(graph: Graph, operator: Operator) -> _Tables | None:
    """What CAST and DEQUANTIZE of bytes make of each byte."""
    source, made = _ends(graph, operator)
    is_real = source.dtype in _BYTES and source.data is None and made.dtype == "float32"
    stored = np.arange(_ENTRIES).astype(np.uint8).view(source.dtype if is_real else np.uint8)
    if is_real and operator.kind == "CAST":
        return _Tables(stored.astype(np.float32)[None])
    if is_real and operator.kind == "DEQUANTIZE" and source.quantization is not None:
        steps = stored.astype(np.float32) - np.float32(source.quantization.zero_point)
        with np.errstate(over="ignore"):
            return _finite(_Tables((np.float32(source.quantization.scale) * steps)[None]))
    return None


def _after(graph: Graph, operator: Operator, number: int, before: _Tables) -> _Tables | None:
    """The tables behind an operator that reads a tensor; None if they are none."""
    made = graph.tensors[operator.outputs[0]]
    if operator.kind == "QUANTIZE" and made.dtype in _INTEGERS and made.quantization is not None:
        return _quantized(made, before)
    a = operator.attributes
    step = _STEPS.get(type(a))
    if step is None or made.dtype != "float32" or made.shape != graph.tensors[number].shape:
        return None
    assert isinstance(a, Add | Divide | Multiply | Subtract)
    axis, sides = before.axis, list[Array]()
    for one in operator.inputs:
        data = None if one is None else graph.tensors[one].data
        if one == number:
            sides.append(before.values)
            continue
        if data is None:
            return None
        shape = (*[1] * (len(made.shape) - data.ndim), *data.shape)
        along = [i for i, extent in enumerate(shape) if extent > 1]
        if len(along) > 1 or (along and axis not in (None, along[0])):
            return None
        axis = along[0] if along else axis
        sides.append(data.reshape(-1, 1))
    with np.errstate(all="ignore"):
        values = step(*sides)
    low, high = a.limits or (-np.inf, np.inf)
    values = np.clip(values, np.float32(low), np.float32(high))
    return _finite(_Tables(values, axis))


def _finite(tables: _Tables) -> _Tables | None:
    return tables if np.isfinite(tables.values).all() else None


def _quantized(made: Tensor, before: _Tables) -> _Tables:
    """As the reference's QUANTIZE: a division in float32, half away from zero, saturated."""
    assert made.quantization is not None
    with np.errstate(all="ignore"):
        steps = (before.values / np.float32(made.quantization.scale)).astype(np.float64)
    rounded = np.trunc(steps + np.copysign(0.5, steps)) + made.quantization.zero_point
    return replace(before, values=np.clip(rounded, *made.element.limits).astype(made.dtype))


def _ends(graph: Graph, operator: Operator) -> tuple[Tensor, Tensor]:
    """The first input, an empty one where it is absent, and the first output."""
    number = operator.inputs[0] if operator.inputs else None
    source = Tensor("", (), "") if number is None else graph.tensors[number]
    return source, graph.tensors[operator.outputs[0]]


def _tabulated(graph: Graph, positions: Sequence[int], tables: _Tables) -> Graph:
    """The graph with one LOOKUP in the place of these operators."""
    operators = [graph.operators[position] for position in positions]
    *_, last = operators
    values, axis = tables.values, tables.axis or 0
    if (values == values[0]).all():
        values, axis = values[:1], len(graph.tensors[last.outputs[0]].shape) - 1
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    made = graph.tensors[last.outputs[0]]
    constant = Tensor(f"{made.name}_table", values.shape, made.dtype, made.quantization, values)
    lookup = Operator(
        KIND,
        (operators[0].inputs[0], len(graph.tensors)),
        last.outputs,
        Lookup(max(axis, 0)),
        tuple(source for one in operators for source in one.sources),
    )
    changed = changed_operators(graph, {positions[-1]: lookup}, positions[:-1])
    return compacted(changed.replaced(tensors=(*graph.tensors, constant)))
