"""TVM's patterns (``tvm.relax.dpl``) as expressions over the graph that a Relax module becomes.

The import makes one of our operators of a product with constant weights, of what is added to each
channel, and of the activation (``frontend/relax/operators.py``). So a pattern of several of TVM's
operators is one operator here. Other operators of TVM become kernels without names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from utvm_deploy.backends.patterns import Expression, Op, constant, op, wildcard
from utvm_deploy.base.errors import PluginError

_MODULE = "tvm.relax.dpl"
#: What begins one of our operators -> its kinds.
_PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "relax.matmul": ("FULLY_CONNECTED",),
    "relax.nn.conv2d": ("CONV_2D", "DEPTHWISE_CONV_2D"),
}
_POOLS: Mapping[str, tuple[str, ...]] = {
    "relax.nn.avg_pool2d": ("AVERAGE_POOL_2D",),
    "relax.nn.max_pool2d": ("MAX_POOL_2D",),
}
_PER_CHANNEL = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
_RELU = "relax.nn.relu"


def is_of_tvm(given: object) -> bool:
    """Whether it is a pattern of TVM's."""
    return any(one.__module__.startswith(_MODULE) for one in type(given).__mro__)


def translated(given: Sequence[Any]) -> tuple[Any, ...]:
    """The same with expressions in the place of TVM's patterns, which may have parts in common.

    Raises PluginError that names what cannot be translated.
    """
    translation = _Translation()
    return tuple(translation.value(one) if is_of_tvm(one) else one for one in given)


class _Translation:
    """What parts of one pattern became: a part that is used twice is one expression."""

    def __init__(self) -> None:
        self._known: dict[Any, Expression] = {}

    def value(self, given: Any) -> Expression:
        """The expression of a part."""
        if given not in self._known:
            make = _PARTS.get(type(given).__name__)
            if make is None:
                raise _refused(type(given).__name__)
            self._known[given] = make(self, given)
        return self._known[given]

    def call(self, given: Any) -> Expression:
        """One of our operators, of a call and what the import joins with it."""
        name, has_relu = _name_of(given), False
        if name == _RELU:
            given, has_relu = given.args[0], True
            name = _name_of(given)
        kinds = _POOLS.get(name)
        while name in _PER_CHANNEL and type(given.args[1]).__name__ == "ConstantPattern":
            given = given.args[0]
            name = _name_of(given)
        kinds = kinds or _PRODUCTS.get(name)
        if kinds is None:
            raise _refused(name or type(given).__name__)
        made: Op = op(*kinds)(*map(self.value, given.args))
        limits = (0.0, math.inf) if has_relu else None
        return made.where(lambda one: getattr(one.operator.attributes, "limits", None) == limits)

    def either(self, given: Any) -> Expression:
        """One of two."""
        return self.value(given.left) | self.value(given.right)

    def of_type(self, given: Any) -> Expression:
        """A tensor of an element type."""
        dtype, inside = str(given.dtype), self.value(given.pattern)
        if isinstance(inside, Op):
            return inside.where(lambda one: one.result.dtype == dtype)
        return inside.where(lambda tensor: tensor.dtype == dtype)


_PARTS: Mapping[str, Callable[[_Translation, Any], Expression]] = {
    "CallPattern": _Translation.call,
    "ConstantPattern": lambda translation, given: constant(),
    "DataTypePattern": _Translation.of_type,
    "OrPattern": _Translation.either,
    "WildcardPattern": lambda translation, given: wildcard(),
}


def _name_of(given: Any) -> str:
    """The operator that a pattern calls; empty if that is not known."""
    expression = getattr(getattr(given, "op", None), "expr", None)
    return str(getattr(expression, "name", ""))


def _refused(what: str) -> PluginError:
    known = ", ".join([*_PRODUCTS, *_POOLS, _RELU, *_PER_CHANNEL])
    return PluginError(
        f"a pattern of TVM's has {what}, which is not in the imported graph; use {known}, or op() "
        "of utvm_deploy.backends"
    )
