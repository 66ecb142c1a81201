"""A model as a separate module, for targets whose modules others run: nothing of the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.build_failure import build_error
from utvm_deploy.base.errors import BuildError
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel

#: GCC and Clang take a second for each of the largest kernels.
_TIMEOUT_S = 900.0
#: What a module's stack has besides the model's scratch.
_STACK_BYTES = 64 * 1024


def standalone_stack_bytes(compiled: CompiledModel) -> int:
    """The stack of the module, in bytes."""
    return _STACK_BYTES + -(-compiled.stack_bytes // 16) * 16


def standalone_modules(
    compiled: CompiledModel, board: Board, entry: str, exports: Sequence[str], most_bytes: float
) -> dict[str, bytes]:
    """Variant -> module, linked of the model's C and ``entry``, C that defines ``exports``.

    A module that is larger than ``most_bytes`` is compiled again for smaller code, which is a
    little slower. MissingTool without the board's compiler, BuildError if that refuses the C.
    """
    toolchain = board.cpu.toolchain
    if toolchain.binaries is None:
        raise BuildError(f"{board.name} has images of another kind; take a board of modules")
    toolchain.prepare()
    (cache_dir() / "modules").mkdir(parents=True, exist_ok=True)
    found = {}
    with TemporaryFolder("standalone", cache_dir() / "modules") as folder:
        for name, text in {**compiled.sources, "entry.c": entry}.items():
            (folder / name).write_text(text, encoding="utf-8")
        link = toolchain.binaries.standalone_arguments(exports, standalone_stack_bytes(compiled))
        for variant, flags in toolchain.binaries.variants.items():
            found[variant] = _built(compiled, board, folder, [*flags, *link])
            if len(found[variant]) > most_bytes:
                smaller = [*flags, *toolchain.binaries.smaller, *link]
                found[variant] = _built(compiled, board, folder, smaller)
    return found


def _built(compiled: CompiledModel, board: Board, folder: Path, arguments: Sequence[str]) -> bytes:
    command = [
        board.cpu.toolchain.compiler,
        *board.cpu.compiler_flags,
        *board.project.compiler_flags,
        "-std=c99",
        compiled.optimization_flag,
        "-ffunction-sections",
        "-fdata-sections",
        *arguments,
        *sorted(path.name for path in folder.glob("*.c")),
        "-o",
        "module",
    ]
    done = process.run(command, timeout_s=_TIMEOUT_S, cwd=folder)
    if not done.is_ok:
        raise build_error(f"{compiled.name} does not compile for {board.name}", done, folder)
    return (folder / "module").read_bytes()
