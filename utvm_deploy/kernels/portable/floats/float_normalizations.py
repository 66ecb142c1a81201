"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION of float32."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.attributes import LocalResponse, Softmax
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.schedules.float_values import call, largest, number
from utvm_deploy.kernels.portable.schedules.skeletons import (
    DefaultLoops,
    compute_per_output,
    initialize_apart,
)

#: The least norm that L2_NORMALIZATION divides by.
_EPSILON = 1e-6


@dataclass(frozen=True)
class _FloatRows(DefaultLoops):
    """A base of kernels that have rows of ``depth`` elements."""

    rows: int
    depth: int

    what: ClassVar[str]
    #: The stages of a row, the first one first; those that reduce are also in ``reductions``.
    stages: ClassVar[tuple[str, ...]]
    reductions: ClassVar[tuple[str, ...]]

    @property
    def name(self) -> str:
        return f"{self.what}_float_{self.rows}x{self.depth}"

    @property
    def shape(self) -> tuple[int, int]:
        """Of input and output."""
        return (self.rows, self.depth)

    def source(self) -> Any:
        """The input."""
        return te.placeholder(self.shape, "float32", "input")

    def reduced(self, name: str, reduce: Any, element: Any) -> Any:
        """The stage that reduces ``element(r, k)`` to one number for each row."""
        k = te.reduce_axis((0, self.depth), name[0])
        return te.compute((self.rows,), lambda r: reduce(element(r, k), axis=k), name=name)

    def schedule(self, sch: Any, core: str) -> str:
        row, *_ = sch.get_loops(sch.get_sblock("output"))
        compute_per_output(sch, row, *reversed(self.stages))
        initialize_apart(sch, *self.reductions)
        return "generic C, one row at a time"


@dataclass(frozen=True)
class FloatSoftmax(_FloatRows):
    """SOFTMAX."""

    what: ClassVar[str] = "softmax"
    stages: ClassVar[tuple[str, ...]] = ("largest", "power", "total")
    reductions: ClassVar[tuple[str, ...]] = ("largest", "total")

    def prim_func(self) -> Any:
        source, beta = self.source(), te.placeholder((1,), "float32", "beta")
        most = self.reduced("largest", largest(), lambda r, k: source[r, k])
        power = te.compute(
            self.shape,
            lambda r, k: call("expf", (source[r, k] - most[r]) * beta[0]),
            "power",
        )
        total = self.reduced("total", te.sum, lambda r, k: power[r, k])
        output = te.compute(self.shape, lambda r, k: power[r, k] / total[r], "output")
        return te.create_prim_func([source, beta, output])


@dataclass(frozen=True)
class FloatLogSoftmax(_FloatRows):
    """LOG_SOFTMAX."""

    what: ClassVar[str] = "log_softmax"
    stages: ClassVar[tuple[str, ...]] = ("largest", "total", "logarithm")
    reductions: ClassVar[tuple[str, ...]] = ("largest", "total")

    def prim_func(self) -> Any:
        source = self.source()
        most = self.reduced("largest", largest(), lambda r, k: source[r, k])
        total = self.reduced("total", te.sum, lambda r, k: call("expf", source[r, k] - most[r]))
        logarithm = te.compute((self.rows,), lambda r: call("logf", total[r]), "logarithm")
        output = te.compute(
            self.shape, lambda r, k: source[r, k] - most[r] - logarithm[r], "output"
        )
        return te.create_prim_func([source, output])


@dataclass(frozen=True)
class FloatL2Normalization(_FloatRows):
    """L2_NORMALIZATION."""

    what: ClassVar[str] = "l2_normalization"
    stages: ClassVar[tuple[str, ...]] = ("total", "norm")
    reductions: ClassVar[tuple[str, ...]] = ("total",)

    def prim_func(self) -> Any:
        source = self.source()
        total = self.reduced("total", te.sum, lambda r, k: source[r, k] * source[r, k])

        def root(r: Any) -> Any:
            found = call("sqrtf", total[r])
            return tirx.Select(found < number(_EPSILON), number(_EPSILON), found)

        norm = te.compute((self.rows,), root, "norm")
        output = te.compute(self.shape, lambda r, k: source[r, k] / norm[r], "output")
        return te.create_prim_func([source, output])


@dataclass(frozen=True)
class FloatLocalResponse(_FloatRows):
    """LOCAL_RESPONSE_NORMALIZATION from ``radius`` elements before to ``radius - 1`` after.

    The reference leaves out the element at a distance of ``radius`` after.
    """

    radius: int

    what: ClassVar[str] = "local_response"

    @property
    def name(self) -> str:
        return f"{super().name}_{self.radius}"

    def prim_func(self) -> Any:
        source = self.source()
        bias, alpha, beta = (te.placeholder((1,), "float32", n) for n in ("bias", "alpha", "beta"))
        near = te.reduce_axis((0, 2 * self.radius), "near")

        def square(r: Any, c: Any) -> Any:
            at = c + near - self.radius
            nearest = tirx.max(tirx.min(at, self.depth - 1), 0)
            value = source[r, nearest]
            is_inside = tirx.all(at >= 0, at < self.depth)
            return te.sum(tirx.if_then_else(is_inside, value * value, number(0)), axis=near)

        total = te.compute(self.shape, square, "total")
        output = te.compute(
            self.shape,
            lambda r, c: (
                source[r, c] * call("powf", bias[0] + alpha[0] * total[r, c], number(-1) * beta[0])
            ),
            "output",
        )
        return te.create_prim_func([source, bias, alpha, beta, output])

    def schedule(self, sch: Any, core: str) -> str:
        *_, column = sch.get_loops(sch.get_sblock("output"))
        compute_per_output(sch, column, "total")
        initialize_apart(sch, "total")
        return self.why


def _rows(op: Operation) -> tuple[int, int]:
    *outer, depth = op.source.shape
    return math.prod(outer), depth


def lower_softmax(op: Operation) -> KernelCall:
    """SOFTMAX."""
    beta = np.array([op.attributes(Softmax).beta], np.float32)
    return op.call(FloatSoftmax(*_rows(op)), {"beta": beta})


def lower_log_softmax(op: Operation) -> KernelCall:
    """LOG_SOFTMAX."""
    return op.call(FloatLogSoftmax(*_rows(op)))


def lower_l2_normalization(op: Operation) -> KernelCall:
    """L2_NORMALIZATION."""
    return op.call(FloatL2Normalization(*_rows(op)))


def lower_local_response(op: Operation) -> KernelCall:
    """LOCAL_RESPONSE_NORMALIZATION."""
    a = op.attributes(LocalResponse)
    values = {"bias": a.bias, "alpha": a.alpha, "beta": a.beta}
    tables = {name: np.array([value], np.float32) for name, value in values.items()}
    radius = min(a.radius, op.source.shape[-1])
    return op.call(FloatLocalResponse(*_rows(op), radius), tables)


FLOAT_LOWERINGS: Mapping[str, Lowering] = {
    "L2_NORMALIZATION": lower_l2_normalization,
    "LOCAL_RESPONSE_NORMALIZATION": lower_local_response,
    "LOG_SOFTMAX": lower_log_softmax,
    "SOFTMAX": lower_softmax,
}
