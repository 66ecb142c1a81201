"""What a static library was built for: its objects' machine, and what its target reads of them.

Reads the archive itself, so that the answer needs no toolchain.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from utvm_deploy.base.errors import BuildError
from utvm_deploy.targets.contract.target import BuiltFor
from utvm_deploy.targets.table import TARGETS

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60


@dataclass(frozen=True)
class LibraryFacts:
    """What all objects of a library have in common, or the most that one of them needs."""

    path: Path
    machine: str  # of the ELF header, such as EM_ARM
    built: BuiltFor
    compiler: str  # what the objects say made them
    symbols: frozenset[str]  # global functions and objects that it defines


def read_static_library(path: Path) -> LibraryFacts:
    """The facts; BuildError if the file is not a static library of ELF objects."""
    try:
        objects = [_read_object(data) for data in _members(path.read_bytes())]
    except OSError as exc:
        raise BuildError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except (ELFError, ValueError, UnicodeDecodeError, KeyError) as exc:
        raise BuildError(
            f"{path} is not a static library of ELF objects ({exc}); give the .a file that ar wrote"
        ) from exc
    if not objects:
        raise BuildError(f"{path} holds no object; build it again")
    machines = sorted({made.machine for made in objects})
    if len(machines) > 1:
        raise BuildError(f"{path} mixes objects for {' and '.join(machines)}; build it again")
    builds = [made.built for made in objects]
    newest = max(builds, key=lambda built: built.rank)
    compilers = sorted({made.compiler for made in objects} - {""})
    return LibraryFacts(
        path=path,
        machine=machines[0],
        built=replace(
            newest,
            is_hard_float=any(built.is_hard_float for built in builds),
            has_dsp=any(built.has_dsp for built in builds),
            has_mve=any(built.has_mve for built in builds),
            has_vectors=any(built.has_vectors for built in builds),
        ),
        compiler=", ".join(compilers),
        symbols=frozenset().union(*(made.symbols for made in objects)),
    )


@dataclass(frozen=True)
class _Object:
    machine: str
    built: BuiltFor
    compiler: str
    symbols: frozenset[str]


def _members(data: bytes) -> Iterator[bytes]:
    """The ELF objects of an archive; its indexes are skipped."""
    if not data.startswith(_MAGIC):
        raise ValueError("it lacks an archive's first line")
    position = len(_MAGIC)
    while position + _HEADER_BYTES <= len(data):
        header = data[position : position + _HEADER_BYTES]
        if header[58:] != b"`\n":
            raise ValueError(f"damaged at byte {position}")
        size = int(header[48:58].decode("ascii"))
        start = position + _HEADER_BYTES
        member = data[start : start + size]
        if member.startswith(b"\x7fELF"):
            yield member
        position = start + size + size % 2


def _read_object(data: bytes) -> _Object:
    elf = ELFFile(io.BytesIO(data))
    compiler = ""
    symbols: set[str] = set()
    for section in elf.iter_sections():
        if section.name == ".comment":
            texts = section.data().split(b"\0")
            compiler = next((text.decode("utf-8", "replace") for text in texts if text), "")
        elif isinstance(section, SymbolTableSection):
            symbols |= {
                symbol.name
                for symbol in section.iter_symbols()
                if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol["st_shndx"] != "SHN_UNDEF"
            }
    machine = str(elf["e_machine"])
    readers = (one.libraries for one in TARGETS.values() if machine in one.toolchain.machines)
    reader = next((one for one in readers if one is not None), None)
    built = BuiltFor() if reader is None else reader.built_for(elf)
    return _Object(machine, built, compiler, frozenset(symbols))
