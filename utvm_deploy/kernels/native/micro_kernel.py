"""What every micro-kernel of convolutions tells: its C function, where sums begin and end."""

from __future__ import annotations

from typing import Any, Protocol

from utvm_deploy.kernels.portable.tensor_ir import Buffers


class MicroKernel(Protocol):
    """A C function, how it wants its tables, and what it does with them."""

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

    def bias(self, buffers: Buffers, channel: Any, /) -> Any:
        """Where the sum of a channel begins."""

    def scaled(self, buffers: Buffers, total: Any, channel: Any, /) -> Any:
        """The output, int8."""
