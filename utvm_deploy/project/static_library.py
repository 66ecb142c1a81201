"""What a static library was built for: its objects' machine, attributes and instructions.

Reads the archive itself, so that the answer needs no toolchain. An instruction is found by walking
the code that the objects' mapping symbols mark as Thumb, not by scanning bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import ARMAttributesSection, SymbolTableSection

from utvm_deploy.base.errors import BuildError

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60
# Tag_CPU_arch of the Arm build attributes -> its name; larger ranks run the code of smaller ones.
_ARCHITECTURES: Mapping[int, tuple[int, str]] = {
    11: (0, "armv6-m"),
    12: (0, "armv6s-m"),
    10: (1, "armv7-m"),
    13: (2, "armv7e-m"),
    16: (0, "armv8-m.base"),
    17: (3, "armv8-m.main"),
    21: (4, "armv8.1-m.main"),
}
_PROFILE_M = ord("M")
# Registers and immediates masked out: SMLAD and SMLADX, whose accumulator is not r15 (that would be
# SMUAD). Every DSP kernel for int8 is made of them.
_SMLAD = (0xFFF0, 0xFB20)
_SMLAD_SECOND = (0x00E0, 0x0000)
_NO_ACCUMULATOR = 0xF000


@dataclass(frozen=True)
class LibraryFacts:
    """What all objects of a library have in common, or the most that one of them needs."""

    path: Path
    machine: str  # of the ELF header, such as EM_ARM
    # Arm only: the newest architecture that an object was built for, and its place in the order.
    architecture: str | None
    rank: int
    is_hard_float: bool
    has_dsp: bool  # an object holds SMLAD
    has_mve: bool  # an object was built for Helium
    compiler: str  # what the objects say made them
    symbols: frozenset[str]  # global functions and objects that it defines


def rank_of(architecture: str) -> int:
    """The rank of an architecture, named as in ``targets``, in the order."""
    return next(rank for rank, name in _ARCHITECTURES.values() if name == architecture)


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
    newest = max(objects, key=lambda made: made.rank)
    compilers = sorted({made.compiler for made in objects} - {""})
    return LibraryFacts(
        path=path,
        machine=machines[0],
        architecture=newest.architecture,
        rank=newest.rank,
        is_hard_float=any(made.is_hard_float for made in objects),
        has_dsp=any(made.has_dsp for made in objects),
        has_mve=any(made.has_mve for made in objects),
        compiler=", ".join(compilers),
        symbols=frozenset().union(*(made.symbols for made in objects)),
    )


@dataclass(frozen=True)
class _Object:
    machine: str
    architecture: str | None
    rank: int
    is_hard_float: bool
    has_dsp: bool
    has_mve: bool
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
    attributes: dict[str, object] = {}
    compiler = ""
    symbols: set[str] = set()
    for section in elf.iter_sections():
        if isinstance(section, ARMAttributesSection):
            attributes.update(_attributes(section))
        elif section.name == ".comment":
            texts = section.data().split(b"\0")
            compiler = next((text.decode("utf-8", "replace") for text in texts if text), "")
        elif isinstance(section, SymbolTableSection):
            symbols |= {
                symbol.name
                for symbol in section.iter_symbols()
                if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol["st_shndx"] != "SHN_UNDEF"
            }
    number = attributes.get("TAG_CPU_ARCH")
    rank, architecture = -1, None
    if isinstance(number, int):
        if number == 10 and attributes.get("TAG_CPU_ARCH_PROFILE") != _PROFILE_M:
            rank, architecture = len(_ARCHITECTURES), "armv7-a or -r"
        else:
            unknown = (len(_ARCHITECTURES), f"unknown architecture {number}")
            rank, architecture = _ARCHITECTURES.get(number, unknown)
    return _Object(
        machine=str(elf["e_machine"]),
        architecture=architecture,
        rank=rank,
        is_hard_float=attributes.get("TAG_ABI_VFP_ARGS") == 1,
        has_dsp=elf["e_machine"] == "EM_ARM" and _has_smlad(elf),
        has_mve=bool(attributes.get("TAG_MVE_ARCH")),
        compiler=compiler,
        symbols=frozenset(symbols),
    )


def _attributes(section: ARMAttributesSection) -> Iterator[tuple[str, object]]:
    for part in section.iter_subsections():
        for scope in part.iter_subsubsections():
            for attribute in scope.iter_attributes():
                yield str(attribute.tag), attribute.value


def _has_smlad(elf: ELFFile) -> bool:
    marks: dict[int, list[tuple[int, bool]]] = {}
    for table in elf.iter_sections():
        if isinstance(table, SymbolTableSection):
            for symbol in table.iter_symbols():
                # $t begins Thumb code, $d data; a suffix after a dot is allowed.
                kind = symbol.name.split(".")[0]
                if kind in ("$t", "$d") and isinstance(symbol["st_shndx"], int):
                    section = marks.setdefault(symbol["st_shndx"], [])
                    section.append((symbol["st_value"], kind == "$t"))
    for index, section in marks.items():
        code = elf.get_section(index).data()
        section.sort()
        for position, (start, is_code) in enumerate(section):
            end = section[position + 1][0] if position + 1 < len(section) else len(code)
            if is_code and _holds_smlad(code[start:end]):
                return True
    return False


def _holds_smlad(code: bytes) -> bool:
    position = 0
    while position + 4 <= len(code):
        first = int.from_bytes(code[position : position + 2], "little")
        # Three patterns of the top five bits begin an instruction of four bytes.
        if first >> 11 < 0b11101:
            position += 2
            continue
        second = int.from_bytes(code[position + 2 : position + 4], "little")
        if (
            first & _SMLAD[0] == _SMLAD[1]
            and second & _SMLAD_SECOND[0] == _SMLAD_SECOND[1]
            and second & _NO_ACCUMULATOR != _NO_ACCUMULATOR
        ):
            return True
        position += 4
    return False
