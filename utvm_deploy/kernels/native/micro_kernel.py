"""What every micro-kernel of convolutions tells of itself."""

from __future__ import annotations

from typing import Protocol


class MicroKernel(Protocol):
    """A C function of scheduled assembly, and what the report says of it."""

    @property
    def label(self) -> str:
        """Part of the kernel's name."""

    @property
    def function(self) -> str:
        """The C function's name."""

    @property
    def why(self) -> str:
        """What it does, for the report."""

    def texts(self) -> tuple[str, ...]:
        """The C texts that define the function."""
