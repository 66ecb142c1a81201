"""The results of comparing two engines: facts and the ratios that follow from them.

Figures are named numbers, because one run may give several. A real board gives cycles. An emulated
one gives instructions, or the figures of a cycle model. Ratios use the first figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.base.results import one_line
from utvm_deploy.results.profiling.placement import Placement

Figures = Mapping[str, int]

#: Figures that are time, or stand for it: only their ratios mean anything.
TIMES = ("cycles", "nanoseconds", "core", "pessimistic", "rich", "instructions")

#: Where the other engine's figures come from.
MEASURED = "measured"
RECORDED = "recorded"


def library_of(engine: str) -> str:
    """The name at the beginning of an engine and its provenance, such as "CMSIS-NN"."""
    return engine.partition(" ")[0].rstrip(",")


@dataclass(frozen=True)
class LayerComparison:
    """One layer on both engines; ``theirs`` is None if it is not known."""

    index: int
    kind: str
    name: str
    macs: int
    kernel: str  # ours
    ours: Figures
    theirs: Figures | None
    # The other engine's function; empty if it has none and our kernel ran instead.
    their_kernel: str
    output_bytes: int
    # Bytes of the outputs that differ for equal inputs; None if nothing was compared.
    differing_bytes: int | None

    def ratio(self, figure: str) -> float | None:
        """Theirs over ours: above 1 we are faster."""
        return _ratio(self.theirs, self.ours, figure)


@dataclass(frozen=True)
class EngineSize:
    """What an engine's image takes."""

    arena_bytes: int
    weights_bytes: int
    flash_bytes: int
    ram_bytes: int


@dataclass(frozen=True)
class BuildRun:
    """One build of the other engine's library, measured on the whole model."""

    label: str
    built_with: str
    figures: Figures
    # Layers whose output bytes differ from ours for equal inputs.
    differing_layers: tuple[int, ...]


@dataclass(frozen=True)
class OtherPlacement:
    """The whole model again, with the whole arena elsewhere."""

    region: str
    ours: Figures
    theirs: Figures  # of the fastest build there
    build: str = ""

    def ratio(self, figure: str) -> float | None:
        """Theirs over ours."""
        return _ratio(self.theirs, self.ours, figure)


@dataclass(frozen=True, repr=False)
class ModelComparison:
    """One model on both engines."""

    name: str
    board: str
    source: str  # MEASURED or RECORDED
    engine: str  # the other engine and its provenance
    inputs: str  # which samples were run
    layers: tuple[LayerComparison, ...]
    ours: Figures  # the whole model in one call
    theirs: Figures | None  # the same; None if recorded
    our_size: EngineSize
    their_size: EngineSize | None
    our_placement: Placement
    their_placement: Placement | None
    # Whether cycles are those of a model of the core, never measured on silicon.
    is_modelled: bool = False
    # Both engines with everything in tightly coupled RAM, where the board has enough of it.
    elsewhere: OtherPlacement | None = None
    # Where the other engine was built in several ways: the fastest for the whole model, whose
    # figures the fields above are, and all of them.
    build: str = ""
    builds: tuple[BuildRun, ...] = ()
    # The other engine's fastest build on the model as it is in the file, where ours dropped
    # channels: its whole run. None if both engines computed the same channels anyway.
    in_file: BuildRun | None = None

    __repr__ = one_line

    @property
    def library(self) -> str:
        """The other engine's name."""
        return library_of(self.engine)

    @property
    def headline(self) -> str:
        """How many times as fast ours is."""
        ratio = self.ratio(self.figures[0]) if self.figures else None
        told = "nothing to compare" if ratio is None else f"{ratio:.2f} times as fast as"
        return f"{self.name} on {self.board}: {told} {self.engine}, {len(self.layers)} layers"

    @property
    def figures(self) -> tuple[str, ...]:
        """The times that both engines have, the one to judge by first."""
        known = [layer.theirs for layer in self.layers if layer.theirs is not None]
        shared = [f for f in self.ours if known and all(f in figures for figures in known)]
        return (*shared[:1], *(f for f in TIMES if f in shared[1:]))

    @property
    def unit_label(self) -> str:
        """The figure that decides, as a text for people."""
        headline = next(iter(self.ours))
        return f"modelled {headline}" if self.is_modelled else headline

    def ratio(self, figure: str) -> float | None:
        """Theirs over ours: of the whole runs, or of the layers that are recorded."""
        if self.source == MEASURED:
            return _ratio(self.theirs, self.ours, figure)
        ours, theirs = self.matched(figure)
        return theirs / ours if ours and theirs else None

    def end_to_end_ratio(self, figure: str) -> float | None:
        """Theirs on the model as it is in the file, over ours: what a user gains."""
        if self.in_file is None:
            return self.ratio(figure)
        return _ratio(self.in_file.figures, self.ours, figure)

    def matched(self, figure: str) -> tuple[int, int]:
        """Sums over the layers that both engines have: ours and theirs."""
        pairs = [
            (layer.ours[figure], layer.theirs[figure])
            for layer in self.layers
            if layer.theirs is not None and figure in layer.theirs
        ]
        return sum(a for a, _ in pairs), sum(b for _, b in pairs)

    @property
    def differing_layers(self) -> tuple[LayerComparison, ...]:
        """Layers whose outputs are not byte for byte equal."""
        return tuple(layer for layer in self.layers if layer.differing_bytes)


@dataclass(frozen=True)
class NotCompared:
    """A model that has no result, and why."""

    name: str
    file: str
    kind: str  # of the error
    reason: str


def _ratio(theirs: Figures | None, ours: Figures, figure: str) -> float | None:
    if theirs is None or not theirs.get(figure) or not ours.get(figure):
        return None
    return theirs[figure] / ours[figure]
