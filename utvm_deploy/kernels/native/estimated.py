"""The choice among the kernels of a layer by their estimated cycles and their scratch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Protocol, TypeVar

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.strategy import Choices, Wish

#: Scratch that a kernel takes by default at most, if any kernel takes so little.
MOST_SCRATCH_BYTES = 12_288
#: Scratch of a candidate for measuring at most.
MOST_CANDIDATE_BYTES = 24_000
#: Less scratch is worth this factor of cycles.
_WORTH = 1.02


class Estimated(Protocol):
    """A hashable kernel with an estimate of its cycles."""

    def __hash__(self) -> int: ...

    @property
    def scratch(self) -> tuple[Operand, ...]:
        """The buffers of a call."""

    @property
    def estimated_cycles(self) -> float:
        """About what a call takes, in cycles."""


class WithChoices(Estimated, Protocol):
    """A kernel that knows the choices of its candidate."""

    @property
    def choices(self) -> Choices:
        """The choices of a candidate for this kernel."""


_Kernel = TypeVar("_Kernel", bound=Estimated)


def best_kernel(
    kernels: Iterable[_Kernel], wish: Wish, most_bytes: int = MOST_SCRATCH_BYTES
) -> _Kernel | None:
    """The kernel with the least scratch among those that are about as fast as the fastest.

    Kernels with more scratch than the wish has, or else than ``most_bytes``, do not count, unless
    all have more. None if there are no kernels.
    """
    sizes = {kernel: scratch_bytes(kernel) for kernel in kernels}
    if not sizes:
        return None
    most = most_bytes if wish.most_scratch is None else wish.most_scratch
    most = max(most, min(sizes.values()))
    cycles = {kernel: _cycles(kernel) for kernel, size in sizes.items() if size <= most}
    limit = _WORTH * min(cycles.values())
    fast = (kernel for kernel, count in cycles.items() if count <= limit)
    return min(fast, key=sizes.__getitem__)


def choices_of_small(
    kernels: Iterable[WithChoices], most_bytes: int = MOST_CANDIDATE_BYTES
) -> Iterator[Choices]:
    """The choices of the kernels whose scratch is worth a measurement."""
    return (one.choices for one in kernels if scratch_bytes(one) <= most_bytes)


# The search for a smaller arena asks for the same kernels of a layer again and again.
@lru_cache(maxsize=8192)
def scratch_bytes(kernel: Estimated) -> int:
    """The bytes of all buffers of a call."""
    return sum(one.size_bytes for one in kernel.scratch)


@lru_cache(maxsize=8192)
def _cycles(kernel: Estimated) -> float:
    return kernel.estimated_cycles
