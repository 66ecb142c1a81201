"""A run: one execution of a verb, what it was done with, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.base.results import one_line


@dataclass(frozen=True)
class ModelFigures:
    """What a run says of one model as a whole; None where the verb does not say it."""

    name: str
    sha256: str  # of the model's file
    unit: str | None = None  # of ``ticks``, such as "cycles"
    ticks: int | None = None
    ram_bytes: int | None = None
    flash_bytes: int | None = None


@dataclass(frozen=True, repr=False)
class Run:
    """One execution of a verb. ``result`` is what the verb prints with ``--json``."""

    key: str  # 12 hexadecimal digits
    verb: str
    started: float  # seconds since 1970
    seconds: float
    exit_code: int
    board: str
    git: str  # the revision of the folder it ran in; empty where there is none
    models: tuple[ModelFigures, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)

    __repr__ = one_line

    @property
    def headline(self) -> str:
        """What was run, and how it went."""
        names = ", ".join(one.name for one in self.models)
        return (
            f"{self.key}: {self.verb} of {names} on {self.board}, "
            f"{'done' if self.is_good else 'failed'} in {self.seconds:.1f} s"
        )

    @property
    def is_good(self) -> bool:
        """Whether the verb succeeded."""
        return self.exit_code == 0


def figures_of(
    verb: str, result: Mapping[str, Any], digests: Mapping[str, str]
) -> tuple[ModelFigures, ...]:
    """The figures of each model in a verb's result; ``digests`` are SHA-256 by the model's name."""
    if verb == "profile":
        return (
            ModelFigures(
                *(str(result["model"]), next(iter(digests.values()))),
                *(str(result["tick_unit"]), int(result["ticks"])),
                *(int(result["ram_bytes"]), int(result["flash_bytes"])),
            ),
        )
    if verb == "bench":
        # Models that could not be compared have no figures.
        compared = {str(one["name"]): one for one in result["models"]}
        return tuple(
            _of_bench(compared[name], digest) if name in compared else ModelFigures(name, digest)
            for name, digest in digests.items()
        )
    return tuple(ModelFigures(name, digest) for name, digest in digests.items())


def _of_bench(model: Mapping[str, Any], digest: str) -> ModelFigures:
    unit = next(iter(model["ours"]))  # the figure that everything is judged by comes first
    size = model["size"]["ours"]
    sizes = int(size["ram_bytes"]), int(size["flash_bytes"])
    return ModelFigures(str(model["name"]), digest, unit, int(model["ours"][unit]), *sizes)
