"""A lowered Relax module as a graph."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.relax.check import check_tensor
from utvm_deploy.frontend.relax.operators import PREFIX
from utvm_deploy.graph.attribute_values import NO_CLAMP, Limits
from utvm_deploy.graph.attributes import (
    Add,
    Attributes,
    BatchMatmul,
    Boolean,
    CallTir,
    Convolution,
    Divide,
    FullyConnected,
    Multiply,
    Pool,
    Reshape,
    Softmax,
    Subtract,
)
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.rewrite import with_own_outputs
from utvm_deploy.graph.signals.attributes import SignalIrfft, SignalRfft, SignalSpectrogram

_REDUCED = 2  # TVM's number for a block's dimension that is summed up


def macs_of(function: Any) -> int:
    """Products that are summed up: each step of a reduction that adds a product."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, blocks.append))
    return sum(map(_macs, blocks))


def _macs(block: Any) -> int:
    if not any(int(one.iter_type) == _REDUCED for one in block.iter_vars):
        return 0
    stores: list[Any] = []
    tvm_ffi.structural_walk(block.body, (tirx.stmt.BufferStore, stores.append))
    sums = (store.value for store in stores if isinstance(store.value, tirx.Add))
    if not any(isinstance(side, tirx.Mul) for value in sums for side in (value.a, value.b)):
        return 0
    return math.prod(int(one.dom.extent) for one in block.iter_vars)


def graph_of(module: Any, name: str, digest: str) -> Graph:
    """The graph of a module that ``lowered_module`` made.

    ``Tensor.source`` is the position of the binding, counted from 0; inputs come first. Raises
    ModelError if it has outputs that no operator makes.
    """
    main = module["main"]
    maker = _Maker(module)
    inputs = tuple(maker.variable(parameter) for parameter in main.params)
    for block in main.body.blocks:
        for binding in block.bindings:
            maker.bind(binding)
    outputs = maker.outputs(main.body.body)
    graph = Graph(name, tuple(maker.tensors), tuple(maker.operators), inputs, outputs, digest)
    return with_own_outputs(graph)


class _Maker:
    """Collects tensors and operators while the bindings are read in order."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._numbers: dict[Any, tuple[int, ...]] = {}  # of each variable; several of a tuple
        self._texts: dict[str, tuple[str, int]] = {}
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []

    def variable(self, var: Any) -> int:
        """The new tensor of a variable."""
        check_tensor(var.name, var.ty)
        (number,) = self._numbers[var] = (self._tensor(var.name, var.ty),)
        return number

    def bind(self, binding: Any) -> None:
        """Add the operator of a binding."""
        var, value = binding.var, binding.value
        if isinstance(value, relax.Var):
            self._numbers[var] = self._numbers[value]
        elif isinstance(value, relax.TupleGetItem):
            self._numbers[var] = (self._numbers[value.tuple_value][value.index],)
        elif isinstance(value, relax.Tuple):
            self._numbers[var] = tuple(self._operand(field) for field in value.fields)
        elif isinstance(value, ir.GenericConst):
            self._numbers[var] = (self._operand(value),)
        elif isinstance(value, ir.Call):
            self._call(var, value)
        else:
            raise UnsupportedOperator(
                f"'{var.name}' is a {type(value).__name__}; only calls of operators are supported"
            )

    def _call(self, var: Any, call: Any) -> None:
        name = call.op.name
        if name == "relax.call_tir":
            function, arguments = call.args[0], tuple(call.args[1].fields)
            attributes: Attributes = CallTir(function.name_hint, *self._text(function))
            self._operator("CALL_TIR", var, arguments, attributes)
        elif name == "relax.reshape":
            self._operator("RESHAPE", var, call.args[:1], Reshape())
        elif name == "relax.call_pure_packed":
            kind = call.args[0].global_symbol.removeprefix(PREFIX)
            if kind not in _OURS:
                raise UnsupportedOperator(
                    f"'{var.name}' is made by the packed function {call.args[0].global_symbol}, "
                    "which only the host has"
                )
            *operands, text = call.args[1:]
            self._operator(kind, var, operands, _OURS[kind](json.loads(text.value)))
        else:
            raise UnsupportedOperator(f"{name}, which makes '{var.name}', has no kernel")

    def _text(self, function: Any) -> tuple[str, int]:
        """The PrimFunc as TVM's JSON, and its products; equal functions have equal texts."""
        name = function.name_hint
        if name not in self._texts:
            plain = _plain(self._module[function].without_attr("global_symbol"))
            self._texts[name] = str(tvm.ir.save_json(plain)), macs_of(plain)
        return self._texts[name]

    def _operator(self, kind: str, var: Any, operands: Any, attributes: Attributes) -> None:
        inputs = tuple(self._operand(operand) for operand in operands)
        types = var.ty.fields if isinstance(var.ty, relax.TupleType) else (var.ty,)
        outputs = []
        for index, ty in enumerate(types):
            label = var.name if len(types) == 1 else f"{var.name}.{index}"
            check_tensor(label, ty)
            outputs.append(self._tensor(label, ty))
        self._numbers[var] = tuple(outputs)
        position = len(self.operators)
        self.operators.append(Operator(kind, inputs, tuple(outputs), attributes, (position,)))

    def _operand(self, expression: Any) -> int:
        if isinstance(expression, relax.Var):
            (number,) = self._numbers[expression]
            return number
        if not isinstance(expression, ir.GenericConst):
            raise UnsupportedOperator(f"an operand is a {type(expression).__name__}, not a tensor")
        # ascontiguousarray would give a scalar one dimension.
        data: Array = np.asarray(expression.value.numpy(), order="C")
        name = f"constant_{len(self.tensors)}"
        check_tensor(name, expression.ty)
        if data.dtype == np.bool_:
            data = data.astype(np.uint8)
        self.tensors.append(Tensor(name, data.shape, str(expression.ty.dtype), None, data))
        return len(self.tensors) - 1

    def _tensor(self, name: str, ty: Any) -> int:
        shape = tuple(int(extent) for extent in ty.shape.values)
        if math.prod(shape) == 0:
            raise ModelError(f"'{name}' of shape {shape} has no elements")
        number = len(self.tensors)
        self.tensors.append(Tensor(name, shape, str(ty.dtype), source=number))
        return number

    def outputs(self, result: Any) -> tuple[int, ...]:
        """The numbers of the model's outputs, which may be inputs or constants."""
        fields = result.fields if isinstance(result, relax.Tuple) else (result,)
        return tuple(n for field in fields for n in self._numbers_of(field))

    def _numbers_of(self, expression: Any) -> tuple[int, ...]:
        if isinstance(expression, relax.Var):
            return self._numbers[expression]
        return (self._operand(expression),)


def _plain(function: Any) -> Any:
    """The function as our schedules take it: no offsets of buffers, and a root block."""
    # TVM's kernels in plain loops, such as scatter, allow that their buffers begin anywhere.
    at_zero = {
        parameter: tirx.decl_buffer(parameter.shape, parameter.dtype, parameter.name)
        for parameter in function.params
        if isinstance(getattr(parameter, "elem_offset", None), tirx.Var)
    }
    if at_zero:
        function = function.specialize(at_zero)
    body = function.body
    if isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root":
        return function
    root = s_tir.SBlock([], [], [], "root", body)
    return tirx.PrimFunc(
        function.params, s_tir.SBlockRealize([], True, root), function.ret_type, function.attrs
    )


def _limits(given: Mapping[str, Any]) -> Limits:
    limits = given["limits"]
    return None if limits is None else (float(limits[0]), float(limits[1]))


def _convolution(given: Mapping[str, Any]) -> Convolution:
    rows, columns = given["strides"]
    down, across = given["dilations"]
    top, bottom, left, right = given["padding"]
    return Convolution(
        (rows, columns),
        (down, across),
        (top, bottom, left, right),
        NO_CLAMP,
        given["depth_multiplier"],
        limits=_limits(given),
    )


def _pool(given: Mapping[str, Any]) -> Pool:
    (height, width), (rows, columns) = given["window"], given["strides"]
    top, bottom, left, right = given["padding"]
    padding = (top, bottom, left, right)
    return Pool((height, width), (rows, columns), padding, NO_CLAMP, _limits(given))


_OURS: Mapping[str, Callable[[Mapping[str, Any]], Attributes]] = {
    "ADD": lambda _: Add(NO_CLAMP),
    "AVERAGE_POOL_2D": _pool,
    "BATCH_MATMUL": lambda _: BatchMatmul(left_turned=False, right_turned=False),
    "MAX_POOL_2D": _pool,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "DIV": lambda _: Divide(),
    "FULLY_CONNECTED": lambda given: FullyConnected(NO_CLAMP, _limits(given)),
    "MUL": lambda _: Multiply(NO_CLAMP),
    "SELECT_V2": lambda _: Boolean(),
    "SOFTMAX": lambda _: Softmax(beta=1.0),
    "SUB": lambda _: Subtract(NO_CLAMP),
    "SignalIrfft": lambda given: SignalIrfft(**given),
    "SignalRfft": lambda given: SignalRfft(**given),
    "SignalSpectrogram": lambda given: SignalSpectrogram(**given),
}
