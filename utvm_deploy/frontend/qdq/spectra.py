"""Fourier transforms of a QDQ model: a front end in float32 before quantized layers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.frontend.qdq.job import Emitter, Job
from utvm_deploy.frontend.qdq.operators import Array, Node, QdqModel
from utvm_deploy.frontend.qdq.values import FLOAT, Quantized
from utvm_deploy.graph.signals.fft_plan import Transform

#: Our attribute of an STFT whose squared amounts are wanted.
_POWER = "is_power"
_NOT_REAL = (
    "only whole onesided transforms of real samples along the axis before the last are supported"
)


def stft(job: Job) -> Quantized:
    """STFT of real samples, by a custom operator that is ours."""
    node = job.node
    x = job.store.plain(job.quantized(0))
    step = int(job.constant(1, "frame step").data.reshape(-1)[0])
    if job.has(3):
        size = int(job.constant(3, "frame length").data.reshape(-1)[0])
    else:
        size = int(job.constant(2, "window").data.size)
    window = np.ones(size)
    if job.has(2):
        window = np.asarray(job.constant(2, "window").real).reshape(-1)
    is_real = len(x.shape) == 2 or x.shape[2:] == (1,)
    if not is_real or not node.integer("onesided", 1) or window.size != size:
        raise node.unsupported(_NOT_REAL)
    if step < 1:
        raise node.unsupported(f"a frame step of {step} is not supported; choose one from 1 on")
    return _frames(job, x, x.shape[:2], window, step)


def dft(job: Job) -> Quantized:
    """DFT of real samples: one frame without a window."""
    node = job.node
    x = job.store.plain(job.quantized(0))
    *batch, size, parts = x.shape
    # An attribute before version 20, and an input since.
    axis = node.integer("axis", -2)
    if job.has(2):
        axis = int(job.constant(2, "axis").data.reshape(-1)[0])
    length = int(job.constant(1, "length").data.reshape(-1)[0]) if job.has(1) else size
    is_real = parts == 1 and axis % len(x.shape) == len(batch) and length == size
    if not is_real or not node.integer("onesided", 0) or node.integer("inverse", 0):
        raise node.unsupported(_NOT_REAL)
    return _frames(job, x, (math.prod(batch), size), np.ones(size), 1)


def _frames(
    job: Job, x: Quantized, signals: tuple[int, ...], window: Array, step: int
) -> Quantized:
    """The transforms of all frames of some signals; ``signals`` is their number and length."""
    (batch, samples), size, name = signals, window.size, job.name
    if not Transform(size, size).is_fast:
        raise job.node.unsupported(
            f"frames of {size} samples are not supported; choose an even number whose half has no "
            "other factors than 2, 3 and 5"
        )
    is_power = job.node.integer(_POWER, 0)
    bins = size // 2 + 1 if is_power else size + 2
    signal = job.store.reshaped(x, (batch, samples), f"{name}_signal")
    numbers = [signal, job.store.operand(window, FLOAT, f"{name}_window")]
    shape = (batch, (samples - size) // step + 1, bins)
    options: dict[str, Any] = {"fft_length": size, "frame_step": step, _POWER: is_power}
    made = job.store.apply("SignalSpectrogram", numbers, name, shape, FLOAT, **options)
    return Quantized(job.store.reshaped(made, job.shape, f"{name}_pairs"), job.shape, False)


def with_power(model: QdqModel) -> QdqModel:
    """The model with DFT or STFT, its square and the sum of both parts as one node."""
    makers = {node.outputs[0]: node for node in model.nodes if node.outputs}
    reads = Counter(name for node in model.nodes for name in node.inputs)
    reads.update(model.outputs)
    gone: set[str] = set()
    changed: dict[str, Node] = {}
    for node in model.nodes:
        square = makers.get(node.inputs[0]) if node.kind == "ReduceSum" else None
        spectrum = makers.get(square.inputs[0]) if square and _is_square(square, model) else None
        if spectrum is None or square is None or spectrum.kind not in EMITTERS:
            continue
        # The square reads the spectrum once by Pow, and twice by Mul.
        is_alone = reads[square.outputs[0]] == 1
        is_alone &= reads[spectrum.outputs[0]] == (1 if square.kind == "Pow" else 2)
        axes = node.integers("axes", ())
        if len(node.inputs) > 1 and node.inputs[1] in model.constants:
            axes = tuple(int(axis) for axis in model.constants[node.inputs[1]].reshape(-1))
        last = len(model.shapes[spectrum.outputs[0]]) - 1
        if is_alone and axes in ((-1,), (last,)):
            gone |= {square.outputs[0], spectrum.outputs[0]}
            attributes = {**spectrum.attributes, _POWER: 1}
            changed[node.outputs[0]] = replace(
                spectrum, outputs=node.outputs, attributes=attributes
            )
    nodes = (changed.get(n.outputs[0], n) for n in model.nodes if n.outputs[0] not in gone)
    return replace(model, nodes=tuple(nodes)) if changed else model


def _is_square(node: Node, model: QdqModel) -> bool:
    if node.kind == "Mul":
        return node.inputs[0] == node.inputs[1]
    power = model.constants.get(node.inputs[1]) if node.kind == "Pow" else None
    return power is not None and power.size == 1 and float(power.reshape(-1)[0]) == 2.0


EMITTERS: Mapping[str, Emitter] = {"DFT": dft, "STFT": stft}
FLOAT_ONLY = frozenset(EMITTERS)
