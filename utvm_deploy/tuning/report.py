"""Records as one HTML page: before and after by kernel, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.pages.chart import (
    CURVE_HEIGHT,
    CURVE_WIDTH,
    SPARK_HEIGHT,
    SPARK_WIDTH,
    bar,
    steps,
)
from utvm_deploy.pages.render import render
from utvm_deploy.records import KernelIdentity, Record, Records, Setting, is_modelled


@dataclass(frozen=True)
class KernelHistory:
    """What was tried for one kernel under one setting, in order."""

    kernel: KernelIdentity
    records: tuple[Record, ...]

    @property
    def default_ticks(self) -> int | None:
        """Of what the best family chooses by itself."""
        for record in self.records:
            if record.is_default and record.measurement.is_ok:
                return record.measurement.ticks_min
        return None

    @property
    def best(self) -> Record | None:
        """The fastest that is right."""
        right = [record for record in self.records if record.measurement.is_ok]
        return min(right, key=lambda r: r.measurement.ticks_min) if right else None

    @property
    def gain(self) -> float | None:
        """How many times as fast as the default the best is."""
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
        for number, record in enumerate(self.records, 1):
            one = record.measurement
            if one.is_ok and (not points or one.ticks_min < points[-1][1]):
                points.append((number, one.ticks_min))
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
    for number, record in enumerate(order, 1):
        if record.measurement.is_ok:
            ticks = min(best[record.kernel.key], record.measurement.ticks_min)
            best[record.kernel.key] = ticks
        points.append((number, sum(best.values()) / whole))
    return points


def tuning_html(records: Records, title: str) -> str:
    """The whole page."""
    return render("tuning.html", title=title, **tuning_values(records))


def tuning_values(records: Records) -> dict[str, Any]:
    """What ``tuning_body.html`` shows."""
    return {
        "settings": [_section(setting, found) for setting, found in histories(records).items()],
        "width": CURVE_WIDTH,
        "height": CURVE_HEIGHT,
        "spark_width": SPARK_WIDTH,
        "spark_height": SPARK_HEIGHT,
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
        "curve": steps(points, CURVE_WIDTH, CURVE_HEIGHT, 1.0) if has_curve else "",
        "last_share": points[-1][1] if has_curve else None,
        "last_trial": points[-1][0] if has_curve else None,
        "kernels": [_row(history, longest) for history in found],
    }


def _row(history: KernelHistory, longest: int) -> dict[str, Any]:
    best, macs, points = history.best, history.kernel.macs, history.curve()
    ticks = best.measurement.ticks_min if best else None
    if len(points) > 1:
        points.append((len(history.records), points[-1][1]))
    return {
        "history": history,
        "ticks": ticks,
        "bars": (
            bar(history.default_ticks, longest, "pale", "default"),
            bar(ticks, longest, "one", "best"),
        ),
        "per_mac": ticks / macs if ticks is not None and macs else None,
        "candidate": best.candidate.label if best else "none is right",
        "curve": (
            steps(points, SPARK_WIDTH, SPARK_HEIGHT, points[0][1]) if len(points) > 1 else ""
        ),
    }
