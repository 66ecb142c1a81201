"""Rewrites of the steps of optimizers, which ONNX has for training."""

from __future__ import annotations

import numpy as np

from utvm_deploy.frontend.onnx_rewrites.state import Rewriting


class _Step:
    """Arithmetic on the names of tensors of float32."""

    def __init__(self, r: Rewriting) -> None:
        self.r = r

    def number(self, name: str, default: float = 0.0) -> str:
        return self.r.constant(float(self.r.given.get(name, default)), np.float32)

    def to(self, kind: str, one: str, other: str) -> str:
        return self.r.add(kind, one, other)

    def decayed(self, gradient: str, x: str) -> str:
        """The gradient, with that of the norm."""
        norm = self.number("norm_coefficient", 0.0)
        return self.to("Add", gradient, self.to("Mul", norm, x))


def adagrad(r: Rewriting) -> bool:
    """Squares of the gradients add up, and divide the rate."""
    s, count = _Step(r), (len(r.node.input) - 2) // 3
    steps = r.cast(r.input(1), np.float32)
    decay = s.to("Mul", s.number("decay_factor"), steps)
    rate = s.to("Div", r.input(0), s.to("Add", r.constant(1, np.float32), decay))
    for i in range(count):
        x, gradient, squares = (r.input(2 + i + part * count) for part in range(3))
        whole = s.decayed(gradient, x)
        total = s.to("Add", squares, s.to("Mul", whole, whole))
        root = s.to("Add", r.add("Sqrt", total), s.number("epsilon", 1e-6))
        r.finish(s.to("Sub", x, s.to("Div", s.to("Mul", rate, whole), root)), i)
        r.finish(total, count + i)
    return True


def adam(r: Rewriting) -> bool:
    """Means of gradients and of their squares."""
    s, count = _Step(r), (len(r.node.input) - 2) // 4
    one = r.constant(1, np.float32)
    alpha, beta = s.number("alpha", 0.9), s.number("beta", 0.999)
    steps = r.cast(r.input(1), np.float32)
    rests = [s.to("Sub", one, r.add("Pow", base, steps)) for base in (alpha, beta)]
    corrected = s.to("Div", s.to("Mul", r.input(0), r.add("Sqrt", rests[1])), rests[0])
    is_first = r.add("Equal", r.input(1), r.constant(0, np.int64))
    rate = r.add("Where", is_first, r.input(0), corrected)
    for i in range(count):
        x, gradient, mean, squares = (r.input(2 + i + part * count) for part in range(4))
        whole = s.decayed(gradient, x)
        mean = s.to("Add", s.to("Mul", alpha, mean), s.to("Mul", s.to("Sub", one, alpha), whole))
        square = s.to("Mul", s.to("Sub", one, beta), s.to("Mul", whole, whole))
        squares = s.to("Add", s.to("Mul", beta, squares), square)
        root = s.to("Add", r.add("Sqrt", squares), s.number("epsilon", 1e-6))
        new = s.to("Sub", x, s.to("Div", s.to("Mul", rate, mean), root))
        after = s.to("Sub", one, s.number("norm_coefficient_post"))
        r.finish(s.to("Mul", after, new), i)
        r.finish(mean, count + i)
        r.finish(squares, 2 * count + i)
    return True


def momentum(r: Rewriting) -> bool:
    """A moving sum of gradients; Nesterov's looks one step ahead."""
    s, count = _Step(r), (len(r.node.input) - 2) // 3
    alpha = s.number("alpha")
    is_first = r.add("Equal", r.input(1), r.constant(0, np.int64))
    beta = r.add("Where", is_first, r.constant(1, np.float32), s.number("beta"))
    for i in range(count):
        x, gradient, moving = (r.input(2 + i + part * count) for part in range(3))
        whole = s.decayed(gradient, x)
        moving = s.to("Add", s.to("Mul", alpha, moving), s.to("Mul", beta, whole))
        if r.text("mode", "standard") == "nesterov":
            step = s.to("Add", whole, s.to("Mul", alpha, moving))
        else:
            step = moving
        r.finish(s.to("Sub", x, s.to("Mul", r.input(0), step)), i)
        r.finish(moving, count + i)
    return True
