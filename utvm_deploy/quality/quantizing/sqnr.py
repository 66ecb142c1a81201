"""The error of quantized outputs, as a ratio of signal to noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing.facts import OutputError


def sqnr_db(real: Array, quantized: Array) -> float | None:
    """Power of the signal by that of the error, in dB; None if either is zero."""
    signal = float(np.square(real, dtype=np.float64).sum())
    noise = float(np.square(np.subtract(real, quantized, dtype=np.float64)).sum())
    return 10 * math.log10(signal / noise) if signal and noise else None


def output_errors(
    names: Sequence[str], real: Sequence[Array], quantized: Sequence[Array]
) -> Iterator[OutputError]:
    """The error of each output over all samples.

    An output that is the same for all samples has no SQNR: its error is that of one value, which
    calibration met exactly.
    """
    for name, one, other in zip(names, real, quantized, strict=True):
        largest = float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())
        yield OutputError(name, sqnr_db(one, other) if _varies(one) else None, largest)


def outlier(real: Array, quantized: Array) -> tuple[int, float] | None:
    """The sample that an SQNR is of, and the SQNR of the middle sample in dB; None where all count.

    It is said if a twentieth of the samples, or one, has 90 % of the power of the signal.
    """
    wanted = real.reshape(len(real), -1).astype(np.float64)
    signal = np.square(wanted).sum(axis=1)
    error = np.subtract(wanted, quantized.reshape(wanted.shape), dtype=np.float64)
    noise = np.square(error).sum(axis=1)
    if np.sort(signal)[-max(len(signal) // 20, 1) :].sum() < 0.9 * signal.sum() or not noise.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        decibels = np.nan_to_num(10 * np.log10(signal / noise), nan=np.inf, neginf=-np.inf)
    return int(signal.argmax()), float(np.sort(decibels)[len(decibels) // 2])


def _varies(real: Array) -> bool:
    """Whether samples differ in it, by more than numbers that float32 rounds to zero."""
    # In float64, because numpy subtracts no bools.
    largest = float(np.ptp(real.astype(np.float64), axis=0).max())
    return len(real) == 1 or largest >= np.finfo(np.float32).tiny
