"""Lowered loops over float32 that read numbers of a format instead, and that compute with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx
from tvm.tirx import stmt as tir

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.graph.number_formats.formats import COMPARISONS, NODES, SWAPPED

_OPERATIONS = tuple(getattr(tirx, name) for name in (*NODES, *SWAPPED))
#: Calls that hand out what they are given, after the name of a dialect.
_CHOICES = ("if_then_else", "likely")


def buffer_of_numbers(buffer: Any, own: NumberFormat) -> Any:
    """The buffer of numbers in the place of a buffer of float32."""
    return tirx.decl_buffer(buffer.shape, own.dtype, buffer.name)


def with_numbers_in(body: Any, parameters: Mapping[Any, Any], own: NumberFormat) -> Any:
    """The statement over numbers: decoded where it read a float, or computed with.

    ``parameters`` are pairs of a parameter of float32 and the one of numbers that replaces it. Flat
    buffers of the statement stand for them. If the format computes, all other values of float32 are
    numbers, too, except for the remaining parameters.
    """
    return (_Computing if own.computes else _Decoding)(parameters, own).of(body)


class _Decoding:
    """Decodes what is read from buffers of numbers."""

    def __init__(self, parameters: Mapping[Any, Any], own: NumberFormat) -> None:
        self._own, self._parameters = own, parameters
        self._flat: dict[Any, Any] = {}
        self._refused: list[str] = []

    def of(self, body: Any) -> Any:
        """The whole statement; declarations come before the loops that use them."""
        declared = tvm_ffi.structural_map(body, (tir.DeclBuffer, self._redeclared))
        return tvm_ffi.structural_map(declared, (ir.TensorLoad, self._loaded))

    def _redeclared(self, declared: Any) -> Any:
        of = getattr(declared.data, "args", (None,))[0]
        if of not in self._parameters:
            return declared
        new = self._flat[declared.buffer] = buffer_of_numbers(declared.buffer, self._own)
        return tir.DeclBuffer(new, data=tirx.buffer_data(self._parameters[of]))

    def _loaded(self, load: Any) -> Any:
        if load.source not in self._flat:
            return load
        number = tirx.BufferLoad(self._flat[load.source], load.indices)
        return tirx.call_pure_extern("float32", self._own.symbol("decode"), number)


class _Computing(_Decoding):
    """Computes with numbers: expressions from the outside in, then what holds their values."""

    def of(self, body: Any) -> Any:
        declared = tvm_ffi.structural_map(
            body, ((tir.DeclBuffer, self._redeclared), (tir.AllocBuffer, self._allocated))
        )
        # The types of operands are those of float32 as long as only what is around them changed.
        computed = tvm_ffi.structural_map(
            declared, ((_OPERATIONS, self._operation), (tirx.FloatImm, self._constant),
                       (tirx.Cast, self._cast), (ir.Call, self._call)), order="pre")  # fmt: skip
        if self._refused:  # an exception does not pass through TVM unchanged
            raise CompileError(
                f"{self._refused[0]} cannot be computed in number format {self._own.name}; use a "
                "format without operations, or other operators"
            )
        variables: dict[Any, Any] = {}

        def bound(of: Any) -> None:
            if _is_float(of.var):
                variables[of.var] = tirx.Var(of.var.name, self._own.dtype)

        tvm_ffi.structural_walk(computed, ((tirx.Let, tir.Bind), bound))
        holders = (
            (ir.TensorLoad, self._loaded),
            (tirx.Var, lambda one: variables.get(one, one)),
            (tirx.Let, lambda one: tirx.Let(variables.get(one.var, one.var), one.value, one.body)),
            (tir.Bind, lambda one: tir.Bind(variables.get(one.var, one.var), one.value)),
            (tirx.Select, lambda one: tirx.Select(one.condition, one.true_value, one.false_value)),
            (ir.Call, _chosen),
            (tir.BufferStore, self._stored),
        )
        return tvm_ffi.structural_map(computed, holders)

    def _allocated(self, allocated: Any) -> Any:
        if str(allocated.buffer.dtype) != "float32":
            return allocated
        new = self._flat[allocated.buffer] = buffer_of_numbers(allocated.buffer, self._own)
        return tir.AllocBuffer(new, allocated.annotations)

    def _loaded(self, load: Any) -> Any:
        if load.source in self._flat:
            return tirx.BufferLoad(self._flat[load.source], load.indices)
        return load if str(load.source.dtype) != "float32" else self._own_call("encode", load)

    def _stored(self, store: Any) -> Any:
        if store.buffer in self._flat:
            return tir.BufferStore(self._flat[store.buffer], store.value, store.indices)
        if str(store.buffer.dtype) != "float32":
            return store
        value = tirx.call_pure_extern("float32", self._own.symbol("decode"), store.value)
        return tir.BufferStore(store.buffer, value, store.indices)

    def _own_call(self, function: str, *operands: Any, dtype: str = "") -> Any:
        return tirx.call_pure_extern(
            dtype or self._own.dtype, self._own.symbol(function), *operands
        )

    def _operation(self, node: Any) -> Any:
        if not _is_float(node.a):
            return node
        kind = type(node).__name__
        function = SWAPPED.get(kind) or NODES[kind]
        operands = (node.b, node.a) if kind in SWAPPED else (node.a, node.b)
        dtype = "bool" if function in COMPARISONS else ""
        return self._own_call(function, *operands, dtype=dtype)

    def _constant(self, constant: Any) -> Any:
        if not _is_float(constant):
            return constant
        codes = self._own.encoded(np.array([constant.value], np.float32))
        return tirx.IntImm(self._own.dtype, int(codes[0]))

    def _cast(self, cast: Any) -> Any:
        if _is_float(cast) == _is_float(cast.value):
            return cast
        if _is_float(cast):
            return self._own_call("of_integer", cast.value)
        return tirx.Cast(str(cast.ty), self._own_call("decode", cast.value, dtype="float32"))

    def _call(self, call: Any) -> Any:
        name = str(call.args[0].value) if "extern" in str(getattr(call.op, "name", "")) else ""
        is_float = any(_is_float(one) for one in (call, *call.args[bool(name) :]))
        if not is_float or name.startswith(self._own.symbol("")):
            return call
        if not name.startswith("utvm_") or not _is_float(call):
            if _short_name(call) not in _CHOICES:
                self._refused.append(name or _short_name(call))
            return call
        return self._own_call(name.removeprefix("utvm_"), *call.args[1:])


def _is_float(value: Any) -> bool:
    return str(value.ty) == "float32"


def _chosen(call: Any) -> Any:
    """A choice of what are numbers now."""
    return tirx.if_then_else(*call.args) if _short_name(call) == _CHOICES[0] else call


def _short_name(call: Any) -> str:
    return str(getattr(call.op, "name", "")).rpartition(".")[2]
