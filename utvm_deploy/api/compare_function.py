"""``utvm_deploy.compare``: two results of profile, bench or report side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import BenchError, UsageError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.results.comparing.gate import Growth, Ours, baseline_of, growths, read_baseline
from utvm_deploy.results.pages.bars_picture import bars_svg
from utvm_deploy.results.runs.comparable import figures_of_run
from utvm_deploy.results.runs.difference import Difference, differences
from utvm_deploy.results.runs.store import RunStore

SCHEMA = "utvm.compare/1"

#: Digits of a run.
HEXADECIMAL = frozenset("0123456789abcdef")

Compared = str | Path | Mapping[str, Any] | Result


@dataclass(frozen=True, repr=False, eq=False)
class CompareResult(Result):
    """What ``compare`` found."""

    found: tuple[Difference, ...]
    fail_over: float | None  # percent
    grown: tuple[Growth, ...]  # what grew by more than that

    @property
    def ok(self) -> bool:
        """Whether nothing grew by more than was allowed."""
        return not self.grown

    @property
    def headline(self) -> str:
        """The time of each model as a whole, before and now."""
        told = []
        for one in self.found:
            whole = next(c for c in one.changes if c.what == "whole model")
            change = f" ({whole.percent_text})" if whole.percent_text else ""
            told.append(f"{one.model}: {whole.before:,} -> {whole.now:,} {whole.unit}{change}")
        return "; ".join(told)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer and each total of each model."""
        return [
            {"model": one.model, **vars(change), "percent": change.percent}
            for one in self.found
            for change in one.changes
        ]

    @property
    def svg(self) -> str | None:
        """Bars of the layers before and now."""
        rows = [
            (f"{one.model} {change.what}", [change.before, change.now])
            for one in self.found
            for change in one.changes
            if change.what.startswith("layer")
        ]
        return bars_svg("before and now", rows, ["before", "now"])

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm compare --json``."""
        return plain_object(
            SCHEMA,
            {
                "models": [
                    {
                        "name": one.model,
                        "boards": one.boards,
                        "changes": [
                            vars(change) | {"percent": change.percent} for change in one.changes
                        ],
                    }
                    for one in self.found
                ],
                "fail_over_percent": self.fail_over,
                "grown": [asdict(item) for item in self.grown],
                "ok": self.ok,
            },
        )


def compare(before: Compared, now: Compared, *, fail_over: float | None = None) -> CompareResult:
    """Two results of ``profile`` or ``bench`` side by side: layers, totals, RAM and flash.

    ``before`` and ``now`` are results, or what their ``to_dict`` gave, or files that ``--json``
    wrote, or pages of ``utvm report MODEL``, or the digits of a run from ``utvm history``. Reports
    with data have their metrics compared, too. Layers of one name are the same layer. With
    ``fail_over``, in percent, ``ok`` of the result is False if a layer, the whole model, its RAM or
    its flash grew by more than that; metrics are only shown.

    Times are in the unit of the board, such as cycles; sizes are in bytes. Raises BenchError for
    what has no figures, for two without a common model, and for two that count in other units.
    """
    return compared(figures_of(before, "before"), figures_of(now, "now"), fail_over)


def compared(
    before: tuple[Ours, ...], now: tuple[Ours, ...], fail_over: float | None
) -> CompareResult:
    """The comparison of figures that were read already."""
    found: Sequence[Difference] = differences(before, now)
    grown = [] if fail_over is None else growths(before, now, fail_over)
    return CompareResult(tuple(found), fail_over, tuple(grown))


def figures_of(given: Compared, what: str) -> tuple[Ours, ...]:
    """The figures of a result, a file or a run; ``what`` names it in errors."""
    if isinstance(given, Result):
        given = given.to_dict()
    if isinstance(given, Mapping):
        return baseline_of(json.dumps(dict(given)).encode(), f"the object {what}")
    if not isinstance(given, str | Path):
        raise UsageError(
            f"an object of type {type(given).__name__} has no figures to compare; give what "
            "profile or bench returned, a file that --json wrote, or the digits of a run"
        )
    if Path(given).is_file():
        return read_baseline(Path(given))
    if not set(str(given)) <= HEXADECIMAL:
        raise BenchError(
            f"{given} is neither a file nor a run; give a file that --json wrote, a report's page, "
            "a run's digits from `utvm history`, or job:DIGITS"
        )
    with RunStore(runs_file()) as store:
        kept = store.get(str(given))
    return figures_of_run(kept)
