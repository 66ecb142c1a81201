"""A built image: the ELF file, its symbols and its sizes. Lines are lines.py's."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import Board
from utvm_deploy.project.debug_info import code_of, line_of

WORKSPACE = "utvm_workspace"
WORKSPACE_END = "utvm_workspace_end"


@dataclass(frozen=True)
class Image:
    """An ELF file for a board; symbols and sizes are read when first asked for."""

    elf: Path
    board: Board

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """Name -> address of every function and object; functions on Arm have bit 0 set."""
        return self._content.symbols

    def line_of(self, address: int) -> str | None:
        """``file:line`` of the instruction there; None if the image does not say."""
        return line_of(self.elf, address)

    def code_of(self, folders: Sequence[str]) -> list[tuple[int, int]]:
        """Begin and end of every function that was compiled from these folders of the project."""
        return code_of(self.elf, folders)

    @cached_property
    def section_bytes(self) -> Mapping[str, int]:
        """Name -> size of every section that takes memory on the device."""
        return {name: size for name, (size, _, _) in self._content.sections.items()}

    @property
    def flash_bytes(self) -> int:
        """Bytes that must be stored: code, constants, and the initial values of variables."""
        return sum(size for size, is_stored, _ in self._content.sections.values() if is_stored)

    @property
    def ram_bytes(self) -> int:
        """Bytes of variables and, on bare metal, the stack; without the workspace."""
        sections = self._content.sections.values()
        written = sum(size for size, _, is_written in sections if is_written)
        # Bare-metal images name the left-over RAM by symbols, others have an array there.
        return written - (self.workspace_bytes if self._content.has_workspace_array else 0)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of RAM that the image leaves to the host PC's allocator."""
        return self.symbols[WORKSPACE_END] - self.symbols[WORKSPACE]

    @cached_property
    def load_segments(self) -> tuple[tuple[int, bytes], ...]:
        """Address and bytes of all that must be stored on the device, in order.

        Nothing of what a machine runs within this process.
        """
        if self.board.cpu.toolchain.binaries is not None:
            return ()
        try:
            with self.elf.open("rb") as file:
                return tuple(
                    (segment["p_paddr"], segment.data())
                    for segment in ELFFile(file).iter_segments()
                    if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]
                )
        except (OSError, ELFError) as exc:
            raise BuildError(f"{self.elf} cannot be read as an ELF file: {exc}") from exc

    @cached_property
    def _content(self) -> _Content:
        own = self.board.cpu.toolchain.binaries
        if own is not None:
            found = own.read(self.elf)
            return _Content({**found.functions, **found.objects}, found.sections, True)
        try:
            with self.elf.open("rb") as file:
                return _read(ELFFile(file))
        except (OSError, ELFError, struct.error) as exc:
            raise BuildError(f"{self.elf} cannot be read as an ELF file: {exc}") from exc


@dataclass(frozen=True)
class _Content:
    symbols: Mapping[str, int]
    # Name -> size, whether the file stores its bytes, whether the program writes it.
    sections: Mapping[str, tuple[int, bool, bool]]
    # Whether the workspace is part of a section.
    has_workspace_array: bool


# ELF's section header flags and types.
_SHF_WRITE = 1
_SHF_ALLOC = 2
#: The section, the binding and the types of symbols.
_SHN_UNDEF, _STB_GLOBAL, _STT_SECTION, _STT_FILE = 0, 1, 3, 4


def _read(elf: ELFFile) -> _Content:
    sections = {}
    symbols: dict[str, int] = {}
    for section in elf.iter_sections():
        flags = section["sh_flags"]
        if flags & _SHF_ALLOC and section["sh_size"]:
            is_stored = section["sh_type"] != "SHT_NOBITS"
            # A linker script's NOLOAD stack has no input section to take a write flag from.
            is_written = bool(flags & _SHF_WRITE) or not is_stored
            sections[section.name] = (section["sh_size"], is_stored, is_written)
        if isinstance(section, SymbolTableSection):
            _add_symbols(symbols, section, elf)
    start = symbols.get(WORKSPACE)
    is_array = any(
        section["sh_flags"] & _SHF_ALLOC
        and start is not None
        and section["sh_addr"] <= start < section["sh_addr"] + section["sh_size"]
        for section in elf.iter_sections()
    )
    return _Content(symbols, sections, is_array)


def _add_symbols(symbols: dict[str, int], table: SymbolTableSection, elf: ELFFile) -> None:
    # Not iter_symbols, which takes a tenth of a second for a small image, at each connection.
    names, is_wide = table.stringtable.data(), elf.elfclass == 64
    layout = ("<" if elf.little_endian else ">") + ("IBBHQQ" if is_wide else "IIIBBH")
    for row in struct.iter_unpack(layout, table.data()):
        if is_wide:
            start, info, _, section, address, _ = row
        else:
            start, address, _, info, _, section = row
        binding, kind = info >> 4, info & 15
        end = names.find(b"\0", start)
        if end < 0:
            raise ELFError(
                f"the name of a symbol is at {start:,}, and all take {len(names):,} bytes"
            )
        name = names[start:end].decode(errors="replace")
        if not name or name.startswith("$") or kind in (_STT_SECTION, _STT_FILE):
            continue
        # Two files may have a static function of one name; the global one is what others mean.
        if section != _SHN_UNDEF and (binding == _STB_GLOBAL or name not in symbols):
            symbols[name] = address
