"""A machine that runs a target's images within this process: there is no line to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Stopped(Exception):
    """A call did not return."""

    def __init__(self, words: Sequence[int], is_late: bool) -> None:
        super().__init__("a call was stopped")
        #: Those of the target's fault records.
        self.words = tuple(words)
        #: Whether it had no instructions left.
        self.is_late = is_late


class Machine(Protocol):
    """An image at work."""

    #: Address and bytes of the image's code.
    code: tuple[int, int]

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory or of code."""

    def write(self, address: int, data: bytes) -> None:
        """Change memory; a module that is written becomes callable."""

    def can_call(self, address: int) -> bool:
        """Whether a function begins there."""

    def call(self, address: int, words: Sequence[int], most: int) -> int:
        """Call a function; the instructions that it took, or ``Stopped`` after ``most`` of them."""


@dataclass(frozen=True)
class MachineKind:
    """How a target's images start."""

    #: Of the Python package that it is in.
    name: str
    #: MissingTool if the machine is not installed.
    check: Callable[[], None]
    open: Callable[[Path], Machine]
