"""What a compiled model says of memory: bytes of the arena and of the constants, and its pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def named_facts(thing: object, *names: str) -> dict[str, Any]:
    """Attributes by their names, as ``--json`` has them."""
    return {name: getattr(thing, name) for name in names}


@dataclass(frozen=True)
class Span:
    """Bytes of the arena, or of the constant tables."""

    offset: int
    size_bytes: int


@dataclass(frozen=True)
class ArenaUse:
    """Bytes of the arena that hold one thing from layer ``first`` to layer ``last``."""

    name: str  # of the tensor; several that share bytes have the name of one
    kind: str  # "input", "output", "activation", "state" or "scratch"
    offset: int
    size_bytes: int
    first: int
    last: int

    def to_dict(self) -> dict[str, Any]:
        """The use for ``--json``."""
        place = named_facts(self, "name", "kind", "offset") | {"bytes": self.size_bytes}
        return place | named_facts(self, "first", "last")


@dataclass(frozen=True)
class Resident:
    """A constant table that layers read from a pool."""

    table: str  # member of the struct of constants
    constant: Span  # its source, among the constants
    offset: int  # of the copy, in bytes from the start of the pool
    layers: tuple[int, ...]


@dataclass(frozen=True)
class MemoryPool:
    """A memory besides the arena's; ``NAME_run`` takes a pointer to it."""

    name: str  # of the board's region
    limit_bytes: int  # that the caller set
    size_bytes: int  # that the model needs
    scratch_bytes: int  # bytes at the start that hold scratch of the layers
    # Activations after it, and when they are there; offsets are from the start of the pool.
    uses: tuple[ArenaUse, ...]
    residents: tuple[Resident, ...]

    @property
    def is_written(self) -> bool:
        """Whether runs write there."""
        return bool(self.scratch_bytes or self.uses)

    @property
    def parameter(self) -> str:
        """What the C calls its pointer."""
        return f"pool_{self.name}"

    @property
    def activation_bytes(self) -> int:
        """Bytes that activations take, at different times."""
        end = max((use.offset + use.size_bytes for use in self.uses), default=0)
        return end - min((use.offset for use in self.uses), default=0)

    @property
    def text(self) -> str:
        """What it holds, in one line."""
        copies = sum(one.constant.size_bytes for one in self.residents)
        layers = sorted({layer for one in self.residents for layer in one.layers})
        of = f" of layers {', '.join(map(str, layers))}" if layers else ""
        return (
            f"pool {self.name}: {self.size_bytes:,} of {self.limit_bytes:,} bytes: scratch "
            f"{self.scratch_bytes:,}, activations {self.activation_bytes:,}, copies of weights "
            f"{copies:,}{of}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The pool for ``--json``."""
        uses = [use.to_dict() for use in self.uses]
        return {
            **named_facts(self, "name", "limit_bytes"),
            "bytes": self.size_bytes,
            **named_facts(self, "scratch_bytes", "activation_bytes"),
            "activations": [{k: v for k, v in use.items() if k != "kind"} for use in uses],
            "weights": [
                named_facts(one, "table", "offset")
                | {"bytes": one.constant.size_bytes, "layers": list(one.layers)}
                for one in self.residents
            ],
        }
