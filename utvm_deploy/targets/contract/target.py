"""What the rest of the package asks about an architecture: one ``Target`` for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.fault import NO_WORDS, FaultWords
from utvm_deploy.targets.contract.timing import Timing


@dataclass(frozen=True)
class Timings:
    """The timing tables of a target's cores, by the core's name."""

    #: The tables of the cycle model.
    counting: Mapping[str, Timing] = field(default_factory=dict)
    #: The tables that order the instructions of assembly kernels.
    ordering: Mapping[str, Timing] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """An architecture: its folder below ``targets/`` has all that is its own."""

    name: str
    #: Its number in the fault records of the wire.
    tag: int
    cores: tuple[Core, ...]
    faults: FaultWords = NO_WORDS
    timings: Timings = Timings()
