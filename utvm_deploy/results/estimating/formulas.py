"""What layers cost by formulas: constants of a core, fitted to layers that a board ran.

A layer's ticks are a sum of its features (``FEATURES``), each times a constant of its kernel's
class. So is its code. The
constants are in ``targets/estimates/CORE.json``, which ``benchmarks/estimate/fit.py`` writes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from utvm_deploy.base.paths import estimates_file
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.reading import reading_of
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.results.estimating.shape_plan import ShapedLayer
from utvm_deploy.targets.contract.costs import CostTable

#: What ``features_of`` gives, in this order.
FEATURES = (
    "call",
    "channels",
    "kernel's own estimate",
    "products",
    "outputs",
    "inputs",
    "weights",
    "pixels",
    "rows",
    "gathered values",
    "input channels of all pixels",
    "products of odd channels",
    "products of fours of outputs that are not whole",
    "rows of windows",
    "rows of windows at borders",
    "values of padded pools",
    "weights that are unpacked",
)
#: The class of layers whose own class has no formula: all of a family of kernels.
ANY = "*"
_SIZE = re.compile(r"[a-z]?\d")


@dataclass(frozen=True)
class Errors:
    """The share by which an estimate is wrong, over nets that no constant was fitted to."""

    median: float
    worst: float


@dataclass(frozen=True)
class Formulas:
    """What is known of a core's kernels."""

    board: str  # that ran the layers
    unit: str  # of ticks
    nets: int  # of which the errors are
    ticks: Mapping[str, Sequence[float]]  # class of a layer -> a constant for each feature
    #: Class of a kernel -> bytes of code for each of ``code_features``; "": what all images have.
    code: Mapping[str, Sequence[float]]
    ram_base: int  # of an image, without arena and pools
    errors: Mapping[str, Errors]  # of "ticks", "ram" and "flash"

    def ticks_of(self, graph: Graph, layer: ShapedLayer) -> tuple[float, bool]:
        """A layer's ticks, and whether its class is known."""
        names = layer_classes(layer)
        constants = next((self.ticks[name] for name in names if name in self.ticks), None)
        is_known = constants is not None
        if constants is None:
            family = f"{ANY}/{layer.call.family}"
            constants = self.ticks.get(family) or self.ticks[f"{ANY}/generic"]
        pairs = zip(constants, features_of(graph, layer), strict=True)
        return sum([constant * feature for constant, feature in pairs]), is_known

    def code_bytes(self, layers: Sequence[ShapedLayer]) -> float:
        """Code of an image with these layers."""
        total = self.code[""][0]
        for name, sizes in code_features(layers).items():
            pairs = zip(self.code.get(name) or self.code[ANY], sizes, strict=True)
            total += sum([constant * size for constant, size in pairs])
        return total


@cache
def formulas_of(core: str) -> Formulas | None:
    """What was fitted for a core; None if nothing was."""
    path = estimates_file(core)
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    errors = {name: Errors(**values) for name, values in found.pop("errors").items()}
    found.pop("how")
    return Formulas(**found, errors=errors)


def kernel_class(layer: ShapedLayer) -> str:
    """Kernels with one name share a formula for their code; those of int4 and int16 have others."""
    other = f"-{layer.dtype}" if layer.dtype in ("int4", "int16") else ""
    return f"{type(layer.call.kernel).__name__}/{layer.call.family}{other}"


def code_features(layers: Sequence[ShapedLayer]) -> dict[str, tuple[float, ...]]:
    """Of each class: 1, its kernels, the routines that they share, and the steps of these.

    A step is what a routine's loop computes at once: its code grows with it.
    """
    kernels: dict[str, set[object]] = {}
    for one in layers:
        kernels.setdefault("/".join((kernel_class(one), form_of(one))), set()).add(one.call.kernel)
    found: dict[str, tuple[float, ...]] = {}
    for name, some in kernels.items():
        routines = {routine for kernel in some for routine in _routines(kernel)}
        steps = sum(getattr(one, "step", 0) for one in routines)
        found[name] = (1, len(some), len(routines), steps)
    return found


def _routines(kernel: Any) -> tuple[object, ...]:
    """The routines of assembly that a kernel shares with others; the kernel, if it has none."""
    forms = getattr(kernel, "forms", None)
    one = getattr(kernel, "product", None) or getattr(kernel, "routine", None) or kernel
    return (one,) if forms is None else tuple(forms)


def form_of(layer: ShapedLayer) -> str:
    """The words of a kernel's name, without its sizes, such as 8, 3x3 and s2x2."""
    parts = layer.call.kernel.name.split("_")
    return "_".join(part for part in parts if not _SIZE.match(part))


def layer_classes(layer: ShapedLayer) -> tuple[str, str]:
    """Layers with one name share a formula for their ticks: a narrow class, and a wide one."""
    wide = f"{layer.operator.kind}/{kernel_class(layer)}"
    return f"{wide}/{form_of(layer)}", wide


def features_of(graph: Graph, layer: ShapedLayer) -> tuple[float, ...]:
    """The numbers of a layer that its ticks may grow with."""
    operator, call = layer.operator, layer.call
    out = graph.tensors[operator.outputs[0]].shape
    tensors = [graph.tensors[one] for one in operator.inputs if one is not None]
    read = [one.shape for one in tensors if one.data is None]
    weights = tensors[1].shape if len(tensors) > 1 and tensors[1].data is not None else ()
    outputs, channels = math.prod(out), out[-1] if out else 1
    depth = read[0][-1] if read and read[0] else 1
    window = getattr(call.kernel, "window", None)
    products = call.macs if call.products is None else call.products
    rows, outer_rows, padded = 0, 0, 0
    if isinstance(window, Window) and products:
        rows, outer_rows = _rows_of_windows(window)
    elif isinstance(window, Window):  # a pool's products are the values that it looks at
        products = outputs * math.prod(window.kernel)
        padded = products if window.is_padded else 0
    pixels = outputs // max(channels, 1)
    is_convolution = operator.kind == "CONV_2D"
    return (
        1,
        channels,
        layer.cycles,
        products,
        outputs,
        sum(map(math.prod, read)),
        math.prod(weights) if weights else 0,
        pixels,
        math.prod(out[:-2]) if len(out) > 2 else 1,
        pixels * (products // max(outputs, 1)) if is_convolution else 0,
        pixels * depth,
        products if depth % 4 else 0,
        products * (-channels % 4) / max(channels, 1),
        rows,
        outer_rows,
        padded,
        reading_of(call.kernel).unpacked,
    )


def _rows_of_windows(w: Window) -> tuple[int, int]:
    """Of all windows, and of those that are partly outside of the image."""
    y, x = np.arange(w.output_height), np.arange(w.output_width)
    rows = (w.row(y, 0) >= w.top) & (w.row(y, w.kernel[0] - 1) < w.top + w.height)
    columns = (w.column(x, 0) >= w.left) & (w.column(x, w.kernel[1] - 1) < w.left + w.width)
    each, whole = w.batch * w.kernel[0], rows.size * columns.size
    return each * whole, each * (whole - int(rows.sum()) * int(columns.sum()))


def rough_cycles(graph: Graph, layer: ShapedLayer, table: CostTable) -> float:
    """What a layer costs by the planner's constants, for cores without formulas."""
    per_mac = table.per_portable_mac if layer.call.family == "generic" else table.per_native_mac
    out = sum(graph.tensors[one].size_bytes for one in layer.operator.outputs)
    return table.per_call + per_mac * layer.call.macs + table.per_output_byte * out
