"""What the layers of a model left behind on a device, as lines, tables and bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utvm_deploy.compiler.model import Layer
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import shape_text
from utvm_deploy.pages.bars_picture import bars_svg
from utvm_deploy.pages.notebook import Tabled


@dataclass(frozen=True, repr=False)
class LayerRun(Tabled):
    """What one layer left behind; one that was replaced took 0 ticks."""

    layer: Layer
    ticks: int
    outputs: tuple[Array, ...]
    is_replaced: bool = False

    @property
    def headline(self) -> str:
        """The layer, what it took, and the types and shapes of what it made."""
        made = ", ".join(shape_text(str(one.dtype), one.shape) for one in self.outputs)
        took = "replaced" if self.is_replaced else f"{self.ticks:,} ticks"
        return f"layer {self.layer.index} {self.layer.kind}: {took}, {made}"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each output."""
        return [
            {
                "output": place,
                "shape": list(one.shape),
                "dtype": str(one.dtype),
                "least": one.min().item() if one.size else None,
                "greatest": one.max().item() if one.size else None,
            }
            for place, one in enumerate(self.outputs)
        ]


class LayerRuns(list[LayerRun], Tabled):
    """What ``run_layers`` returns: a list with a table."""

    @property
    def headline(self) -> str:
        """Layers and ticks."""
        return f"{len(self)} layers, {sum(one.ticks for one in self):,} ticks"

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each layer; a replaced one took 0 ticks."""
        return [
            {
                "layer": one.layer.index,
                "operator": one.layer.kind,
                "ticks": one.ticks,
                "replaced": one.is_replaced,
                "outputs": ", ".join(shape_text(str(o.dtype), o.shape) for o in one.outputs),
            }
            for one in self
        ]

    @property
    def svg(self) -> str | None:
        """Bars of the ticks of each layer."""
        rows = [(f"{one.layer.index} {one.layer.kind}", [float(one.ticks)]) for one in self]
        return bars_svg("ticks of each layer", rows, ["ticks"])

    __repr__ = Tabled.__repr__
