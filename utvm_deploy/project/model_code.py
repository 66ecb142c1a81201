"""What a model's C takes of flash and stack, from the board's compiler; no image is needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from utvm_deploy.base import process
from utvm_deploy.base.build_failure import build_error
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.project.stack_use import StackUse, stack_use

_TIMEOUT_S = 300.0
_ALLOC, _EXECUTABLE = 2, 4


@dataclass(frozen=True)
class ModelCode:
    """Bytes of the model's code and constants, and its deepest call path."""

    code_bytes: int  # instructions of kernels and entry points
    table_bytes: int  # constants other than the weights
    stack: StackUse


def flash_bytes(compiled: CompiledModel, code: ModelCode | None) -> int | None:
    """What the model takes of flash, weights included; None if its code is not known."""
    return None if code is None else code.code_bytes + code.table_bytes + compiled.weights_bytes


def model_code(compiled: CompiledModel, board: Board) -> ModelCode:
    """Compile the model's C as a bundle does, but not its weights.

    Raises MissingTool without the board's compiler, and BuildError if that refuses the C.
    """
    weights = f"{compiled.name}_weights.c"
    (cache_dir() / "modules").mkdir(parents=True, exist_ok=True)
    with TemporaryFolder("memory", cache_dir() / "modules") as folder:
        for name, text in compiled.sources.items():
            if name != weights:
                (folder / name).write_text(text, encoding="utf-8")
        for source in sorted(folder.glob("*.c")):
            _compile(compiled, board, source, folder)
        code, tables = _sizes(folder.glob("*.o"))
        # Elsewhere the naked functions' C is compiled.
        assembly = compiled.sources.values() if board.cpu.facts.is_arm else ()
        return ModelCode(code, tables, stack_use(folder, assembly, compiled.name))


def _compile(compiled: CompiledModel, board: Board, source: Path, folder: Path) -> None:
    includes = () if compiled.external is None else compiled.external.include_dirs
    command = [
        board.cpu.facts.compiler,
        *board.cpu.compiler_flags,
        *board.project.compiler_flags,
        "-std=c99",
        compiled.optimization_flag,
        *(f"-I{path}" for path in includes),
        "-fcallgraph-info=su",
        "-c",
        source.name,
        "-o",
        f"{source.stem}.o",
    ]
    done = process.run(command, timeout_s=_TIMEOUT_S, cwd=folder)
    if done.returncode:
        raise build_error(f"{command[0]} refuses {source.name}", done, folder)


def _sizes(objects: Iterable[Path]) -> tuple[int, int]:
    """Bytes of instructions and of constants."""
    code = tables = 0
    for path in objects:
        with path.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if section["sh_flags"] & _ALLOC and section["sh_type"] == "SHT_PROGBITS":
                    if section["sh_flags"] & _EXECUTABLE:
                        code += section["sh_size"]
                    elif not section.name.startswith((".eh_frame", ".ARM")):
                        tables += section["sh_size"]
    return code, tables
