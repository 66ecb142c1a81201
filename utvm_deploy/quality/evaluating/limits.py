"""Limits on metrics: ``accuracy=0.9`` as --min, ``rmse=2`` as --max."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import UsageError

#: Metrics from 0 to 1, besides the topK.
SHARES = frozenset({"accuracy", "macro_f1", "auc", "agreement", "r2"})
_TOP = re.compile(r"top\d+")
#: Metrics that compare with the float model.
FLOAT_METRICS = frozenset({"agreement", "sqnr_db"})
_NEEDS_FLOAT = ", or the float model to compare with (--reference)"


@dataclass(frozen=True)
class Limit:
    """What a metric must reach, or not exceed."""

    metric: str
    value: float
    is_least: bool

    def is_kept(self, metrics: Mapping[str, float]) -> bool:
        """A metric without a value does not keep any limit."""
        found = metrics.get(self.metric)
        if found is None:
            return False
        return found >= self.value if self.is_least else found <= self.value

    def __str__(self) -> str:
        return f"{self.metric} at {'least' if self.is_least else 'most'} {self.value:g}"


def limit_of(text: str, *, is_least: bool) -> Limit:
    """The limit that METRIC=VALUE says; ValueError for another form."""
    metric, sign, value = text.partition("=")
    number = float(value) if sign else float("nan")
    if not metric or number != number:
        raise ValueError(f"{text!r} is not METRIC=VALUE")
    return Limit(metric.strip(), number, is_least)


def check_limits(limits: Sequence[Limit], names: Sequence[str], smaller: frozenset[str]) -> None:
    """UsageError for a metric that there will not be, or one that is limited from the wrong side.

    ``smaller`` are the metrics that are better when they are smaller.
    """
    for limit in limits:
        option, other = ("--min", "--max") if limit.is_least else ("--max", "--min")
        if limit.metric not in names:
            raise UsageError(
                f"{option} {limit.metric}={limit.value:g}: there is no such metric for this model "
                f"and its data; give one of {', '.join(names)}"
                f"{_NEEDS_FLOAT if limit.metric in FLOAT_METRICS else ''}"
            )
        if limit.value > 1 and (limit.metric in SHARES or _TOP.fullmatch(limit.metric)):
            raise UsageError(
                f"{option} {limit.metric}={limit.value:g}: {limit.metric} is at most 1; give a "
                f"part of 1, such as {limit.metric}=0.9"
            )
        if limit.is_least == (limit.metric in smaller):
            better = "smaller" if limit.is_least else "larger"
            raise UsageError(
                f"{limit.metric} is better when it is {better}; give "
                f"{other} {limit.metric}={limit.value:g}"
            )
