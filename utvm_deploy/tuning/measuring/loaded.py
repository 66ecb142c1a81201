"""What the measurer has on a device, and where its time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from utvm_deploy.device import Module, Tensor


@dataclass
class Spent:
    """Seconds by what they went into."""

    lower_s: float = 0.0
    load_s: float = 0.0
    run_s: float = 0.0

    def since(self, before: Spent) -> Spent:
        """What was spent after ``before``."""
        return Spent(
            self.lower_s - before.lower_s, self.load_s - before.load_s, self.run_s - before.run_s
        )

    def add(self, more: Spent) -> None:
        """Count what another device spent, too."""
        self.lower_s += more.lower_s
        self.load_s += more.load_s
        self.run_s += more.run_s


@dataclass
class Loaded:
    """A group on the device."""

    module: Module | None  # None if the code is in flash
    code: Mapping[str, int]  # entry -> address
    words: Tensor
    slots: Tensor
    offsets: list[list[int]]  # of each job's words, for each of its inputs
    outputs: list[Tensor]
    # What no candidate may change: each with its checksum.
    constants: list[tuple[Tensor | Module, int]]
    own: list[Tensor] = field(default_factory=list)

    def free(self) -> None:
        if self.module is not None:
            self.module.unload()
        for tensor in self.own:
            tensor.free()
