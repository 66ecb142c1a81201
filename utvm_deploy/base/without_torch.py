"""TVM loaded without PyTorch.

TVM's FFI imports PyTorch where it is installed. That takes twice as much time as TVM itself, and
only who gives PyTorch's own objects to TVM needs it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoTorch(MetaPathFinder):
    """Refuses PyTorch in the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """ModuleNotFoundError for PyTorch; None for other names, so the next finder is asked."""
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("TVM is loaded without PyTorch", name=name)
        return None


@contextmanager
def without_torch() -> Iterator[None]:
    """Inside, this thread cannot load PyTorch; a process that has it keeps it."""
    if "torch" in sys.modules:
        yield
        return
    finder = _NoTorch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
