"""Loads a plug-in's backend and checks its static library for a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from utvm_deploy.backends.checks import check_together
from utvm_deploy.backends.ethos_u.configurations import configuration
from utvm_deploy.backends.ethos_u.regions import ethos_u_backend
from utvm_deploy.backends.interface import Backend, StaticLibrary, why_not_on
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import BuildError, PluginError
from utvm_deploy.boards.board import Board
from utvm_deploy.project.library_checks import check_architecture, check_machine, digest_of
from utvm_deploy.project.static_library import read_static_library

#: A Python file, the name of an installed plug-in, or what ``load_backend`` gave; or several.
Plugins: TypeAlias = str | Path | Backend | Sequence[str | Path | Backend] | None


def load_backends(plugins: Plugins, board: Board | None) -> tuple[Backend, ...]:
    """The backends of plug-ins for ``board``, in their order; without a board, nothing is checked.

    This runs their code with the user's rights. Raises PluginError or BuildError.
    """
    found: list[Backend] = []
    for one in _several(plugins):
        if isinstance(one, str | Path):
            one = load_plugin(one) if board is None else load_backend(one, board)
        found.append(one)
    check_together(found)
    return tuple(found)


def find_ethos_u(text: str, board: Board, driver: Path | None = None) -> Backend:
    """The backend for an Arm Ethos-U, such as "ethos-u55-128" or "ethos-u55-128,sram-only".

    Vela compiles regions of int8 for it. After a second comma, ``text`` names the memory of the
    board for the cache of "ethos-u65-256,dedicated-sram". ``driver`` is a folder of
    ethos-u-core-driver with a build for the board's core; without it, images cannot be linked here.
    UsageError if there is no such Ethos-U, BuildError if the driver does not fit the board.
    """
    memories = {
        one.name: (one.address, one.size)
        for one in board.memory
        if one.kind == "ram" and one not in (board.main_ram, board.data_ram)
    }
    backend = ethos_u_backend(configuration(text, memories), driver)
    code = backend.code
    return _checked(backend, code, board) if isinstance(code, StaticLibrary) else backend


def origins_of(plugins: Plugins) -> list[str]:
    """Where plug-ins come from; of an Ethos-U the option."""
    return [one.origin if isinstance(one, Backend) else str(one) for one in _several(plugins)]


def _several(plugins: Plugins) -> Sequence[str | Path | Backend]:
    return (plugins,) if isinstance(plugins, str | Path | Backend) else plugins or ()


def load_backend(plugin: str | Path, board: Board) -> Backend:
    """The backend of a plug-in (a Python file, or the name of an installed one) for ``board``.

    This runs the plug-in's code with the user's rights. Raises PluginError or BuildError.
    """
    backend = load_plugin(plugin)
    if why := why_not_on(backend, board.cpu.kernel_core):
        raise PluginError(f"{backend.origin}: {why}, the core of {board.name}; leave out --plugin")
    if backend.registers and board.is_application:
        raise BuildError(
            f"{backend.origin}: {board.name} has the template {board.template}, whose tasks cannot "
            "use registers; leave out Backend.registers, or take another board"
        )
    if not isinstance(backend.code, StaticLibrary):
        return backend
    return _checked(backend, backend.code, board)


def _checked(backend: Backend, code: StaticLibrary, board: Board) -> Backend:
    where = backend.origin
    if not isinstance(code.path, Path) or not all(isinstance(d, Path) for d in code.include_dirs):
        raise PluginError(f"{where}: StaticLibrary takes a pathlib.Path, and a tuple of them")
    for folder in code.include_dirs:
        if not folder.is_dir():
            raise BuildError(f"{where}: there is no folder {folder}; name that of the headers")
    if not code.path.is_file():
        raise BuildError(f"{where}: there is no library {code.path}; build it first")
    library = code.path.absolute()
    folders = tuple(folder.absolute() for folder in code.include_dirs)
    flags = " ".join(board.cpu.compiler_flags)
    advice = f"build it for {board.cpu.core}{' with ' + flags if flags else ''}"
    facts = read_static_library(library)
    check_machine(facts, board, advice)
    check_architecture(facts, board, advice)
    if backend.initialize and backend.initialize not in facts.symbols:
        raise BuildError(
            f"{where}: {library} does not define {backend.initialize}, which is to prepare the "
            "device; correct Backend.initialize, or build the library again"
        )
    return replace(
        backend,
        code=StaticLibrary(library, folders),
        digest=digest_of(folders, (library,)),
        built_with=", ".join(filter(None, (facts.compiler, facts.built.architecture))),
        functions=facts.symbols,
    )
