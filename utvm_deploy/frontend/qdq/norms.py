"""Normalizations of a QDQ model, in float32: int8 has too few steps for a variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from utvm_deploy.frontend.qdq.functions import Chain, chain
from utvm_deploy.frontend.qdq.job import Emitter, Job
from utvm_deploy.frontend.qdq.operators import Array
from utvm_deploy.frontend.qdq.values import FLOAT, Quantized, channels_last, stored_axis

#: A parameter -> the same in a shape that spreads over the activation.
Shaped: TypeAlias = Callable[[Array], Array]


def layer_norm(job: Job) -> Quantized:
    """LayerNormalization over the dimensions from ``axis`` on; RMSNormalization keeps the mean."""
    made = Chain(job, job.store.plain(job.quantized(0)))
    rank = len(made.x.shape)
    first = job.node.integer("axis", -1) % rank
    axes = tuple(range(first, rank))
    is_centred = job.node.kind == "LayerNormalization"
    result = _normalized(made, made.x, axes, job.node.number("epsilon", 1e-5), is_centred)
    return _scaled(made, result, lambda data: data)


def instance_norm(job: Job) -> Quantized:
    """InstanceNormalization: each channel of each sample."""
    made = chain(job)
    rank = len(made.x.shape)
    axes = tuple(sorted(stored_axis(a, rank, made.x.is_last) for a in range(2, rank)))
    result = _normalized(made, made.x, axes, job.node.number("epsilon", 1e-5))
    return _scaled(made, result, lambda data: _by_channel(data, made.x))


def group_norm(job: Job) -> Quantized:
    """GroupNormalization: groups of neighbouring channels of each sample."""
    made, node = chain(job), job.node
    x, groups = made.x, node.integer("num_groups", 1)
    batch, channels, *spatial = x.shape
    if groups < 1 or channels % groups:
        raise node.damaged(f"{channels} channels do not fall into {groups} groups")
    size = int(np.prod(spatial))
    split, axes = (batch, groups, channels // groups * size), (2,)
    if x.is_last:
        split, axes = (batch, size, groups, channels // groups), (1, 3)  # type: ignore[assignment]
    apart = Quantized(job.store.reshaped(x, split, made.name()), split, False)
    result = _normalized(made, apart, axes, node.number("epsilon", 1e-5))
    stored = channels_last(x.shape) if x.is_last else x.shape
    whole = Quantized(job.store.reshaped(result, stored, made.name()), x.shape, x.is_last)

    def spread(data: Array) -> Array:
        each = np.repeat(data, channels // groups) if data.size == groups else data
        return _by_channel(each, x)

    return _scaled(made, whole, spread)


def batch_norm(job: Job) -> Quantized:
    """BatchNormalization with constant statistics: a product and a sum."""
    made, node = chain(job), job.node
    if node.integer("training_mode", 0):
        raise node.unsupported("it is in training; export the model for inference")
    scale, bias, mean, variance = (
        np.asarray(job.constant(i, "statistics").real, np.float64) for i in range(1, 5)
    )
    factor = scale / np.sqrt(variance + node.number("epsilon", 1e-5))
    grown = made.binary("MUL", made.x, _by_channel(factor, made.x))
    return made.binary("ADD", grown, _by_channel(bias - mean * factor, made.x))


def _normalized(
    made: Chain, x: Quantized, axes: tuple[int, ...], epsilon: float, is_centred: bool = True
) -> Quantized:
    """(x - mean) / sqrt(variance + epsilon); ``axes`` are the file's."""
    centred = made.binary("SUB", x, _mean(made, x, axes)) if is_centred else x
    variance = _mean(made, made.binary("MUL", centred, centred), axes)
    root = made.apply("RSQRT", made.binary("ADD", variance, epsilon))
    return made.binary("MUL", centred, root)


def _mean(made: Chain, x: Quantized, axes: tuple[int, ...]) -> Quantized:
    store, name = made.job.store, made.name()
    stored = tuple(1 if a in axes else n for a, n in enumerate(store.stored(x)))
    numbers = [x.tensor, store.numbers(axes, f"{name}_axes")]
    shape = (stored[0], stored[-1], *stored[1:-1]) if x.is_last else stored
    return store.apply("MEAN", numbers, name, shape, FLOAT, is_last=x.is_last, KeepDims=True)


def _scaled(made: Chain, x: Quantized, shaped: Shaped) -> Quantized:
    """x * scale + bias, of the operator's arguments 1 and 2, either of which may be absent."""
    job = made.job
    if job.has(1):
        x = made.binary("MUL", x, shaped(np.asarray(job.constant(1, "scale").real)))
    if job.has(2):
        x = made.binary("ADD", x, shaped(np.asarray(job.constant(2, "bias").real)))
    return x


def _by_channel(data: Array, x: Quantized) -> Array:
    """One number for each channel, in the order of the file."""
    row = data.reshape(-1)
    return row if x.is_last else row.reshape(1, -1, *[1] * (len(x.shape) - 2))


EMITTERS: Mapping[str, Emitter] = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "RMSNormalization": layer_norm,
}
FLOAT_ONLY = frozenset(EMITTERS)
