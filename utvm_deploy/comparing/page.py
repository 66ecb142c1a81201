"""A comparison as one HTML file without anything outside: a table and bars in SVG per model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from utvm_deploy import __version__
from utvm_deploy.comparing.facts import MEASURED, LayerComparison, ModelComparison, NotCompared

_BAR_WIDTH = 360
_BAR_HEIGHT = 8
_OURS, _THEIRS = "#2a6f97", "#c9a227"
_STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left;"
    "border-bottom:1px solid #e4e4e4;vertical-align:middle}.n{text-align:right;"
    "font-variant-numeric:tabular-nums}.won{color:#1b7f3b}.lost{color:#b3261e}"
    "small{color:#555}svg{display:block}"
)


def comparison_html(
    models: Sequence[ModelComparison], figure: str, failed: Sequence[NotCompared] = ()
) -> str:
    """The whole page; ``figure`` is what bars and ratios show."""
    return "".join(_page(models, figure, failed))


def _page(
    models: Sequence[ModelComparison], figure: str, failed: Sequence[NotCompared]
) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    yield f"<title>utvm bench</title><style>{_STYLE}</style></head><body>\n"
    yield "<h1>Our kernels and CMSIS-NN's</h1>\n"
    if models:
        yield (
            f"<p>Bars and ratios are <b>{escape(models[0].unit_label)}</b>; a ratio is CMSIS-NN's "
            f"figure over ours, so above 1 we are faster. "
            f'<span style="color:{_OURS}">&#9632;</span> ours '
            f'<span style="color:{_THEIRS}">&#9632;</span> CMSIS-NN</p>\n'
        )
    for model in models:
        yield from _model(model, figure)
    if failed:
        yield "<h2>Not compared</h2>\n<table><tr><th>model</th><th>why</th></tr>\n"
        for one in failed:
            yield f"<tr><td>{escape(one.name)}</td><td>{escape(one.reason)}</td></tr>\n"
        yield "</table>\n"
    yield f"<p><small>utvm_deploy {escape(__version__)}</small></p></body></html>\n"


def _builds(model: ModelComparison) -> Iterator[str]:
    yield "<table><tr><th>build of CMSIS-NN</th>"
    yield from (f'<th class="n">{escape(name)}</th>' for name in model.figures)
    yield "<th>layers that differ</th><th></th></tr>\n"
    for build in model.builds:
        yield f"<tr><td>{escape(build.label)}</td>"
        yield from (f'<td class="n">{build.figures.get(n, 0):,}</td>' for n in model.figures)
        told = "the fastest: compared below" if build.label == model.build else ""
        yield f"<td>{', '.join(map(str, build.differing_layers))}</td><td>{told}</td></tr>\n"
    yield "</table>\n"


def _model(model: ModelComparison, figure: str) -> Iterator[str]:
    yield f"<h2>{escape(model.name)} on {escape(model.board)}: {_ratio(model.ratio(figure))}</h2>\n"
    yield f"<p>{escape(model.engine)}; {model.source}; inputs: {escape(model.inputs)}.<br>"
    yield f"Ours: {escape(str(model.our_placement))}.<br>"
    if model.their_placement is not None:
        yield f"CMSIS-NN: {escape(str(model.their_placement))}."
    yield "</p>\n"
    if model.builds:
        yield from _builds(model)
    yield "<table><tr><th>layer</th><th>operator</th>"
    yield '<th class="n">ours</th><th class="n">CMSIS-NN</th><th class="n">ratio</th>'
    yield f"<th>{escape(figure)}</th><th>output</th><th>CMSIS-NN's function</th></tr>\n"
    values = [f.get(figure, 0) for layer in model.layers for f in (layer.ours, layer.theirs or {})]
    longest = max(values, default=0) or 1
    for layer in model.layers:
        yield from _layer(model, layer, figure, longest)
    yield "</table>\n"


def _layer(
    model: ModelComparison, layer: LayerComparison, figure: str, longest: int
) -> Iterator[str]:
    theirs = (layer.theirs or {}).get(figure)
    yield f"<tr><td>{layer.index}</td><td>{escape(layer.kind)}<br>"
    yield f"<small>{escape(layer.kernel)}</small></td>"
    yield f'<td class="n">{layer.ours[figure]:,}</td>'
    yield f'<td class="n">{"" if theirs is None else f"{theirs:,}"}</td>'
    yield f'<td class="n">{_ratio(layer.ratio(figure))}</td><td>'
    yield f'<svg width="{_BAR_WIDTH}" height="{2 * _BAR_HEIGHT + 2}" role="img">'
    for row, (value, color) in enumerate(((layer.ours[figure], _OURS), (theirs or 0, _THEIRS))):
        width = _BAR_WIDTH * value / longest
        yield (
            f'<rect y="{row * (_BAR_HEIGHT + 1)}" width="{width:.1f}" height="{_BAR_HEIGHT}" '
            f'fill="{color}"/>'
        )
    yield f"</svg></td><td>{escape(agreement(layer))}</td>"
    name = layer.their_kernel or ("ours" if model.source == MEASURED else "")
    yield f"<td><small>{escape(name)}</small></td></tr>\n"


def agreement(layer: LayerComparison) -> str:
    """Whether the outputs are equal, in a phrase."""
    if layer.differing_bytes is None:
        return "not compared"
    if layer.differing_bytes == 0:
        return "equal"
    return f"{layer.differing_bytes} of {layer.output_bytes} bytes differ"


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f'<span class="{"won" if value >= 1 else "lost"}">{value:.2f}</span>'
