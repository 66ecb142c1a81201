"""The facts of a choice among int4, int8 and int16x8 for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.quality.quantizing.facts import INT4, INT8, INT16X8, SCHEMES

#: Losses with labels: percentage points of accuracy below the float model.
POINTS = "percentage points"
#: Losses without labels: dB of SQNR below the int16x8 model.
DECIBELS = "dB"


@dataclass(frozen=True)
class LayerPrice:
    """What a layer takes on the board."""

    ticks: int
    weights_bytes: int


@dataclass(frozen=True)
class ModelPrice:
    """What a whole model takes on the board, as ``utvm profile`` measures it."""

    ticks: int
    unit: str
    ram_bytes: int
    flash_bytes: int
    layers: Mapping[str, LayerPrice]  # by the name of the layer's output


@dataclass(frozen=True)
class LayerSensitivity:
    """What quantizing one operator alone costs, by scheme; everything else stays float.

    ``sqnr_db`` is of the model's outputs: None where they do not change. ``points`` are percentage
    points of accuracy, with labels only.
    """

    index: int  # position in the float model
    kind: str
    output: str
    sqnr_db: Mapping[str, float | None]
    points: Mapping[str, float] | None
    prices: Mapping[str, LayerPrice]  # empty without a board


@dataclass(frozen=True)
class Budgets:
    """What a mixed model may take on the board; None sets no limit."""

    ram: int | None = None
    flash: int | None = None
    cycles: int | None = None

    def excess(self, price: ModelPrice) -> tuple[str, ...]:
        """What is over a budget, as sentences' parts."""
        rows = (
            ("RAM", price.ram_bytes, self.ram, "bytes"),
            ("flash", price.flash_bytes, self.flash, "bytes"),
            ("time", price.ticks, self.cycles, price.unit),
        )
        return tuple(
            f"{what} {taken:,} of {most:,} {unit}"
            for what, taken, most, unit in rows
            if most is not None and taken > most
        )

    @property
    def are_set(self) -> bool:
        """Whether there is any."""
        return any(one is not None for one in (self.ram, self.flash, self.cycles))


@dataclass(frozen=True)
class Mixed:
    """A choice for each layer, and what it comes to."""

    wide: tuple[str, ...]  # outputs of the operators with int16 activations
    loss: float
    loss_unit: str  # POINTS or DECIBELS
    losses: Mapping[str, float]  # of each scheme for all layers, in the same unit
    price: ModelPrice | None
    prices: Mapping[str, ModelPrice]  # of each scheme for all layers; empty without a board
    is_within: bool  # whether the loss is at most what was allowed
    # Of the file that the loss alone chose, if it takes more RAM or flash than int8 and int16x8.
    dearer: ModelPrice | None = None
    narrow: tuple[str, ...] = ()  # outputs of the operators with weights of int4

    def scheme_of(self, output: str) -> str:
        """The scheme of the operator that makes ``output``."""
        if output in self.wide:
            return INT16X8
        return INT4 if output in self.narrow else INT8

    @property
    def note(self) -> str | None:
        """One sentence on ``dearer``: what it takes, and which budgets allow it."""
        if self.dearer is None:
            return None
        pure = tuple(self.prices[scheme] for scheme in SCHEMES)
        rows = (
            ("RAM", self.dearer.ram_bytes, max(one.ram_bytes for one in pure)),
            ("flash", self.dearer.flash_bytes, max(one.flash_bytes for one in pure)),
        )
        over = [(what, taken) for what, taken, most in rows if taken > most]
        told = " and ".join(f"{taken:,} bytes of {what}" for what, taken in over)
        budgets = " and ".join(f"a {what} budget of {taken:,} bytes" for what, taken in over)
        return (
            f"a mix with fewer int16x8 layers takes {self.dearer.ticks:,} {self.dearer.unit}, but "
            f"also {told}, more than int8 and int16x8 do; to allow it, give {budgets}"
        )
