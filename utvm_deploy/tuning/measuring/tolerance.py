"""How far a candidate's outputs are from the right ones, where sums are in another order."""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.tuning.measuring.inputs import Job, places_of, samples_of

#: The default for the largest error of floating-point outputs that passes.
TOLERANCE = 1e-5


def relative_error(job: Job, found: bytes, expected: bytes) -> float:
    """The largest difference of an element, as a share of its tensor's largest magnitude.

    ``found`` and ``expected`` are all outputs of a job as the device has them. Infinite if
    integers, NaNs or infinities differ.
    """
    stride, samples = samples_of(job)
    worst = 0.0
    for sample in range(samples):
        for number, place in places_of(job).items():
            tensor = job.work.graph.tensors[number]
            count, kind = math.prod(tensor.shape), np.dtype(tensor.dtype)
            ours, right = (
                np.frombuffer(data, kind, count, sample * stride + place)
                for data in (found, expected)
            )
            if kind.kind == "f":
                worst = max(worst, _of_floats(ours.astype(float), right.astype(float)))
            elif not np.array_equal(ours, right):
                return math.inf
    return worst


def _of_floats(ours: np.ndarray, right: np.ndarray) -> float:
    is_finite = np.isfinite(right)
    if not np.array_equal(ours[~is_finite], right[~is_finite], equal_nan=True):
        return math.inf
    difference = np.abs(ours[is_finite] - right[is_finite])
    if not difference.any():
        return 0.0
    largest = np.abs(right[is_finite]).max()
    return float(difference.max() / largest) if largest else math.inf
