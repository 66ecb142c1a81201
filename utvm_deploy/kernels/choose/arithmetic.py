"""Graphs that compute with the numbers of a format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.graph.attributes import CallTir
from utvm_deploy.graph.check import place_of
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    LibraryKernel,
    TensorArgument,
    is_native,
)
from utvm_deploy.kernels.portable.call_tir import text_of


def with_arithmetic(graph: Graph) -> Graph:
    """The graph whose tensors of float32 are numbers of its format, except for its ends.

    Each operator of float32 becomes ``CALL_TIR``: its portable kernel, computed with numbers. A
    graph without a format that computes stays as it is. Raises UnsupportedOperator for states, and
    for operators whose portable kernel is a C routine; ModelError for a graph without float32.
    """
    own = graph.number_format
    if own is None or not own.computes:
        return graph
    if graph.states:
        raise UnsupportedOperator(
            f"{graph.name} keeps states between runs, which cannot be numbers of {own.name}; use a "
            "format without operations"
        )
    return _Maker(graph, own).graph()


class _Maker:
    """Collects tensors, with new constants, and operators."""

    def __init__(self, graph: Graph, own: NumberFormat) -> None:
        self._graph, self._own = graph, own
        self._plain = {*graph.inputs, *graph.outputs}
        views = [one for one in graph.operators if one.kind == "RESHAPE"]
        for view in (*views, *reversed(views)):  # views have one type at both ends
            ends = {n for n in (view.inputs[0], *view.outputs) if n is not None}
            self._plain |= ends if ends & self._plain else set()
        self._tensors = [self._in_format(n, one) for n, one in enumerate(graph.tensors)]

    def graph(self) -> Graph:
        operators = tuple(map(self._computed, self._graph.operators))
        if operators == self._graph.operators:
            raise ModelError(
                f"{self._graph.name} computes nothing in float32, so --format does not apply; it "
                "is for float models"
            )
        return self._graph.replaced(tensors=tuple(self._tensors), operators=operators)

    def _in_format(self, number: int, tensor: Tensor) -> Tensor:
        if tensor.dtype != "float32" or number in self._plain:
            return tensor
        data = None if tensor.data is None else self._own.encoded(tensor.data)
        return replace(tensor, dtype=self._own.dtype, data=data)

    def _computed(self, operator: Operator) -> Operator:
        numbers = (*operator.inputs, *operator.outputs)
        tensors = [self._graph.tensors[n] for n in numbers if n is not None]
        if operator.kind == "RESHAPE" or all(one.dtype != "float32" for one in tensors):
            return operator
        call = lower(self._graph, operator)
        kernel = call.kernel
        if isinstance(kernel, LibraryKernel) or is_native(kernel):
            raise UnsupportedOperator(
                f"{place_of(self._graph, operator)}, cannot be computed in number format "
                f"{self._own.name}; use a format without operations"
            )
        function = kernel.prim_func()
        passed: list[int] = []
        codes: list[int] = []
        for parameter, argument in zip(function.params, call.arguments, strict=True):
            position = len(passed)
            if isinstance(argument, TensorArgument):
                passed.append(argument.tensor)
            elif isinstance(argument, ConstantArgument):
                data = np.asarray(argument.data)
                name = f"{argument.name}_{len(self._tensors)}"
                made = Tensor(name, data.shape, str(data.dtype), None, data)
                passed.append(len(self._tensors))
                self._tensors.append(self._in_format(len(self._tensors), made))
            else:
                function = function.specialize({parameter: argument.value})
                continue
            is_float = str(getattr(parameter, "dtype", "")) == "float32"
            if is_float and passed[-1] not in self._plain:
                codes.append(position)
        attributes = CallTir(kernel.name, text_of(function), call.macs, tuple(codes))
        count = len(operator.outputs)
        return replace(
            operator, kind="CALL_TIR", inputs=tuple(passed[:-count]), attributes=attributes
        )
