"""What a model's C takes of flash and stack, from the board's compiler; no image is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from utvm_deploy.base import process
from utvm_deploy.base.build_failure import build_error
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.project.stack_use import StackUse, stack_use

_TIMEOUT_S = 300.0
_ALLOC, _EXECUTABLE = 2, 4


@dataclass(frozen=True)
class ModelCode:
    """Bytes of the model's code and constants, its deepest call path, and what it calls."""

    code_bytes: int  # instructions of kernels and entry points
    table_bytes: int  # constants other than the weights
    stack: StackUse
    # What it calls of the C library and of the compiler's, and what they take of flash, if that was
    # asked for. Firmware may have them anyway.
    library: tuple[str, ...] = ()
    library_bytes: int = 0


def flash_bytes(compiled: CompiledModel, code: ModelCode | None) -> int | None:
    """What the model takes of flash, weights included; None if its code is not known."""
    return None if code is None else code.code_bytes + code.table_bytes + compiled.weights_bytes


def model_code(compiled: CompiledModel, board: Board, *, with_library: bool = False) -> ModelCode:
    """Compile the model's C as a bundle does, but not its weights.

    Raises MissingTool without the board's compiler, and BuildError if that refuses the C.
    """
    board.cpu.toolchain.prepare()
    weights = f"{compiled.name}_weights.c"
    (cache_dir() / "modules").mkdir(parents=True, exist_ok=True)
    with TemporaryFolder("memory", cache_dir() / "modules") as folder:
        for name, text in compiled.sources.items():
            if name != weights:
                (folder / name).write_text(text, encoding="utf-8")
        for source in sorted(folder.glob("*.c")):
            _compile(compiled, board, source, folder)
        objects = sorted(folder.glob("*.o"))
        code, tables = _sizes(objects, board)
        # Elsewhere the naked functions' C is compiled, and libraries are not linked into images.
        toolchain = board.cpu.toolchain
        assembly = compiled.sources.values() if toolchain.compiles_assembly else ()
        stack = stack_use(folder, assembly, compiled.name)
        found = ModelCode(code, tables, stack)
        if not (toolchain.links_c_library and with_library):
            return found
        library, library_bytes = _library(board, objects)
        return replace(found, library=library, library_bytes=library_bytes)


def _compile(compiled: CompiledModel, board: Board, source: Path, folder: Path) -> None:
    includes = [folder for one in compiled.externals for folder in one.include_dirs]
    command = [
        board.cpu.toolchain.compiler,
        *board.cpu.compiler_flags,
        *board.project.compiler_flags,
        "-std=c99",
        compiled.optimization_flag,
        *(f"-I{path}" for path in includes),
        *board.cpu.toolchain.call_graph,
        "-c",
        source.name,
        "-o",
        f"{source.stem}.o",
    ]
    done = process.run(command, timeout_s=_TIMEOUT_S, cwd=folder)
    if done.returncode:
        raise build_error(f"{command[0]} refuses {source.name}", done, folder)


def _library(board: Board, objects: Sequence[Path]) -> tuple[tuple[str, ...], int]:
    """The functions of the compiler's libraries that the objects call, and their bytes."""
    wanted, found = set[str](), set[str]()
    for path in objects:
        defined, undefined = _symbols(path)
        wanted, found = wanted | undefined, found | defined
    wanted -= found
    linked = objects[0].parent / "library.elf"
    command = [
        board.cpu.toolchain.compiler,
        *board.cpu.compiler_flags,
        "-nostartfiles",
        # The weights are elsewhere, and so is what a backend's library defines.
        "-Wl,--entry=0,--gc-sections,--unresolved-symbols=ignore-all",
        *(f"-Wl,--undefined={name}" for name in sorted(wanted)),
        "-o",
        linked.name,
    ]
    done = process.run(command, timeout_s=_TIMEOUT_S, cwd=linked.parent)
    if done.returncode:
        raise build_error(f"{command[0]} does not link its own library", done, linked.parent)
    return tuple(sorted(wanted & _symbols(linked)[0])), sum(_sizes([linked], board))


def _symbols(path: Path) -> tuple[set[str], set[str]]:
    """The global names that an ELF file defines, and those that it asks for."""
    defined, undefined = set[str](), set[str]()
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if isinstance(section, SymbolTableSection):
                for symbol in section.iter_symbols():
                    if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
                        names = undefined if symbol["st_shndx"] == "SHN_UNDEF" else defined
                        names.add(symbol.name)
    return defined, undefined


def _sizes(objects: Iterable[Path], board: Board) -> tuple[int, int]:
    """Bytes of instructions and of constants."""
    toolchain = board.cpu.toolchain
    if toolchain.binaries is not None:
        found = [toolchain.binaries.read(path).sections for path in objects]
        return sum(one["code"][0] for one in found), sum(one["data"][0] for one in found)
    unwinding = (".eh_frame", toolchain.unwind_sections)
    code = tables = 0
    for path in objects:
        with path.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if section["sh_flags"] & _ALLOC and section["sh_type"] == "SHT_PROGBITS":
                    if section["sh_flags"] & _EXECUTABLE:
                        code += section["sh_size"]
                    elif not section.name.startswith(unwinding):
                        tables += section["sh_size"]
    return code, tables
