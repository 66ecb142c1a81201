"""The operators of an attention become ours, so that strips never hold all of its scores.

An attention is a product of two computed tensors, factors and masks, a softmax of the last axis and
a second product of two computed tensors. Nothing else may read what they pass on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

from utvm_deploy.frontend.relax.operators import (
    constant_of,
    number_of,
    operator_name,
    our_call,
    readers_of,
    shape_of,
    with_bindings,
)

#: Operators of scores and one other operand -> ours.
_OF_TWO = {
    "relax.add": "ADD",
    "relax.subtract": "SUB",
    "relax.multiply": "MUL",
    "relax.divide": "DIV",
}
#: Scores below it may become minus infinity, as one that is added to its like does.
_FINITE = 1e38
#: What PyTorch computes after ``equal``, for zeros in rows whose scores are all minus infinity.
_ZEROS = (
    *("relax.logical_not", "relax.astype", "relax.max", "relax.astype", "relax.logical_not"),
    "relax.where",
)


def with_attention(module: Any, main: str) -> Any:
    """The module with calls of our operators for those of each attention."""
    function = module[main]
    if not function.body.blocks:
        return module
    (block,) = function.body.blocks
    readers = readers_of(block.bindings, function.body.body)
    made: dict[Any, Any] = {}
    for binding in block.bindings:
        made |= _Attention(readers, binding).calls()
    if not made:
        return module
    bindings = [
        relax.VarBinding(one.var, made[one.var]) if one.var in made else one
        for one in block.bindings
        if made.get(one.var, one) is not None
    ]
    return with_bindings(module, main, bindings)


class _Attention:
    """What is known of an attention while its operators are followed from its first product."""

    def __init__(self, readers: Mapping[Any, Sequence[Any]], first: Any) -> None:
        self._readers = readers
        self._first = first
        self._made: dict[Any, Any] = {}  # the call of each variable; None: it is not needed
        self._masks: NDArray[np.bool_] = np.zeros(1, bool)  # which may be minus infinity

    def calls(self) -> Mapping[Any, Any]:
        """Variable -> the call that makes it instead; empty if no attention begins here."""
        if not _is_product(self._first.value):
            return {}
        self._becomes(self._first.var, "BATCH_MATMUL", self._first.value.args)
        last, is_softmax = self._first.var, False
        while last is not None:
            after = self._readers[last]
            if len(after) == 2 and not is_softmax:
                last, is_softmax = self._safe_softmax(last), True
                continue
            if len(after) != 1 or after[0] is None:
                return {}
            var, call = after[0].var, after[0].value
            name = operator_name(call)
            if is_softmax and name == "relax.matmul":
                self._becomes(var, "BATCH_MATMUL", call.args)
                return self._made if _is_product(call) and call.args[0].same_as(last) else {}
            if name == "relax.reshape":
                if shape_of(call)[-2:] != shape_of(last)[-2:]:
                    return {}
                self._masks = np.broadcast_to(self._masks, shape_of(last)).reshape(shape_of(call))
            elif not isinstance(call, relax.Var):  # else it is another name of it
                if is_softmax:
                    return {}
                is_softmax = _is_softmax(call)
                if is_softmax:
                    self._becomes(var, "SOFTMAX", call.args)
                elif not self._with_other(var, call, last):
                    return {}
            last = var
        return {}

    def _becomes(self, var: Any, kind: str, operands: Sequence[Any]) -> None:
        self._made[var] = our_call(kind, operands, var.ty, {})

    def _with_other(self, var: Any, call: Any, last: Any) -> bool:
        """Whether an operator of the scores and one other operand is ours."""
        name = operator_name(call)
        if name not in (*_OF_TWO, "relax.where") or shape_of(call) != shape_of(last):
            return False
        if name in _OF_TWO:
            left, right = call.args
            is_first = left.same_as(last)
            other = right if is_first else left
            self._becomes(var, _OF_TWO[name], call.args)
            self._masks = self._masks | _masked_by(name, other, is_first=is_first)
            return isinstance(other, relax.Var | ir.GenericConst)
        if not isinstance(call.args[0], ir.GenericConst):
            return False
        chosen = call.args[0].value.numpy()
        for side, is_masked in zip(call.args[1:], (chosen, ~chosen), strict=True):
            number = number_of(side)
            if number is not None and not abs(number) < _FINITE:
                self._masks = self._masks | is_masked
        self._becomes(var, "SELECT_V2", call.args)
        return sum(number_of(side) is not None for side in call.args[1:]) == 1

    def _safe_softmax(self, scores: Any) -> Any:
        """The variable of PyTorch's softmax that makes zeros of a row of minus infinities.

        None for anything else, and if the masks may leave no score of a row. So may those that a
        model computes, or is given. Finite products give finite scores elsewhere, so it is a plain
        softmax.
        """
        found = {operator_name(one.value): one for one in self._readers[scores] if one is not None}
        if set(found) != {"relax.nn.softmax", "relax.equal"} or self._masks.all(-1).any():
            return None
        plain, chosen = found["relax.nn.softmax"], found["relax.equal"]
        if number_of(chosen.value.args[1]) != -np.inf or not _is_softmax(plain.value):
            return None
        unneeded = [plain.var]
        for name in _ZEROS:
            unneeded.append(chosen.var)
            (chosen, *others) = self._readers[chosen.var]
            if others or chosen is None or operator_name(chosen.value) != name:
                return None
        zeros, otherwise = chosen.value.args[1:]
        constant = constant_of(zeros)
        if (
            len(self._readers[plain.var]) != 1
            or not otherwise.same_as(plain.var)
            or shape_of(chosen.value) != shape_of(scores)
            or constant is None
            or constant.any()
        ):
            return None
        self._becomes(chosen.var, "SOFTMAX", plain.value.args)
        self._made |= dict.fromkeys(unneeded)
        return chosen.var


def _masked_by(name: str, other: Any, *, is_first: bool) -> NDArray[np.bool_]:
    """Which finite scores an operator may make minus infinity, by its other operand."""
    constant = constant_of(other)
    if constant is None or (name == "relax.divide" and not is_first):
        return np.ones(1, bool)  # it depends on the input
    with np.errstate(all="ignore"):
        factor = 1 / constant if name == "relax.divide" else constant
    masked: NDArray[np.bool_] = ~(np.abs(factor) < _FINITE)
    return masked


def _is_product(value: Any) -> bool:
    """Whether it multiplies matrices of float32 of equal rank, both computed."""
    if operator_name(value) != "relax.matmul":
        return False
    if any(not isinstance(one, relax.Var) or one.ty.dtype != "float32" for one in value.args):
        return False
    left, right = map(shape_of, value.args)
    return 2 <= len(left) == len(right)


def _is_softmax(value: Any) -> bool:
    """Whether it is a softmax along the last axis."""
    is_any = operator_name(value) == "relax.nn.softmax"
    return is_any and int(value.attrs.axis) in (-1, len(shape_of(value)) - 1)
