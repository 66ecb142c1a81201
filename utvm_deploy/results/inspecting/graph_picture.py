"""Draws a graph as one self-contained SVG: operators as boxes, tensors' shapes on the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from utvm_deploy.base.readable import counted, readable
from utvm_deploy.graph.attribute_values import NO_CLAMP
from utvm_deploy.graph.attributes import CallTir, Convolution, Mean, Pad, Pool, Softmax
from utvm_deploy.graph.macs import macs, total_macs
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.results.inspecting.graph_layout import Layout, lay_out

# Pixels.
_BOX_WIDTH, _BOX_HEIGHT = 212, 58
_COLUMN, _ROW = 244, 108
# A line leaves its box straight for as long as its label needs.
_STUB = 22
# The largest float32.
_LARGEST = 3.4028234663852886e38
_MARGIN, _HEADER = 28, 64
_RADIUS = 8
# Text wider than its box is cut: DejaVu Sans, the widest usual font, takes 5.5 px a character at
# the size of details, and 8.5 px at that of titles.
_TITLE_CHARACTERS, _DETAIL_CHARACTERS = 23, 37

_INK, _SOFT_INK, _LINE, _PAPER = "#1c2733", "#5b6b7b", "#9aa8b5", "#ffffff"
# Fill and border of each family; anything else is grey.
_COLOURS: Mapping[str, tuple[str, str]] = {
    "CONV_2D": ("#d7e8fb", "#3b7dc4"),
    "DEPTHWISE_CONV_2D": ("#d5f1ee", "#2c958a"),
    "FULLY_CONNECTED": ("#e6def8", "#7a55c0"),
    "ADD": ("#fde9c9", "#cf8a1d"),
    "AVERAGE_POOL_2D": ("#def2d3", "#5a9a36"),
    "MAX_POOL_2D": ("#def2d3", "#5a9a36"),
    "MEAN": ("#def2d3", "#5a9a36"),
    "RELU": ("#fbdcdc", "#c65151"),
    "RELU6": ("#fbdcdc", "#c65151"),
    "SOFTMAX": ("#fbdcdc", "#c65151"),
}
_OTHER_COLOURS = ("#eceff2", "#8493a1")
_BORDER_COLOURS = ("#2f3d4b", "#2f3d4b")  # model inputs and outputs


@dataclass(frozen=True)
class _Box:
    """A node: an operator, or where the model begins and ends."""

    title: str
    corner: str  # right end of the title line
    lines: tuple[str, str]
    tooltip: str
    colours: tuple[str, str]
    is_border: bool = False


@dataclass(frozen=True)
class _Edge:
    start: int
    end: int
    tensor: Tensor


def describe(graph: Graph, operator: Operator) -> str:
    """What an operator does, in a phrase: window, stride, padding."""
    a = operator.attributes
    parts: list[str] = []
    if isinstance(a, Convolution):
        weights = graph.tensors[operator.inputs[1] or 0]
        parts.append(_product(weights.shape[1:3]))
        parts += _window(a.strides, a.padding)
        if a.dilations != (1, 1):
            parts.append(f"dilation {_equal(a.dilations, '×')}")
        if a.depth_multiplier != 1:
            parts.append(f"multiplier {a.depth_multiplier}")
    elif isinstance(a, Pool):
        parts += [_product(a.window), *_window(a.strides, a.padding)]
    elif isinstance(a, Mean):
        parts.append(f"over {', '.join(map(str, a.axes))}")
    elif isinstance(a, Pad):
        parts.append(" ".join(f"{before}+{after}" for before, after in a.paddings))
    elif isinstance(a, Softmax) and a.beta != 1.0:
        parts.append(f"beta {a.beta:g}")
    elif isinstance(a, CallTir):
        parts.append(a.name)
    clamp = getattr(a, "clamp", (-128, 127))
    limits = getattr(a, "limits", None)
    if clamp == NO_CLAMP and limits is not None:
        parts += _float_clamp(*limits)
    elif clamp not in ((-128, 127), (-32768, 32767), NO_CLAMP):
        parts.append(f"clamp {clamp[0]}..{clamp[1]}")
    return ", ".join(parts)


def _float_clamp(low: float, high: float) -> list[str]:
    """A clamp without the ends that the type of the values has anyway."""
    ends = (f"{low:g}" if low > -_LARGEST else "", f"{high:g}" if high < _LARGEST else "")
    return [f"clamp {ends[0]}..{ends[1]}"] if any(ends) else []


def graph_svg(graph: Graph) -> str:
    """The picture of a graph, as the text of an SVG file without outside references."""
    boxes, edges = _nodes_and_edges(graph)
    layout = lay_out(len(boxes), [(edge.start, edge.end) for edge in edges])
    width = round(2 * _MARGIN + max(layout.width * _COLUMN, 2 * _COLUMN))
    height = round(_HEADER + 2 * _MARGIN + layout.height * _ROW - (_ROW - _BOX_HEIGHT))
    shift = (width - layout.width * _COLUMN) / 2
    places = [
        (shift + column * _COLUMN, _HEADER + _MARGIN + row * _ROW)
        for column, row in zip(layout.columns, layout.rows, strict=True)
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">',
        f"<title>{_text(graph.name)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse">'
        f'<path d="M0,0.5 L8,4 L0,7.5 z" fill="{_LINE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="{_PAPER}"/>',
        *_header(graph, width),
    ]
    parts += [_edge_path(edge, layout, places, shift) for edge in edges]
    parts += [_box(box, *place) for box, place in zip(boxes, places, strict=True)]
    parts += _edge_labels(edges, layout, places)
    return "\n".join([*parts, "</svg>", ""])


def _text(text: str) -> str:
    # XML has no control characters, not even escaped.
    return escape(readable(text, kept=""))


def _nodes_and_edges(graph: Graph) -> tuple[list[_Box], list[_Edge]]:
    boxes = [_border("input", graph.tensors[number]) for number in graph.inputs]
    makers = {number: node for node, number in enumerate(graph.inputs)}
    edges: list[_Edge] = []
    for operator in graph.operators:
        node = len(boxes)
        boxes.append(_operator_box(graph, operator))
        for number in dict.fromkeys(i for i in operator.inputs if i in makers):
            assert number is not None
            edges.append(_Edge(makers[number], node, graph.tensors[number]))
        makers.update((number, node) for number in operator.outputs)
    for number in graph.outputs:
        if number in makers:
            edges.append(_Edge(makers[number], len(boxes), graph.tensors[number]))
        boxes.append(_border("output", graph.tensors[number]))
    return boxes, edges


def _border(what: str, tensor: Tensor) -> _Box:
    q = tensor.quantization
    quantization = f"scale {q.scales[0]:.5g}, zero point {q.zero_points[0]}" if q else ""
    return _Box(
        title=f"{what} {tensor.name}",
        corner="",
        lines=(f"{tensor.dtype} {_product(tensor.shape)}", quantization),
        tooltip=f"{what} {tensor.name}",
        colours=_BORDER_COLOURS,
        is_border=True,
    )


def _operator_box(graph: Graph, operator: Operator) -> _Box:
    inputs = [graph.tensors[i] for i in operator.inputs if i is not None]
    weights = sum(t.size_bytes for t in inputs if t.data is not None)
    cost = []
    if weights:
        cost.append(f"{_bytes(weights)} weights")
    work = macs(graph, operator)
    if work:
        cost.append(f"{_count(work)} MACs")
    made = ", ".join(graph.tensors[i].name for i in operator.outputs)
    detail = describe(graph, operator)
    lines = [line for line in (detail, " · ".join(cost)) if line]
    lines += [""] * (2 - len(lines))
    return _Box(
        title=operator.kind,
        corner="+".join(str(i) for i in operator.sources),
        lines=(lines[0], lines[1]),
        tooltip=f"operator {operator.sources[0]}: {operator.kind} {detail} makes {made}",
        colours=_COLOURS.get(operator.kind, _OTHER_COLOURS),
    )


def _header(graph: Graph, width: int) -> list[str]:
    weights = sum(t.size_bytes for t in graph.tensors if t.data is not None)
    summary = (
        f"{counted(len(graph.operators), 'operator')} · {_bytes(weights)} weights · "
        f"{_count(total_macs(graph))} MACs"
    )
    middle = width // 2
    return [
        f'<text x="{middle}" y="38" text-anchor="middle" font-size="20" font-weight="bold" '
        f'fill="{_INK}">{_text(_cut(graph.name, width // 13))}</text>',
        f'<text x="{middle}" y="60" text-anchor="middle" font-size="13" '
        f'fill="{_SOFT_INK}">{_text(summary)}</text>',
    ]


def _box(box: _Box, x: float, y: float) -> str:
    fill, border = box.colours
    left = x - _BOX_WIDTH / 2
    radius = 2 * _RADIUS if box.is_border else _RADIUS
    ink, soft = (_PAPER, "#cfd8e0") if box.is_border else (_INK, _SOFT_INK)
    parts = [
        f"<g><title>{_text(box.tooltip)}</title>",
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" '
        f'rx="{radius:g}" fill="{fill}" stroke="{border}" stroke-width="1.2"/>',
    ]
    lines = [line for line in box.lines if line]
    # The block of lines is centred: 17 px for the title, 15 for each detail.
    base = y + (_BOX_HEIGHT - 17 - 15 * len(lines)) / 2 + 13
    middle = f'x="{x:.1f}" text-anchor="middle"'
    title = _text(_cut(box.title, _TITLE_CHARACTERS))
    parts.append(
        f'<text {middle} y="{base:.1f}" font-size="13" font-weight="bold" fill="{ink}">'
        f"{title}</text>"
    )
    for number, line in enumerate(lines, 1):
        text = _text(_cut(line, _DETAIL_CHARACTERS))
        parts.append(
            f'<text {middle} y="{base + 1 + 15 * number:.1f}" font-size="11" fill="{soft}">'
            f"{text}</text>"
        )
    if box.corner:
        parts.append(
            f'<text x="{left + _BOX_WIDTH - 6:.1f}" y="{y + 11:.1f}" text-anchor="end" '
            f'font-size="9" fill="{border}">{_text(_cut(box.corner, 12))}</text>'
        )
    return "".join([*parts, "</g>"])


def _edge_path(
    edge: _Edge, layout: Layout, places: Sequence[tuple[float, float]], shift: float
) -> str:
    """A line from box to box: straight down at both ends, and around the boxes that it passes."""
    (x, y), (end_x, end_y) = places[edge.start], places[edge.end]
    path = f"M{x:.1f},{y + _BOX_HEIGHT:.1f} V{y + _BOX_HEIGHT + _STUB:.1f}"
    y += _BOX_HEIGHT + _STUB
    for column, row in layout.waypoints[edge.start, edge.end]:
        next_x, top = shift + column * _COLUMN, _HEADER + _MARGIN + row * _ROW
        path += _bend(x, y, next_x, top) + f" L{next_x:.1f},{top + _BOX_HEIGHT:.1f}"
        x, y = next_x, float(top + _BOX_HEIGHT)
    path += _bend(x, y, end_x, end_y - 1)
    return (
        f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="1.5" marker-end="url(#tip)"/>'
    )


def _bend(x: float, y: float, next_x: float, next_y: float) -> str:
    if abs(x - next_x) < 0.05:
        return f" L{next_x:.1f},{next_y:.1f}"
    middle = (y + next_y) / 2
    return f" C{x:.1f},{middle:.1f} {next_x:.1f},{middle:.1f} {next_x:.1f},{next_y:.1f}"


def _edge_labels(
    edges: Sequence[_Edge], layout: Layout, places: Sequence[tuple[float, float]]
) -> list[str]:
    """Each tensor's shape once, just below the box that makes it; inputs and outputs have theirs
    inside."""
    labels = {edge.start: edge.tensor for edge in reversed(edges)}
    parts = []
    for start, tensor in labels.items():
        x, y = places[start]
        text = f"{_product(tensor.shape)} {tensor.dtype}"
        parts.append(
            f'<text x="{x + 7:.1f}" y="{y + _BOX_HEIGHT + 16:.1f}" font-size="10.5" '
            f'fill="{_SOFT_INK}" stroke="{_PAPER}" stroke-width="3" paint-order="stroke">'
            f"{_text(text)}</text>"
        )
    return parts


def _window(strides: tuple[int, int], padding: tuple[int, int, int, int]) -> list[str]:
    parts = [] if strides == (1, 1) else [f"stride {_equal(strides, '×')}"]
    if any(padding):
        parts.append(f"pad {_equal(padding, ' ')}")
    return parts


def _equal(numbers: Sequence[int], separator: str) -> str:
    """The numbers, or just one if they are all the same."""
    return separator.join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))


def _product(numbers: Sequence[int]) -> str:
    return "×".join(map(str, numbers)) or "scalar"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _bytes(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB"


def _count(number: int) -> str:
    if number < 1000:
        return str(number)
    return f"{number / 1e3:.1f} k" if number < 1_000_000 else f"{number / 1e6:.2f} M"
