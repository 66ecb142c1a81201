"""Records as one HTML page: before and after by kernel, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.records import KernelIdentity, Record, Records, Setting, is_modelled
from utvm_deploy.results.pages import chart
from utvm_deploy.results.pages.figure_table import (
    Cell,
    Column,
    FigureTable,
    Line,
    column,
    figure_table,
    share,
)
from utvm_deploy.results.pages.render import number, render


@dataclass(frozen=True)
class KernelHistory:
    """What was tried for one kernel under one setting, in order."""

    kernel: KernelIdentity
    records: tuple[Record, ...]

    @property
    def default_ticks(self) -> int | None:
        """The ticks of the candidate that the best family chooses by itself."""
        for record in self.records:
            if record.is_default and record.measurement.is_ok:
                return record.measurement.ticks_min
        return None

    @property
    def best(self) -> Record | None:
        """The fastest candidate whose outputs are right."""
        right = [record for record in self.records if record.measurement.is_ok]
        return min(right, key=lambda r: r.measurement.ticks_min) if right else None

    @property
    def gain(self) -> float | None:
        """The ticks of the default over those of the best."""
        best, default = self.best, self.default_ticks
        if best is None or not default or not best.measurement.ticks_min:
            return None
        return default / best.measurement.ticks_min

    @property
    def errors(self) -> int:
        """Candidates that failed."""
        return sum(not record.measurement.is_ok for record in self.records)

    def curve(self) -> list[tuple[int, int]]:
        """(trials so far, ticks of the best until then)."""
        points: list[tuple[int, int]] = []
        for count, record in enumerate(self.records, 1):
            one = record.measurement
            if one.is_ok and (not points or one.ticks_min < points[-1][1]):
                points.append((count, one.ticks_min))
        return points


def unit_label(setting: Setting) -> str:
    """The unit, with the cycle model where there is one."""
    if not is_modelled(setting.unit):
        return setting.unit
    return f"{setting.unit} (model {setting.model or 'of before 0.2.0'})"


def histories(records: Records) -> dict[Setting, tuple[KernelHistory, ...]]:
    """By setting, the costliest kernel first."""
    by_kernel: dict[Setting, dict[str, list[Record]]] = {}
    for record in records:
        kernels = by_kernel.setdefault(record.setting, {})
        kernels.setdefault(record.kernel.key, []).append(record)
    found = {}
    for setting, kernels in by_kernel.items():
        all_of_it = [KernelHistory(some[0].kernel, tuple(some)) for some in kernels.values()]
        found[setting] = tuple(sorted(all_of_it, key=_cost, reverse=True))
    return found


def _cost(history: KernelHistory) -> int:
    return history.default_ticks or (history.best.measurement.ticks_min if history.best else 0)


def total_curve(found: Sequence[KernelHistory]) -> list[tuple[int, float]]:
    """(trials so far, ticks of all kernels' best over those of their defaults), over all trials."""
    known = [h for h in found if h.default_ticks is not None]
    best = {h.kernel.key: h.default_ticks or 0 for h in known}
    whole = sum(best.values())
    if not whole:
        return []
    order = sorted(
        (record for history in known for record in history.records), key=lambda r: r.time
    )
    points = [(0, 1.0)]
    for count, record in enumerate(order, 1):
        if record.measurement.is_ok:
            ticks = min(best[record.kernel.key], record.measurement.ticks_min)
            best[record.kernel.key] = ticks
        points.append((count, sum(best.values()) / whole))
    return points


def tuning_html(records: Records, title: str) -> str:
    """The whole page."""
    return render("tuning.html", title=title, **tuning_values(records))


def tuning_values(records: Records) -> dict[str, Any]:
    """What ``tuning_body.html`` shows."""
    return {
        "settings": [_section(setting, found) for setting, found in histories(records).items()],
        "width": chart.CURVE_WIDTH,
        "height": chart.CURVE_HEIGHT,
    }


def _section(setting: Setting, found: Sequence[KernelHistory]) -> dict[str, Any]:
    points = total_curve(found)
    has_curve = len(points) > 1
    longest = max(map(_cost, found), default=0)
    return {
        "setting": setting,
        "unit_label": unit_label(setting),
        "is_modelled": is_modelled(setting.unit),
        "trials": sum(len(history.records) for history in found),
        "failed": sum(history.errors for history in found),
        "boards": sorted({record.board for history in found for record in history.records}),
        "curve": chart.steps(points, chart.CURVE_WIDTH, chart.CURVE_HEIGHT, 1.0)
        if has_curve
        else "",
        "last_share": points[-1][1] if has_curve else None,
        "last_trial": points[-1][0] if has_curve else None,
        "table": _table(setting, found, longest),
    }


def _table(setting: Setting, found: Sequence[KernelHistory], longest: int) -> FigureTable:
    """Each kernel before and after; the sums count each kernel once."""
    best = [one.best.measurement.ticks_min if one.best else None for one in found]
    pairs = zip((one.default_ticks for one in found), best, strict=True)
    known = [(default, least) for default, least in pairs if default and least]
    before, after = sum(pair[0] for pair in known), sum(pair[1] for pair in known)
    whole = sum(ticks or 0 for ticks in best)
    macs = [one.kernel.macs for one in found]
    per_mac = [b / m if b is not None and m else None for b, m in zip(best, macs, strict=True)]
    columns = [
        column("default", [number(one.default_ticks) for one in found], number(before or None)),
        column("best", list(map(number, best)), number(whole or None)),
        column("share %", [share(ticks or 0, whole) for ticks in best], share(whole, whole)),
        column("per MAC", [number(one, 2) for one in per_mac], is_optional=True),
        column(
            "gain", [_times(one.gain) for one in found], _times(before / after if after else None)
        ),
        column(
            "trials",
            [number(len(one.records)) for one in found],
            number(sum(len(one.records) for one in found)),
        ),
        Column(
            "failed",
            tuple(Cell(number(one.errors), "bad" if one.errors else "") for one in found),
            Cell(number(sum(one.errors for one in found))),
            is_optional=True,
        ),
        column(
            "candidate",
            [one.best.candidate.label if one.best else "none is right" for one in found],
            is_number=False,
        ),
        Column(
            "best so far",
            tuple(Cell("", curve=_spark(one)) for one in found),
            is_number=False,
            is_optional=True,
        ),
    ]
    lines = [_line(one, ticks, longest) for one, ticks in zip(found, best, strict=True)]
    return figure_table(f"kernels of {setting.core}", lines, columns, "kernel", "all kernels")


def _line(history: KernelHistory, ticks: int | None, longest: int) -> Line:
    bars = (
        chart.bar(history.default_ticks, longest, "pale", "default"),
        chart.bar(ticks, longest, "one", "best"),
    )
    return Line(history.kernel.operator, history.kernel.name, bars, are_beside=True)


def _spark(history: KernelHistory) -> str:
    """The path of the best by trials; empty if the first is the best."""
    points = history.curve()
    if len(points) < 2:
        return ""
    points.append((len(history.records), points[-1][1]))
    return chart.steps(points, chart.SPARK_WIDTH, chart.SPARK_HEIGHT, points[0][1])


def _times(gain: float | None) -> str:
    return "" if gain is None else f"{gain:.2f}x"
