"""From addresses to sources, by an ELF file's DWARF: the line, and the folder of functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.dwarf.lineprogram import LineProgram
from elftools.elf.elffile import ELFFile


def line_of(elf: Path, address: int) -> str | None:
    """``file:line`` of the instruction there; None if the file does not say."""
    try:
        with elf.open("rb") as file:
            content = ELFFile(file)
            return _find(content.get_dwarf_info(), address) if content.has_dwarf_info() else None
    except (OSError, ELFError, DWARFError):
        # An error's text is not worth another error.
        return None


def code_of(elf: Path, folders: Sequence[str]) -> list[tuple[int, int]]:
    """Begin and end of every function whose source is in one of ``folders``."""
    found: list[tuple[int, int]] = []
    try:
        with elf.open("rb") as file:
            content = ELFFile(file)
            if content.has_dwarf_info():
                for unit in content.get_dwarf_info().iter_CUs():
                    source = unit.get_top_DIE().get_full_path()
                    if Path(source).parent.name in folders:
                        found += _functions(unit)
    except (OSError, ELFError, DWARFError):
        return []
    return found


def _functions(unit: CompileUnit) -> Iterator[tuple[int, int]]:
    for entry in unit.iter_DIEs():
        if entry.tag == "DW_TAG_subprogram" and "DW_AT_low_pc" in entry.attributes:
            begin = entry.attributes["DW_AT_low_pc"].value
            # Functions that the linker left out have address 0, and their old size.
            if begin:
                yield begin, begin + entry.attributes["DW_AT_high_pc"].value


def _find(dwarf: DWARFInfo, address: int) -> str | None:
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        found = _find_in(program, address) if program is not None else None
        if found is not None:
            return found
    return None


def _find_in(program: LineProgram, address: int) -> str | None:
    """Lines come in sequences, one for each function, by rising address."""
    before = begin = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        begin = state.address if begin is None else begin
        # What the linker left out has its lines still, at address 0.
        if before is not None and begin and before.address <= address < state.address:
            return f"{_file_name(program, before.file)}:{before.line}"
        before = None if state.end_sequence else state
        begin = None if state.end_sequence else begin
    return None


def _file_name(program: LineProgram, number: int) -> str:
    files = program["file_entry"]
    # DWARF 5 counts files from 0, what came before from 1.
    index = number if program["version"] >= 5 else number - 1
    name: bytes = files[index].name
    return Path(name.decode("utf-8", "replace")).name
