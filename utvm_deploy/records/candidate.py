"""A candidate: one way to compute a kernel, as frozen data: a family and its choices.

    Candidate("dsp", (("pixels", 12), ("step", 16)))

The family (``kernels``) knows the meaning of the choices. ``tune`` measures candidates and keeps
the results in records. Without choices, the family chooses.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The family that every kernel has: plain C.
GENERIC = "generic"
#: The family of kernels that leave out zeros, which every core has, too.
SPARSE = "sparse"
#: The family of calls of the user's CMSIS-NN.
CMSIS_NN = "cmsis-nn"
#: What the families of plug-ins' backends begin with.
PLUGIN_PREFIX = "backend-"
#: How much a kernel does for fewer bytes of flash: a little, which costs little time, or
#: everything, with code that many layers share.
COMPACT_LITTLE, COMPACT_MOST = 1, 2
_LONGEST_SHOWN = 80


def is_of_backend(family: str) -> bool:
    """Whether the family is that of a backend's calls, and none of our kernels."""
    return family == CMSIS_NN or family.startswith(PLUGIN_PREFIX)


@dataclass(frozen=True)
class Candidate:
    """A family of kernels and its choices; equal candidates make equal code."""

    family: str
    # Sorted by name, each name once.
    choices: tuple[tuple[str, int | str], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.choices]
        if names != sorted(set(names)):
            raise ValueError(f"the choices of a candidate are not sorted by name: {self.choices}")

    @classmethod
    def of(cls, family: str, **choices: int | str) -> Candidate:
        """A candidate with the choices in any order."""
        return cls(family, tuple(sorted(choices.items())))

    @property
    def label(self) -> str:
        """For people: ``dsp pixels=12 step=16``. Of a long text it has the digest."""
        return " ".join([self.family, *(f"{name}={_short(value)}" for name, value in self.choices)])

    def choice(self, name: str) -> int | str | None:
        """What is chosen; None if the family is to choose."""
        return dict(self.choices).get(name)

    def number(self, name: str) -> int | None:
        """A choice that is an integer; ValueError if it is text."""
        value = self.choice(name)
        if isinstance(value, str):
            raise ValueError(f"{name}={value} of candidate {self.label!r} is not an integer")
        return value

    def to_json(self) -> dict[str, Any]:
        """As records have it."""
        return {"family": self.family, "choices": dict(self.choices)}

    @classmethod
    def from_json(cls, value: object) -> Candidate:
        """What ``to_json`` wrote; ValueError if it is something else."""
        if not isinstance(value, Mapping):
            raise ValueError("a candidate is not an object")
        family, choices = value.get("family"), value.get("choices", {})
        if not isinstance(family, str) or not isinstance(choices, Mapping):
            raise ValueError("a candidate has no family, or no object of choices")
        for name, choice in choices.items():
            is_text = isinstance(choice, str) and choice.isprintable()
            is_number = type(choice) is int and abs(choice) < 1 << 63
            if not name.isprintable() or not (is_text or is_number):
                raise ValueError(f"choice {name!r} is neither an integer nor text")
        return cls(family, tuple(sorted(choices.items())))


def _short(value: int | str) -> int | str:
    if isinstance(value, int) or len(value) <= _LONGEST_SHOWN:
        return value
    return f"{zlib.crc32(value.encode()):08x}"
