"""Reductions of float32: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, ARG_MAX and ARG_MIN.

Elements are added in the order of their addresses, as in LiteRT's reference kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attributes import ArgExtremum, Mean, Reduce, Sum
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import around_axis, flags_label, label
from utvm_deploy.kernels.contract.lazy_tvm import script, te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.integers.reductions import merged_axes
from utvm_deploy.kernels.portable.schedules.float_values import largest, number, smallest
from utvm_deploy.kernels.portable.schedules.skeletons import (
    Buffers,
    DefaultLoops,
    Reduction,
    block,
    initialize_apart,
    prim_func,
)


def _product() -> Any:
    return te.comm_reducer(
        lambda found, value: found * value, lambda t: tirx.const(1, t), "product"
    )


_REDUCERS: Mapping[str, Callable[[], Any]] = {
    "mean": lambda: te.sum,
    "reduce_max": largest,
    "reduce_min": smallest,
    "reduce_prod": _product,
    "sum": lambda: te.sum,
}

#: Extrema over all axes, which begin with the first element.
_OF_ALL = ("reduce_max_all", "reduce_min_all")


@dataclass(frozen=True)
class FloatReduction(Reduction, DefaultLoops):
    """A reduction over merged dimensions."""

    function: str

    @property
    def name(self) -> str:
        axes = flags_label(self.is_reduced)
        return f"{self.function}_float_{label(self.extents)}_{axes}"

    def prim_func(self) -> Any:
        source = te.placeholder(self.extents, "float32", "input")
        if self.function in _OF_ALL:
            return self._extremum_of_all(source)
        reduce = _REDUCERS[self.function]()
        reduced = self.reduced("reduce", reduce, lambda i: source[i])
        if self.function != "mean":
            return te.create_prim_func([source, reduced])
        pairs = zip(self.extents, self.is_reduced, strict=True)
        count = math.prod(extent for extent, is_reduced in pairs if is_reduced)
        output = te.compute(self.kept, lambda *i: reduced[i] / number(count), "output")
        return te.create_prim_func([source, output])

    def _extremum_of_all(self, source: Any) -> Any:
        """An extremum that begins with the first element, as the reference does over all axes.

        So the result is not a number if that element is not; later such elements are ignored. To
        begin with infinity, and to compare with the first element afterwards, is the same.
        """
        is_max = self.function == "reduce_max_all"
        reduce = largest(-math.inf) if is_max else smallest(math.inf)
        reduced = self.reduced("reduce", reduce, lambda i: source[i])
        first = source[(0,) * len(self.extents)]

        def element(*i: Any) -> Any:
            is_beyond = reduced[i] >= first if is_max else reduced[i] <= first
            return tirx.Select(is_beyond, reduced[i], first)

        output = te.compute(self.kept, element, "output")
        return te.create_prim_func([source, output])

    def schedule(self, sch: Any, core: str) -> str:
        if self.function in ("mean", *_OF_ALL):
            *_, last = sch.get_loops(sch.get_sblock("output"))
            sch.compute_at(sch.get_sblock("reduce"), last)
        initialize_apart(sch, "reduce", loops=sum(self.is_reduced))
        return self.why


@dataclass(frozen=True)
class FloatArgument(DefaultLoops):
    """The first position of the extremum along the middle one of three dimensions.

    An element replaces the one found so far only if it compares as greater or less. So a NaN stays
    if it is the first element, and is passed over elsewhere.
    """

    extents: tuple[int, int, int]
    takes_largest: bool
    result: str

    @property
    def name(self) -> str:
        which = "max" if self.takes_largest else "min"
        return f"arg_{which}_float_{label(self.extents)}_{self.result}"

    def prim_func(self) -> Any:
        outer, length, inner = self.extents
        source = Operand("input", self.extents, "float32")
        output = Operand("output", (outer, inner), self.result)

        def body(buffers: Buffers) -> None:
            x, y = buffers["input"], buffers["output"]

            def step(i: Any, k: Any, j: Any) -> None:
                # In the first step the output has no value yet.
                found = tirx.if_then_else(k > 0, y[i, j], tirx.const(0, self.result))
                best, value = x[i, found.astype("int32"), j], x[i, k, j]
                better = value > best if self.takes_largest else value < best
                chosen = tirx.Select(better, k.astype(self.result), found)
                script.buffer_store(y, chosen, [i, j])

            block("argument", [("i", outer, "S"), ("k", length, "R"), ("j", inner, "S")], step)

        return prim_func([source, output], body)


def lower_reduction(op: Operation) -> KernelCall:
    """MEAN, SUM and the reductions to an extremum or a product."""
    a = op.operator.attributes
    assert isinstance(a, Mean | Sum | Reduce)
    function = op.kind.lower()
    if f"{function}_all" in _OF_ALL and len(a.axes) == len(op.source.shape):
        function += "_all"
    return op.call(FloatReduction(*merged_axes(op.source.shape, a.axes), function))


def lower_arg_extremum(op: Operation) -> KernelCall:
    """ARG_MAX and ARG_MIN along one axis."""
    extents = around_axis(op.source.shape, op.attributes(ArgExtremum).axis)
    return op.call(FloatArgument(extents, op.kind == "ARG_MAX", op.result.dtype))


_REDUCTIONS = ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")
FLOAT_LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), lower_arg_extremum),
    **dict.fromkeys(_REDUCTIONS, lower_reduction),
}
