"""A profile as one HTML file without anything outside: bars and figures per layer, hotspots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from utvm_deploy import __version__
from utvm_deploy.profiling.bound import Bound
from utvm_deploy.profiling.hotspots import Hotspot
from utvm_deploy.profiling.layer_costs import LayerProfile, Profile

_BAR_WIDTH = 360
_BAR_HEIGHT = 14
_CORE, _MEMORY, _BOUND = "#2a6f97", "#c9a227", "#b3261e"
_STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:90em;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left;"
    "border-bottom:1px solid #e4e4e4;vertical-align:middle}.n{text-align:right;"
    "font-variant-numeric:tabular-nums}small{color:#555}svg{display:block}"
    "code{font:13px/1.35 ui-monospace,monospace;white-space:pre}"
)
#: Columns of figures next to the bars, if they were counted.
_FIGURES = (
    ("core", "core"),
    ("pessimistic", "pessimistic"),
    ("rich", "rich"),
    ("instructions", "instructions"),
    ("dcache_misses_flash", "misses, flash"),
    ("dcache_misses_ram", "misses, RAM"),
    ("dcache_store_misses", "misses, stores"),
)


def profile_html(
    found: Profile, bounds: Sequence[Bound | None] | None, hotspots: Sequence[Hotspot] = ()
) -> str:
    """The whole page."""
    return "".join(_page(found, bounds or [None] * len(found.layers), hotspots))


def _page(
    found: Profile, bounds: Sequence[Bound | None], hotspots: Sequence[Hotspot]
) -> Iterator[str]:
    title = f"{found.model} on {found.board}"
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    yield f"<title>utvm profile: {escape(title)}</title><style>{_STYLE}</style></head><body>\n"
    yield f"<h1>{escape(title)}</h1>\n<p>{found.ticks:,} {found.unit_label}"
    if found.seconds is not None:
        yield f", {1e3 * found.seconds:.3f} ms at {found.ticks_per_second / 1e6:g} MHz"
    if found.is_modelled:
        yield ". <b>Modelled, never measured on silicon.</b>"
    yield (
        f"</p>\n<p>RAM {found.ram_bytes:,} bytes (arena {found.arena_bytes:,}), "
        f"flash {found.flash_bytes:,} bytes (weights {found.weights_bytes:,})</p>\n"
    )
    if found.is_modelled:
        yield (
            f'<p><span style="color:{_CORE}">&#9632;</span> core '
            f'<span style="color:{_MEMORY}">&#9632;</span> data cache misses '
            f'<span style="color:{_BOUND}">&#9474;</span> bound: what multiplications, loads '
            "and flash allow whatever the kernel</p>\n"
        )
    yield from _table(found, bounds)
    for block in hotspots:
        yield from _block(block)
    yield f"<p><small>utvm_deploy {escape(__version__)}</small></p></body></html>\n"


def _table(found: Profile, bounds: Sequence[Bound | None]) -> Iterator[str]:
    named = [(key, name) for key, name in _FIGURES if key in found.figures]
    heads = [found.unit_label, "per MAC", *(name for _, name in named)]
    heads += ["bound"] if any(bounds) else []
    yield "<table><tr><th>layer</th><th>operator</th><th></th>"
    yield "".join(f'<th class="n">{escape(head)}</th>' for head in heads)
    yield "</tr>\n"
    longest = max((item.ticks for item in found.layers), default=0) or 1
    for item, bound in zip(found.layers, bounds, strict=True):
        kernel = item.layer.kernel.removeprefix(f"{found.model}_")
        yield f"<tr><td>{item.layer.index}</td><td>{escape(item.layer.kind)}<br>"
        yield f"<small>{escape(kernel)}: {escape(item.layer.why)}</small></td><td>"
        yield from _bar(item, bound, longest)
        rate = "" if item.ticks_per_mac is None else f"{item.ticks_per_mac:.2f}"
        cells = [f"{item.ticks:,}", rate, *(f"{item.figures[key]:,}" for key, _ in named)]
        if any(bounds):
            cells.append("" if bound is None else f"{bound.memory:,}")
        yield "</td>" + "".join(f'<td class="n">{cell}</td>' for cell in cells) + "</tr>\n"
    yield "</table>\n"


def _bar(item: LayerProfile, bound: Bound | None, longest: int) -> Iterator[str]:
    def width(cycles: int) -> float:
        return _BAR_WIDTH * cycles / longest

    core = item.figures.get("core", item.ticks)
    yield f'<svg width="{_BAR_WIDTH + 2}" height="{_BAR_HEIGHT}" role="img">'
    yield f'<rect width="{width(item.ticks):.1f}" height="{_BAR_HEIGHT}" fill="{_MEMORY}"/>'
    yield f'<rect width="{width(core):.1f}" height="{_BAR_HEIGHT}" fill="{_CORE}"/>'
    if bound is not None:
        at = width(bound.memory)
        yield f'<rect x="{at:.1f}" width="2" height="{_BAR_HEIGHT}" fill="{_BOUND}"/>'
    yield "</svg>"


def _block(block: Hotspot) -> Iterator[str]:
    yield (
        f"<h2>{escape(block.function)} at {block.address:#010x}</h2>\n<p>{block.core:,} modelled "
        f"core cycles, {100 * block.share:.1f} %; run {block.executions:,} times</p>\n"
        '<table><tr><th class="n">cycle</th><th class="n">takes</th><th>instruction</th>'
        "<th></th></tr>\n"
    )
    for one in block.instructions:
        yield (
            f'<tr><td class="n">{one.cycle}</td><td class="n">{one.cycles}</td>'
            f"<td><code>{escape(one.text)}</code></td><td>{escape(one.note)}</td></tr>\n"
        )
    yield "</table>\n"
