"""The choice between kernels of the DSP family by estimated cycles and by scratch.

The estimates count cycles as the cores of the default records take them: products, requantization,
what fills scratch, and cache lines that are read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Wish

#: Scratch that a kernel takes by default at most, if any kernel takes so little.
MOST_SCRATCH_BYTES = 12_288
#: Scratch of a candidate for measuring at most.
MOST_CANDIDATE_BYTES = 24_000
#: Less scratch is worth this factor of cycles.
_WORTH = 1.02
CACHE_LINE_BYTES = 32


class Estimated(Protocol):
    """A hashable kernel with an estimate of its cycles."""

    @property
    def scratch(self) -> tuple[Operand, ...]:
        """The buffers of a call."""

    @property
    def estimated_cycles(self) -> float:
        """About what a call takes, in cycles."""


_Kernel = TypeVar("_Kernel", bound=Estimated)


def scratch_bytes(kernel: Estimated) -> int:
    """Bytes of all scratch of a kernel."""
    return sum(one.size_bytes for one in kernel.scratch)


def best_kernel(kernels: Iterable[_Kernel], wish: Wish) -> _Kernel | None:
    """The kernel with the least scratch among those that are about as fast as the fastest.

    Kernels with more scratch than the wish has, or than ``MOST_SCRATCH_BYTES``, do not count,
    unless all have more. None if there are no kernels.
    """
    sizes = {kernel: scratch_bytes(kernel) for kernel in kernels}
    if not sizes:
        return None
    most = MOST_SCRATCH_BYTES if wish.most_scratch is None else wish.most_scratch
    most = max(most, min(sizes.values()))
    cycles = {kernel: kernel.estimated_cycles for kernel, size in sizes.items() if size <= most}
    limit = _WORTH * min(cycles.values())
    fast = (kernel for kernel, count in cycles.items() if count <= limit)
    return min(fast, key=sizes.__getitem__)
