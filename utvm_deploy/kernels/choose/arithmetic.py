"""Graphs that compute with the numbers of a format."""

from __future__ import annotations

import math
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
from utvm_deploy.kernels.portable.call_tir import copy_of_floats, text_of, with_fma
from utvm_deploy.kernels.portable.floats.float_elementwise import FloatOfOne, FloatOfTwo


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
    """Collects tensors, with new constants, and operators.

    Inputs and outputs of the model stay float32: each has a twin of numbers, which the operators
    read and write, and an operator that converts it.
    """

    def __init__(self, graph: Graph, own: NumberFormat) -> None:
        self._graph, self._own = graph, own
        ends = {*graph.inputs, *graph.outputs}
        self._tensors = [
            one if n in ends else self._in_format(one) for n, one in enumerate(graph.tensors)
        ]
        self._twins: dict[int, int] = {}
        made = {n for operator in graph.operators for n in operator.outputs}
        behind = 1 + max((one.source or 0 for one in graph.tensors), default=0)
        for n in (*graph.inputs, *graph.outputs):
            tensor = graph.tensors[n]
            is_needed = tensor.dtype == "float32" and (n in graph.inputs or n in made)
            if is_needed and n not in self._twins:
                twin = replace(self._in_format(tensor), name=f"{tensor.name}_numbers")
                # A position that no tensor of the file has: the reference is asked for it, too.
                self._twins[n] = self._added(replace(twin, source=behind + len(self._twins)))

    def graph(self) -> Graph:
        operators = tuple(map(self._computed, self._graph.operators))
        if all(self._is_plain(one) for one in self._graph.operators):
            raise ModelError(
                f"{self._graph.name} computes nothing in float32, so --format does not apply; it "
                "is for float models"
            )
        given = [self._converted(n, self._twins[n], 1) for n in self._graph.inputs
                 if n in self._twins]  # fmt: skip
        found = [self._converted(self._twins[n], n, 0) for n in dict.fromkeys(self._graph.outputs)
                 if n in self._twins and n not in self._graph.inputs]  # fmt: skip
        operators = (*given, *operators, *found)
        return self._graph.replaced(tensors=tuple(self._tensors), operators=operators)

    def _added(self, tensor: Tensor) -> int:
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def _in_format(self, tensor: Tensor) -> Tensor:
        if tensor.dtype != "float32":
            return tensor
        own, data = self._own, tensor.data
        if data is None:
            return replace(tensor, dtype=own.dtype)
        codes = own.encoded(data)
        lost = np.flatnonzero(np.isfinite(data) & ~np.isfinite(own.decoded(codes)))
        if lost.size:
            raise ModelError(
                f"{self._graph.name}: constant '{tensor.name}' has {data.reshape(-1)[lost[0]]:g}, "
                f"which {own.name} cannot hold; choose a format with a larger range"
            )
        return replace(tensor, dtype=own.dtype, data=codes)

    def _converted(self, source: int, result: int, number: int) -> Operator:
        """The operator that copies a tensor; parameter ``number`` of it has numbers."""
        count = math.prod(self._tensors[source].shape)
        name = f"{'to' if number else 'from'}_{self._own.name}"
        attributes = CallTir(name, text_of(copy_of_floats(count)), 0, (number,))
        return Operator("CALL_TIR", (source,), (result,), attributes, ())

    def _is_plain(self, operator: Operator) -> bool:
        """Whether an operator computes no number of float32."""
        numbers = (*operator.inputs, *operator.outputs)
        tensors = [self._graph.tensors[n] for n in numbers if n is not None]
        return operator.kind == "RESHAPE" or all(one.dtype != "float32" for one in tensors)

    def _computed(self, operator: Operator) -> Operator:
        twins = self._twins
        if self._is_plain(operator):
            inputs = (n if n is None else twins.get(n, n) for n in operator.inputs)
            outputs = (twins.get(n, n) for n in operator.outputs)
            return replace(operator, inputs=tuple(inputs), outputs=tuple(outputs))
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
            if isinstance(argument, TensorArgument):
                passed.append(twins.get(argument.tensor, argument.tensor))
            elif isinstance(argument, ConstantArgument):
                data = np.asarray(argument.data)
                name = f"{argument.name}_{len(self._tensors)}"
                made = Tensor(name, data.shape, str(data.dtype), None, data)
                passed.append(self._added(self._in_format(made)))
            else:
                function = function.specialize({parameter: argument.value})
                continue
            if str(getattr(parameter, "dtype", "")) == "float32":
                codes.append(len(passed) - 1)
        if "fma" in self._own.operations:
            function = with_fma(function)
        in_place: list[int] = []
        if isinstance(kernel, FloatOfOne | FloatOfTwo):  # whose loops read an element and write it
            in_place = [passed.index(twins.get(source, source)) for _, source in call.in_place]
        attributes = CallTir(
            kernel.name,
            text_of(function),
            call.macs,
            tuple(codes),
            origin=(self._graph, operator),
            in_place=tuple(in_place),
        )
        count = len(operator.outputs)
        return replace(
            operator,
            kind="CALL_TIR",
            inputs=tuple(passed[:-count]),
            outputs=tuple(passed[-count:]),
            attributes=attributes,
        )
