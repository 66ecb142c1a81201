"""Operators of a QDQ model whose inputs are all constant, computed with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from utvm_deploy.frontend.qdq.operators import Array, Node


def _gemm(node: Node, left: Array, right: Array, *bias: Array) -> Array:
    turned = right.T if node.integer("transB", 0) else right
    product = node.number("alpha", 1.0) * (left.T if node.integer("transA", 0) else left) @ turned
    made: Array = product + node.number("beta", 1.0) * bias[0] if bias else product
    return made


def _concat(node: Node, *parts: Array) -> Array:
    made: Array = np.concatenate(parts, node.integer("axis", 0))
    return made


def _where(node: Node, condition: Array, yes: Array, no: Array) -> Array:
    made: Array = np.where(condition, yes, no)
    return made


#: Kind -> its value, given those of its inputs.
FOLDS: Mapping[str, Callable[..., Array]] = {
    "Add": lambda node, a, b: a + b,
    "Concat": _concat,
    "Div": lambda node, a, b: a / b,
    "Equal": lambda node, a, b: a == b,
    "Exp": lambda node, a: np.exp(a),
    "Gemm": _gemm,
    "Greater": lambda node, a, b: a > b,
    "Less": lambda node, a, b: a < b,
    "MatMul": lambda node, a, b: a @ b,
    "Max": lambda node, a, b: np.maximum(a, b),
    "Min": lambda node, a, b: np.minimum(a, b),
    "Mul": lambda node, a, b: a * b,
    "Neg": lambda node, a: -a,
    "Not": lambda node, a: ~a,
    "Pow": lambda node, a, b: a**b,
    "Relu": lambda node, a: np.maximum(a, 0),
    "Sigmoid": lambda node, a: 1 / (1 + np.exp(-a)),
    "Sqrt": lambda node, a: np.sqrt(a),
    "Sub": lambda node, a, b: a - b,
    "Tanh": lambda node, a: np.tanh(a),
    "Where": _where,
}
