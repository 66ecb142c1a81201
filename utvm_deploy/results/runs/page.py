"""The difference of two runs as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from utvm_deploy.quality.evaluating.page import metric_text
from utvm_deploy.results.pages.chart import Bar, bar
from utvm_deploy.results.pages.render import render
from utvm_deploy.results.runs.difference import Change, Difference

#: Changes up to this many percent are not marked: a compiler's update alone can cause them.
_MARKED_PERCENT = 1.0


def compare_html(found: Sequence[Difference], before: str, now: str) -> str:
    """The whole page; ``before`` and ``now`` name the two runs."""
    return render("compare.html", **compare_values(found), before=before, now=now)


def compare_values(found: Sequence[Difference]) -> dict[str, Any]:
    """What ``compare_body.html`` shows."""
    models = [
        {"found": one, "boards": dict.fromkeys(one.boards), "rows": _rows(one)} for one in found
    ]
    return {"models": models}


def _rows(found: Difference) -> list[dict[str, Any]]:
    # A bar is as long as the longest of the same unit: cycles and bytes have no common scale.
    longest = {
        unit: max(max(c.before or 0, c.now or 0) for c in found.changes if c.unit == unit)
        for unit in {change.unit for change in found.changes}
    }
    return [
        {
            "change": change,
            "verdict": _verdict(change),
            "bars": _bars(change, longest[change.unit]),
            "before": figure_text(change, change.before),
            "now": figure_text(change, change.now),
        }
        for change in found.changes
    ]


def _bars(change: Change, longest: float) -> tuple[Bar, ...]:
    if not change.unit:  # metrics have no common scale
        return ()
    return (bar(change.before, longest, "pale", "before"), bar(change.now, longest, "one", "now"))


def figure_text(change: Change, value: float | None) -> str:
    """A figure for people; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if change.unit else metric_text(change.what.partition(" ")[0], value)


def _verdict(change: Change) -> str:
    """The class of the cell."""
    if change.percent is None or abs(change.percent) < _MARKED_PERCENT:
        return ""
    return "bad" if (change.percent > 0) == change.smaller_is_better else "good"
