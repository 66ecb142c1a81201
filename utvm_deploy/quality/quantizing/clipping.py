"""Ranges that cut off outliers: they lose a few large values, and all others get finer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing.facts import MIN_MAX, MSE, PERCENTILE, Range

#: Share of the elements, in percent, that stay within the range on each side.
WITHIN = 99.99
_BINS = 2048
#: Ends of the range that are tried for the least mean square error, as parts of the observed ones.
_PARTS = np.linspace(0.3, 1.0, 36)
_STEPS = 255

Histograms = Mapping[str, Array]


class Clipper:
    """The ranges of a model's tensors by each method; values are looked at once, when needed.

    ``values`` gives each tensor's name and its elements on one sample, for all samples.
    """

    def __init__(
        self, values: Callable[[], Iterable[tuple[str, Array]]], ranges: Mapping[str, Range]
    ) -> None:
        self._values, self._observed = values, ranges
        self._counts: Histograms | None = None

    def ranges(self, method: str) -> Mapping[str, Range]:
        """A range for each tensor. It holds 0 and is never wider than the observed one."""
        if method == MIN_MAX:
            return self._observed
        if self._counts is None:
            self._counts = _histograms(self._values(), self._observed)
        rule = {PERCENTILE: _by_percentile, MSE: _by_error}[method]
        clipped = {name: rule(one, self._observed[name]) for name, one in self._counts.items()}
        return {**self._observed, **clipped}


def with_tied_ranges(
    ranges: Mapping[str, Range], states: Iterable[tuple[str, str]]
) -> dict[str, Range]:
    """The ranges; each input and output of a pair has the range of both together."""
    made = dict(ranges)
    for pair in states:
        ends = [ranges[name] for name in pair if name in ranges]
        if len(ends) == 2:
            whole = Range(min(one.low for one in ends), max(one.high for one in ends))
            made |= dict.fromkeys(pair, whole)
    return made


def _histograms(
    values: Iterable[tuple[str, Array]], ranges: Mapping[str, Range]
) -> dict[str, Array]:
    counts = {name: np.zeros(_BINS) for name, one in ranges.items() if one.high > one.low}
    for name, array in values:
        if name in counts:
            one = ranges[name]
            # What lies outside was seen on other samples only: numpy leaves it out.
            counts[name] += np.histogram(array, _BINS, (one.low, one.high))[0]
    return {name: one for name, one in counts.items() if one.sum()}


def _by_percentile(counts: Array, observed: Range) -> Range:
    share = np.cumsum(counts) / counts.sum()
    edges = np.linspace(observed.low, observed.high, _BINS + 1)
    rest = (100.0 - WITHIN) / 100.0
    low = float(edges[int(np.searchsorted(share, rest, "right"))])
    high = float(edges[min(int(np.searchsorted(share, 1.0 - rest)) + 1, _BINS)])
    return _around_zero(low, high, observed)


def _by_error(counts: Array, observed: Range) -> Range:
    """The two ends that give the least mean square error of int8."""
    width = (observed.high - observed.low) / _BINS
    centres = observed.low + (np.arange(_BINS) + 0.5) * width
    lows = np.array([min(observed.low * part, 0.0) for part in _PARTS])
    highs = np.array([max(observed.high * part, 0.0) for part in _PARTS])
    below = np.maximum(lows[:, np.newaxis] - centres, 0.0)
    above = np.maximum(centres - highs[:, np.newaxis], 0.0)
    steps = (highs - lows[:, np.newaxis]) / _STEPS
    # Rounding errors are spread evenly over a step: their mean square is a twelfth of it.
    rounding = counts.sum() * np.square(steps) / 12.0
    errors = (np.square(below) @ counts)[:, np.newaxis] + np.square(above) @ counts + rounding
    low, high = np.unravel_index(errors.argmin(), errors.shape)
    return _around_zero(float(lows[low]), float(highs[high]), observed)


def _around_zero(low: float, high: float, observed: Range) -> Range:
    low, high = min(low, 0.0), max(high, 0.0)
    low, high = max(low, min(observed.low, 0.0)), min(high, max(observed.high, 0.0))
    return Range(low, high) if high > low else observed
