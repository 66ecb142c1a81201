"""The measured sessions as a table, a page and a picture. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run import Measured

_KIB = 1024


def lines(rows: Sequence[Measured]) -> Iterator[tuple[str, list[str]]]:
    """What was measured, and its value for each row."""
    yield "start, until the first answer", [_time(row.start_s) for row in rows]
    yield "one exchange: 4 bytes read", [_time(row.exchange_s) for row in rows]
    for count in rows[0].batches_s:
        name = f"a list of {count} task{'s' if count > 1 else ''}"
        yield name, [_time(row.batches_s[count]) for row in rows]
    most = max(rows[0].batches_s)
    yield f"tasks a second, {most} at once", [f"{most / row.batches_s[most]:,.0f}" for row in rows]
    yield (
        "many at once against one by one",
        [_times(row.batches_s[1] * most, row.batches_s[most]) for row in rows],
    )
    yield "read 64 KiB", [_rate(row.read_s) for row in rows]
    yield "write 64 KiB", [_rate(row.write_s) for row in rows]
    yield "200 calls, strict", [_time(row.strict_s) for row in rows]
    yield "200 calls, lazy", [_time(row.lazy_s) for row in rows]
    yield "200 different calls, lazy", [_time(row.mixed_s) for row in rows]
    yield "200 repeats of one call", [_time(row.repeat_s) for row in rows]
    yield "lazy against strict", [_times(row.strict_s, row.lazy_s) for row in rows]
    yield "different, lazy against strict", [_times(row.strict_s, row.mixed_s) for row in rows]
    yield "the calls themselves", [_time(row.kernel_s) for row in rows]
    yield "8 KiB module: first load", [_time(row.compile_s) for row in rows]
    yield "8 KiB module: compiled before", [_time(row.load_s) for row in rows]


def table(rows: Sequence[Measured]) -> str:
    """For a terminal."""
    heads = [f"{row.board}, {row.link}" for row in rows]
    widths = [max(16, len(head)) for head in heads]
    out = [" " * 32 + "".join(f"  {h:>{w}}" for h, w in zip(heads, widths, strict=True))]
    for name, values in lines(rows):
        out.append(
            f"{name:32}" + "".join(f"  {v:>{w}}" for v, w in zip(values, widths, strict=True))
        )
    return "\n".join(out)


def markdown(rows: Sequence[Measured]) -> str:
    """The page."""
    heads = [f"{row.board}, {row.link}" for row in rows]
    cells = [
        f"| {' | '.join(['', *heads])} |",
        f"|{'---|' * (len(rows) + 1)}",
        *(f"| {' | '.join([name.strip(), *values])} |" for name, values in lines(rows)),
    ]
    best = max(rows, key=lambda row: row.strict_s / row.lazy_s)
    return f"""\
# What a session costs

`python benchmarks/sessions/run.py --write` writes this page. One column is one run. Times depend on
the computer and its other work, so look at the ratios within a column. The boards are a process on
this computer and an emulated board (QEMU), over each of its links.

{chr(10).join(cells)}

Calls wait in a queue until a result is read, and one task list carries them all. With one exchange
for each call, {_COUNT} calls of a small kernel took up to
{best.strict_s / best.lazy_s:.0f} times as long ({best.board}, {best.link}).

Strict execution also checks the red zones around every tensor after each call. Lazy execution
checks them once, at its end. Equal calls in a row are sent as one task with a repeat count,
different ones one by one.

![200 calls, strict and lazy](sessions.svg)

A module is compiled once, and the cache knows it by its digest. It is linked for the address that
it gets, and written into RAM. Loading it again takes the link step and one write.
"""


_COUNT = 200

_LEFT, _WIDTH, _BAR, _GAP, _TOP = 190, 640, 16, 22, 54
_COLORS = {"strict": "#b4532a", "lazy, different": "#7a5aa8", "lazy, equal": "#2a6fb4"}


def plot(rows: Sequence[Measured]) -> str:
    """Horizontal bars on a logarithmic axis: the calls of each row, strict, lazy and all equal."""
    bars = [
        (row, list(zip(_COLORS, (row.strict_s, row.mixed_s, row.lazy_s), strict=True)))
        for row in rows
    ]
    values = [value for _, group in bars for _, value in group]
    low, high = (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))))
    scale = (_WIDTH - _LEFT - 70) / (high - low)
    bottom = _TOP + len(bars) * (3 * _BAR + _GAP)

    def x(value: float) -> float:
        return _LEFT + (math.log10(value) - low) * scale

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 30}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{bottom + 30}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-size="14">{_COUNT} calls of a small kernel, result read: '
        f"host time, logarithmic</text>",
    ]
    for place, (name, color) in enumerate(_COLORS.items()):
        at = _LEFT + 130 * place
        parts.append(f'<rect x="{at}" y="30" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{at + 17}" y="40">{name}</text>')
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{bottom - 8}" stroke="#dddddd"/>')
        label = _time(10.0**power)
        parts.append(f'<text x="{at:.1f}" y="{bottom + 10}" text-anchor="middle">{label}</text>')
    y = _TOP + 4
    for row, group in bars:
        label = escape(f"{row.board}, {row.link}")
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 28}" text-anchor="end">{label}</text>')
        for name, value in group:
            width = x(value) - _LEFT
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 3}" '
                f'fill="{_COLORS[name]}"/>'
            )
            parts.append(f'<text x="{x(value) + 5:.1f}" y="{y + 11}">{_time(value)}</text>')
            y += _BAR
        y += _GAP
    return "\n".join([*parts, "</svg>", ""])


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _rate(seconds: float) -> str:
    return f"{_time(seconds)} ({64 * _KIB / seconds / _KIB:,.0f} KiB/s)"


def _times(slow_s: float, fast_s: float) -> str:
    return f"{slow_s / fast_s:.1f} times as fast"
