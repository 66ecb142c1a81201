"""Computes the shadow of a model (``shadow.py``); only child processes load this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.allowances import allowed_steps, no_shadow
from utvm_deploy.oracle.program import Program, Tensors
from utvm_deploy.oracle.shadow import FloatGap, Shadow
from utvm_deploy.oracle.single_operators import STEPPED, SingleOperator, scaled, single_operator
from utvm_deploy.oracle.truths import DEFAULT_KERNELS, Node

#: Operators whose output means what their input means.
_SAME = ("DEQUANTIZE", "QUANTIZE")


def shadow_of(data: bytes, nodes: Sequence[Node], tensors: Sequence[Tensors]) -> Shadow:
    """Compare the operators of a file over all samples; ``tensors`` are what they made."""
    model = schema.read_model(data)
    compared, skipped, gaps = 0, Counter[str](), list[FloatGap]()
    for node in nodes:
        if not any(scaled(model.subgraphs[0].tensors[number]) for number in node.outputs):
            continue
        try:
            layer = Layer(model, node)
            made = [layer.run(known) for known in tensors]
        except NoShadow as error:
            skipped[f"{node.kind}: {error}"] += 1
            continue
        except (RuntimeError, ValueError):
            skipped[f"{node.kind}: LiteRT has no float kernel of it"] += 1
            continue
        compared += 1
        gaps += _gaps(model, node, tensors, made)
    return Shadow(compared, dict(skipped), tuple(gaps))


def _gaps(
    model: Any, node: Node, tensors: Sequence[Tensors], shadows: Sequence[Tensors]
) -> Iterator[FloatGap]:
    """The quantized outputs of an operator that are too far from their shadows."""
    for number in node.outputs:
        tensor = model.subgraphs[0].tensors[number]
        if scaled(tensor) is None:
            continue
        found = [
            _gap(tensor, node.kind, sample, truth[number], shadow[number])
            for sample, (truth, shadow) in enumerate(zip(tensors, shadows, strict=True))
            if truth[number].size
        ]
        worst = max(found, key=lambda gap: gap.steps, default=None)
        if worst is not None and worst.steps > worst.allowed:
            yield replace(worst, tensor=number)


class NoShadow(Exception):
    """There is no float computation of an operator; the text says why."""


class Layer:
    """An operator in float32; it keeps its own state, if any."""

    def __init__(self, model: Any, node: Node) -> None:
        if (why := no_shadow(node.kind, node.dtype)) is not None:
            raise NoShadow(why)
        self._tensors, self._node = model.subgraphs[0].tensors, node
        self._form: SingleOperator | None = None
        if node.kind not in _SAME:
            self._form = single_operator(model, node.position, in_float=True)
        self._program = None if self._form is None else Program(self._form.data, DEFAULT_KERNELS)

    def run(self, known: Tensors) -> Tensors:
        """The outputs of one more sample, given the tensors of the whole model."""
        if self._form is None or self._program is None:
            number = self._node.inputs[0]
            meant = scaled(self._tensors[number], (*STEPPED, schema.INT32))
            given = known[number]
            return {self._node.outputs[0]: given if meant is None else meant.real(given)}
        made = self._program.one([self._real(known, number) for number in self._form.inputs])
        pairs = zip(self._form.outputs, self._program.outputs, strict=True)
        return {number: made[place] for number, place in pairs}

    def _real(self, known: Tensors, number: int) -> Array:
        meant = scaled(self._tensors[number])
        return known[number] if meant is None else meant.real(known[number])


def _gap(tensor: Any, kind: str, sample: int, truth: Array, shadow: Array) -> FloatGap:
    """The worst element of a result."""
    meant, apart = scaled(tensor), _apart(tensor, truth, shadow)
    assert meant is not None
    at = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
    return FloatGap(
        operator=kind,
        name=(tensor.name or b"").decode("utf-8", "replace"),
        tensor=-1,
        steps=round(float(apart[at]), 2),
        allowed=round(allowed_steps(kind, truth.dtype.name, truth.shape), 1),
        sample=sample,
        element=at,
        truth=float(meant.real(truth)[at]),
        in_float=float(shadow.reshape(truth.shape)[at]),
    )


def distance(tensor: Any, truth: Array, shadow: Array) -> float:
    """How far a result of integers is from float32, in steps of the tensor's scale."""
    return float(_apart(tensor, truth, shadow).max(initial=0.0))


def _apart(tensor: Any, truth: Array, shadow: Array) -> NDArray[np.float64]:
    """The distance of each element; float32 is cut to what the integers can mean."""
    meant = scaled(tensor)
    assert meant is not None
    limits = np.iinfo(truth.dtype.name)
    steps = shadow.astype(np.float64).reshape(truth.shape) / float(meant.scales[0])
    steps = np.clip(steps + int(meant.zero_points[0]), limits.min, limits.max)
    # What is not a number has no place among the steps.
    return np.nan_to_num(np.abs(truth.astype(np.float64) - steps), nan=0.0)
