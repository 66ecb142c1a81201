"""How a target's images, modules and objects are read and linked, where they are not ELF files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Binary:
    """What is in an image, or in an object."""

    #: Global name -> address; 0 for all in an object.
    functions: Mapping[str, int]
    objects: Mapping[str, int]
    #: Names that an object asks for.
    undefined: frozenset[str] = frozenset()
    #: Name -> bytes, whether the file stores them, and whether the program writes them.
    sections: Mapping[str, tuple[int, bool, bool]] = field(default_factory=dict)
    #: What an object wants done before its first call, as a phrase; else empty.
    needs_start: str = ""


@dataclass(frozen=True)
class Placed:
    """A module that was linked for an address: bytes that are written there."""

    data: bytes
    #: With what follows the bytes.
    size_bytes: int
    functions: Mapping[str, int]
    objects: Mapping[str, int]


@dataclass(frozen=True)
class BinaryFormat:
    """The functions that read a format; each raises BuildError for a file that is not of it."""

    read: Callable[[Path], Binary]
    #: Folder to work in, functions of the image, address -> arguments of the compiler that link
    #: a module for this address, in addition to the object and the output.
    link_arguments: Callable[[Path, Iterable[str], int], list[str]]
    #: A module that was linked so, its object, and the address.
    placed: Callable[[Path, Path, int], Placed]
    #: Exported functions, bytes of stack -> arguments that link a module of a model alone.
    standalone_arguments: Callable[[Sequence[str], int], list[str]]
    #: Name -> compiler flags of modules for engines with fewer instructions; the best comes first.
    variants: Mapping[str, tuple[str, ...]]
    #: Compiler flags that make code smaller.
    smaller: tuple[str, ...]
