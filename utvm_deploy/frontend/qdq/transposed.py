"""Transposed convolutions of a QDQ model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from utvm_deploy.frontend.qdq.job import Emitter, Job
from utvm_deploy.frontend.qdq.operators import Array
from utvm_deploy.frontend.qdq.values import Pending, Quantized, Storage
from utvm_deploy.frontend.qdq.weighted import (
    VALID,
    from_image,
    has_int8_weights,
    image,
    image_shape,
    moves,
    weights_and_bias,
    weights_of,
    window,
)


def transposed_convolution(job: Job) -> Quantized:
    """ConvTranspose over one or two dimensions: all that it makes, cut to what is wanted."""
    node, store = job.node, job.store
    x = image(store, store.last(job.quantized(0)))
    weights, scales = weights_of(job, 1)
    if weights.ndim not in (3, 4):
        spatial = weights.ndim - 2
        raise node.unsupported(f"it slides over {spatial} dimensions; only 1 and 2 are supported")
    if node.integer("group", 1) != 1:
        raise node.unsupported("it is grouped; only ConvTranspose with one group is supported")
    if weights.shape[0] != x.shape[1]:
        raise node.damaged(f"weights of shape {weights.shape} do not fit {x.shape[1]} channels")
    kernel, strides, dilations = window(node, weights.shape[2:])
    stored = _spread(weights.reshape(*weights.shape[:2], *kernel), dilations)
    wanted = image_shape(job.shape)
    begins = _cut_before(job, stored.shape[2:], x.shape[2:], strides, wanted[2:])
    whole = [
        max((n - 1) * stride + extent, before + out)
        for n, stride, extent, before, out in zip(
            x.shape[2:], strides, stored.shape[2:], begins, wanted[2:], strict=True
        )
    ]
    outputs = stored.shape[1]
    shape = (x.shape[0], outputs, *whole)
    data = stored.transpose(1, 2, 3, 0)
    filters, bias = weights_and_bias(job, data, scales, 0, outputs, x)
    size = store.numbers((x.shape[0], *whole, outputs), f"{job.name}_size")
    is_cut = shape != wanted
    made = store.apply(
        "TRANSPOSE_CONV",
        [size, filters, x.tensor, bias],
        f"{job.name}_whole" if is_cut else job.name,
        shape,
        job.scale,
        is_last=True,
        **moves(VALID, strides),
        FusedActivationFunction=job.activation,
    )
    if is_cut:
        begin = store.numbers((0, *begins, 0), f"{job.name}_begin")
        extent = store.numbers((wanted[0], *wanted[2:], outputs), f"{job.name}_extent")
        numbers = [made.tensor, begin, extent]
        made = store.apply("SLICE", numbers, job.name, wanted, job.scale, is_last=True)
    return from_image(store, made, job.shape, job.name)


def _cut_before(
    job: Job,
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, int],
    wanted: tuple[int, ...],
) -> list[int]:
    """Rows and columns that are cut off at the beginning."""
    scheme = job.node.text("auto_pad", "NOTSET")
    stated = job.node.integers("pads", ())
    if scheme == "NOTSET" and not job.node.integers("output_shape", ()):
        half = len(stated) // 2
        begins = list(stated[:half]) or [0, 0]
        if min(begins, default=0) < 0:
            raise job.node.unsupported(f"its pads are {stated}; only 0 and more are supported")
        return [0, *begins] if len(begins) == 1 else begins
    totals = [
        max((n - 1) * stride + extent - out, 0)
        for n, stride, extent, out in zip(sizes, strides, kernel, wanted, strict=True)
    ]
    # Only SAME_UPPER cuts the odd one off at the end, also where pads follow from an output_shape.
    is_upper = scheme == "SAME_UPPER"
    return [total // 2 if is_upper else total - total // 2 for total in totals]


def _spread(weights: Array, dilations: tuple[int, int]) -> Array:
    """Weights with zeros between them, instead of dilation."""
    if dilations == (1, 1):
        return weights
    inputs, outputs, rows, columns = weights.shape
    extents = ((rows - 1) * dilations[0] + 1, (columns - 1) * dilations[1] + 1)
    spread = np.zeros((inputs, outputs, *extents), weights.dtype)
    spread[:, :, :: dilations[0], :: dilations[1]] = weights
    return spread


EMITTERS: Mapping[str, Emitter] = {"ConvTranspose": transposed_convolution}
NEEDS: Mapping[str, Callable[[Storage, Pending], bool]] = dict.fromkeys(EMITTERS, has_int8_weights)
