"""Kernels for Relax operators that TVM leaves to its own runtime: sorts and scans.

An element's rank is the number of elements that come before it. So a sort takes as many steps as
the square of the sorted axis, but no stack and no branches. Equal elements keep their order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tvm import te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


def _order(x: Any, axis: int, is_descending: bool) -> Any:
    """For each place along ``axis``, the index of the element that a stable sort puts there."""
    extent = x.shape[axis]

    def along(indices: Any, index: Any) -> list[Any]:
        return [*indices[:axis], index, *indices[axis + 1 :]]

    other = te.reduce_axis((0, extent), name="other")
    one = te.reduce_axis((0, extent), name="one")

    def rank(*indices: Any) -> Any:
        mine, its = x(*indices), x(*along(indices, other))
        is_before = its > mine if is_descending else its < mine
        is_equal = tirx.all(its == mine, other < indices[axis])
        return te.sum(tirx.Cast("int32", tirx.any(is_before, is_equal)), axis=[other])

    ranks = te.compute(x.shape, rank, name="ranks")

    # The largest index, so that NaN, which has no rank, does not lead outside of the tensor.
    def place(*indices: Any) -> Any:
        is_here = ranks(*along(indices, one)) == tirx.Cast("int32", indices[axis])
        found = tirx.Select(is_here, tirx.Cast("int32", one), tirx.const(0, "int32"))
        return te.max(found, axis=[one])

    return te.compute(x.shape, place, name="order")


def _sorted(x: Any, order: Any, axis: int) -> Any:
    return te.compute(
        order.shape, lambda *i: x(*i[:axis], order(*i), *i[axis + 1 :]), name="sorted"
    )


def _axis(x: Any, axis: int | None) -> int:
    return int(axis or 0) % len(x.shape)


def sort(builder: Any, call: Any) -> Any:
    """``relax.sort``."""
    a = call.attrs

    def make(x: Any) -> Any:
        axis = _axis(x, a.axis)
        return _sorted(x, _order(x, axis, bool(a.descending)), axis)

    return builder.call_te(make, call.args[0], primfunc_name_hint="sort")


def argsort(builder: Any, call: Any) -> Any:
    """``relax.argsort``."""
    a = call.attrs

    def make(x: Any) -> Any:
        return topi.cast(_order(x, _axis(x, a.axis), bool(a.descending)), str(a.dtype))

    return builder.call_te(make, call.args[0], primfunc_name_hint="argsort")


def topk(builder: Any, call: Any) -> Any:
    """``relax.topk``: values, indices or both."""
    a = call.attrs

    def make(x: Any) -> Any:
        axis = _axis(x, a.axis)
        count = int(a.k) if int(a.k) > 0 else int(x.shape[axis])
        order = _order(x, axis, bool(a.largest))
        shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
        first = te.compute(shape, lambda *i: order(*i), name="first")
        values, indices = _sorted(x, first, axis), topi.cast(first, str(a.dtype))
        made = {"both": [values, indices], "values": values, "indices": indices}
        return made[str(a.ret_type)]

    return builder.call_te(make, call.args[0], primfunc_name_hint="topk")


def _scan(name: str, combine: Any, identity: int) -> Callable[[Any, Any], Any]:
    """What makes the kernel of a scan: each element is combined with the result before it."""

    def scan(builder: Any, call: Any) -> Any:
        a = call.attrs
        dtype, is_exclusive = str(call.ty.dtype), bool(a.exclusive)

        def make(x: Any) -> Any:
            given = topi.reshape(x, [math.prod(map(int, x.shape))]) if a.axis is None else x
            axis = _axis(given, a.axis)
            return _scanned(given, axis, dtype, (combine, identity, is_exclusive), name)

        return builder.call_te(make, call.args[0], primfunc_name_hint=name)

    return scan


def _scanned(x: Any, axis: int, dtype: str, how: tuple[Any, int, bool], name: str) -> Any:
    combine, identity, is_exclusive = how
    shape = [int(extent) for extent in x.shape]
    extent = shape[axis]

    def body(ins: Any, outs: Any) -> Any:
        with IRBuilder() as builder:
            source, result = (T.buffer_proxy(one) for one in (ins[0], outs[0]))
            # A loop of one step more, so that a single dimension has loops round its scan, too.
            with T.grid(1, *shape[:axis], *shape[axis + 1 :]) as found:
                _, *others = [found] if isinstance(found, tirx.Var) else found

                def at(place: Any) -> tuple[Any, ...]:
                    return (*others[:axis], place, *others[axis:])

                def value(place: Any) -> Any:
                    return tirx.Cast(dtype, source[at(place)])

                zero = tirx.const(0, "int64")
                result[at(zero)] = tirx.const(identity, dtype) if is_exclusive else value(zero)
                with T.serial(0, extent - 1) as step:
                    here = step + 1
                    result[at(here)] = combine(
                        result[at(step)], value(step if is_exclusive else here)
                    )
            return builder.get()

    return te.extern(
        [x.shape],
        [x],
        body,
        name=name,
        dtype=dtype,
        in_buffers=[tirx.decl_buffer(x.shape, x.dtype, "given")],
        out_buffers=[tirx.decl_buffer(x.shape, dtype, name)],
    )


#: Operator -> what makes its kernel, for ``relax.transform.LegalizeOps``.
SORTS_AND_SCANS: Mapping[str, Callable[[Any, Any], Any]] = {
    "relax.sort": sort,
    "relax.argsort": argsort,
    "relax.topk": topk,
    "relax.cumsum": _scan("cumsum", operator.add, 0),
    "relax.cumprod": _scan("cumprod", operator.mul, 1),
}
