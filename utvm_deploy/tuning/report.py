"""Records as one HTML file without anything outside: before and after by kernel, and curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from utvm_deploy import __version__
from utvm_deploy.records import KernelIdentity, Record, Records, Setting, is_modelled

_WIDTH, _HEIGHT = 720, 260
_MARGIN = 48
_BAR_WIDTH, _BAR_HEIGHT = 300, 8
_BEFORE, _AFTER, _WRONG = "#b9c4cc", "#2a6f97", "#b3261e"
_STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:80em;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.25em .7em;text-align:left;"
    "border-bottom:1px solid #e4e4e4;vertical-align:middle}.n{text-align:right;"
    "font-variant-numeric:tabular-nums}small{color:#555}svg{display:block}"
)


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
    return "".join(_page(records, title))


def _page(records: Records, title: str) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    yield f"<title>utvm report: {escape(title)}</title><style>{_STYLE}</style></head><body>\n"
    yield f"<h1>Tuning: {escape(title)}</h1>\n"
    for setting, found in histories(records).items():
        yield from _setting(setting, found)
    yield f"<p><small>utvm_deploy {escape(__version__)}</small></p></body></html>\n"


def _setting(setting: Setting, found: Sequence[KernelHistory]) -> Iterator[str]:
    trials = sum(len(history.records) for history in found)
    boards = sorted({record.board for history in found for record in history.records})
    yield f"<h2>{escape(setting.core)}, {escape(unit_label(setting))}</h2>\n"
    yield (
        f"<p>{len(found)} kernels, {trials} trials, {sum(h.errors for h in found)} of them failed; "
        f"measured on {escape(', '.join(boards))}<br><small>{escape(setting.compiler)} "
        f"{escape(setting.flags)}, utvm {escape(setting.utvm)}</small></p>\n"
    )
    if is_modelled(setting.unit):
        yield "<p><b>Modelled, never measured on silicon.</b></p>\n"
    points = total_curve(found)
    if len(points) > 1:
        yield "<h3>All kernels, each once: time of the best found over that of the defaults</h3>\n"
        yield from _curve(points)
    yield "<h3>Before and after</h3>\n<table><tr><th>kernel</th><th></th>"
    for head in ("default", "best", "per MAC", "gain", "trials", "failed"):
        yield f'<th class="n">{head}</th>'
    yield "<th>candidate</th><th>best after so many trials</th></tr>\n"
    longest = max(map(_cost, found), default=0) or 1
    for history in found:
        yield from _row(history, longest)
    yield "</table>\n"


def _row(history: KernelHistory, longest: int) -> Iterator[str]:
    default, best, gain = history.default_ticks, history.best, history.gain
    ticks = best.measurement.ticks_min if best else None
    macs = history.kernel.macs
    yield f"<tr><td>{escape(history.kernel.operator)}<br>"
    yield f"<small>{escape(history.kernel.name)}</small></td><td>"
    yield f'<svg width="{_BAR_WIDTH}" height="{2 * _BAR_HEIGHT + 2}" role="img">'
    for place, (length, colour) in enumerate(((default, _BEFORE), (ticks, _AFTER))):
        width = _BAR_WIDTH * (length or 0) / longest
        at = place * (_BAR_HEIGHT + 2)
        yield f'<rect y="{at}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{colour}"/>'
    yield "</svg></td>"
    rate = f"{ticks / macs:.2f}" if ticks is not None and macs else ""
    cells = [_number(default), _number(ticks), rate, "" if gain is None else f"{gain:.2f}x"]
    yield "".join(f'<td class="n">{cell}</td>' for cell in cells)
    yield f'<td class="n">{len(history.records)}</td>'
    style = f' style="color:{_WRONG}"' if history.errors else ""
    yield f'<td class="n"{style}>{history.errors}</td>'
    yield f"<td>{escape(best.candidate.label) if best else 'none is right'}</td><td>"
    yield from _small_curve(history)
    yield "</td></tr>\n"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _curve(points: Sequence[tuple[int, float]]) -> Iterator[str]:
    """Trials to the right, the share of the defaults' time upwards from 0."""
    right = points[-1][0] or 1
    x = [_MARGIN + (_WIDTH - 2 * _MARGIN) * trial / right for trial, _ in points]
    base, room = _HEIGHT - _MARGIN / 2, _HEIGHT - _MARGIN
    y = [base - room * share for _, share in points]
    yield f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">'
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = base - room * share
        yield (
            f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{at:.1f}" y2="{at:.1f}" '
            f'stroke="#ddd"/><text x="4" y="{at + 4:.1f}" font-size="12">{share:.2f}</text>'
        )
    # A step at each trial: nothing is known between them.
    path = f"M{x[0]:.1f},{y[0]:.1f}"
    path += "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x[1:], y[1:], strict=True))
    yield f'<path d="{path}" fill="none" stroke="{_AFTER}" stroke-width="2"/>'
    yield (
        f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 2}" font-size="12" text-anchor="end">'
        f"{right} trials</text></svg>\n"
    )


def _small_curve(history: KernelHistory) -> Iterator[str]:
    points = history.curve()
    if len(points) < 2:
        return
    top, trials = points[0][1] or 1, len(history.records)
    path = ""
    for index, (trial, ticks) in enumerate(points):
        x, y = 120 * trial / trials, 26 - 24 * ticks / top
        path += f"M{x:.1f},{y:.1f}" if index == 0 else f"H{x:.1f}V{y:.1f}"
    yield (
        f'<svg width="122" height="28" role="img"><path d="{path}H120" fill="none" '
        f'stroke="{_AFTER}" stroke-width="1.5"/></svg>'
    )
