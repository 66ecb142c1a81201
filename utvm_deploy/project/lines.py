"""From an address to a source line, by an ELF file's DWARF."""

from __future__ import annotations

from pathlib import Path

from elftools.common.exceptions import DWARFError, ELFError
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
