"""What an object of a static library was built for, by Arm's attributes and its instructions.

An instruction is found by walking the code that the objects' mapping symbols mark as Thumb, not by
scanning bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import ARMAttributesSection, SymbolTableSection

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import BuiltFor

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


def built_for(elf: ELFFile) -> BuiltFor:
    """The attributes of an object, and whether it holds SMLAD."""
    attributes: dict[str, object] = {}
    for section in elf.iter_sections():
        if isinstance(section, ARMAttributesSection):
            attributes.update(_attributes(section))
    number = attributes.get("TAG_CPU_ARCH")
    rank, architecture = -1, None
    if isinstance(number, int):
        if number == 10 and attributes.get("TAG_CPU_ARCH_PROFILE") != _PROFILE_M:
            rank, architecture = len(_ARCHITECTURES), "armv7-a or -r"
        else:
            unknown = (len(_ARCHITECTURES), f"unknown architecture {number}")
            rank, architecture = _ARCHITECTURES.get(number, unknown)
    return BuiltFor(
        architecture=architecture,
        rank=rank,
        is_hard_float=attributes.get("TAG_ABI_VFP_ARGS") == 1,
        has_dsp=_has_smlad(elf),
        has_mve=bool(attributes.get("TAG_MVE_ARCH")),
    )


def why_not(built: BuiltFor, core: Core, flags: Sequence[str], board: str) -> str:
    """Why a core cannot run it, or why it passes float values elsewhere; else empty."""
    wanted = core.architecture
    if built.rank > next(rank for rank, name in _ARCHITECTURES.values() if name == wanted):
        return (
            f"was built for {built.architecture}, and {board}'s {core.name} is {wanted}, which "
            "cannot run it"
        )
    if built.is_hard_float == ("-mfloat-abi=hard" in flags):
        return ""
    has, needs = ("hard", "soft") if built.is_hard_float else ("soft", "hard")
    return f"was built with -mfloat-abi={has}, and images for {board} need -mfloat-abi={needs}"


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
