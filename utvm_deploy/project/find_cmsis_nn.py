"""Finds the user's CMSIS-NN and checks that it was built for the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.backends.cmsis_nn.library import is_in_zephyr
from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import Board
from utvm_deploy.project.library_checks import check_architecture, check_machine, digest_of
from utvm_deploy.project.static_library import LibraryFacts, read_static_library
from utvm_deploy.project.zephyr import is_zephyr

HEADER = "arm_nnfunctions.h"
SOURCES = "Source"
LIBRARY = "libcmsis-nn.a"
#: A function that every build of the library has.
KNOWN_FUNCTION = "arm_convolve_wrapper_s8"


def find_cmsis_nn(directory: Path, board: Board, library: Path | None = None) -> CmsisNn:
    """The library in ``directory``, for ``board``; BuildError if anything is missing or wrong.

    The folder holds ``Include/`` (or is that folder). ``libcmsis-nn.a`` is in it or below, unless
    ``library`` names it. A Zephyr application builds the library itself, so there a checkout is
    enough.
    """
    directory = directory.absolute()
    include = _find_headers(directory)
    if library is None and _zephyr_builds_it(directory, board):
        return _sources(directory, include, board)
    found = _the_library(directory, board) if library is None else library.absolute()
    return _checked(found, include, board)


def find_cmsis_nn_builds(
    directory: Path, board: Board, libraries: Sequence[Path] = ()
) -> tuple[CmsisNn, ...]:
    """Every build of the library in ``directory``, each labelled by where it lies.

    ``libraries`` names the builds in place of those that are found.
    """
    directory = directory.absolute()
    include = _find_headers(directory)
    if not libraries and _zephyr_builds_it(directory, board):
        return (_sources(directory, include, board),)
    paths = [path.absolute() for path in libraries] or _find_libraries(directory, board)
    if len(paths) == 1:
        return (_checked(paths[0], include, board),)
    labels = [_label(path, directory) for path in paths]
    for label in labels:
        if labels.count(label) > 1:
            raise BuildError(f"the library {label} is named twice; name each build once")
    return tuple(
        replace(_checked(path, include, board), label=label)
        for path, label in zip(paths, labels, strict=True)
    )


def _zephyr_builds_it(directory: Path, board: Board) -> bool:
    return is_zephyr(board) and (directory / SOURCES).is_dir()


def _sources(directory: Path, include: Path, board: Board) -> CmsisNn:
    sources = list((directory / SOURCES).rglob("*.c"))
    return CmsisNn(
        include_dirs=(str(include),),
        library="",
        digest=digest_of((include,), sources),
        built_with=f"built by Zephyr for {board.cpu.core}",
        has_mve=board.cpu.mve,
        # A file for each function, by its name.
        functions=frozenset(path.stem for path in sources if is_in_zephyr(path.stem)),
    )


def _checked(library: Path, include: Path, board: Board) -> CmsisNn:
    facts = read_static_library(library)
    check_machine(facts, board, _how_to_build(board))
    if KNOWN_FUNCTION not in facts.symbols:
        raise BuildError(
            f"{library} does not define {KNOWN_FUNCTION}: it is not CMSIS-NN, or it is older "
            f"than 4.0; {_how_to_build(board)}"
        )
    _check_instructions(facts, board)
    variant = "MVE" if facts.built.has_mve else "DSP" if facts.built.has_dsp else "plain C"
    return CmsisNn(
        include_dirs=(str(include),),
        library=str(library),
        digest=digest_of((include,), (library,)),
        built_with=", ".join(filter(None, (facts.compiler, facts.built.architecture, variant))),
        has_mve=facts.built.has_mve,
        is_armclang="arm compiler" in facts.compiler.lower(),
        functions=facts.symbols,
    )


def _label(library: Path, directory: Path) -> str:
    """The folder of the library inside the user's folder, and the file if it has its own name."""
    if library.is_relative_to(directory):
        library = library.relative_to(directory)
    is_usual = library.name == LIBRARY and library.parent.name
    return str(library.parent if is_usual else library)


def _find_headers(directory: Path) -> Path:
    if not directory.is_dir():
        raise BuildError(
            f"there is no CMSIS-NN at {directory}; name the folder that holds its Include/ "
            "(--cmsis-nn DIR or UTVM_CMSIS_NN)"
        )
    for folder in (directory / "Include", directory):
        if (folder / HEADER).is_file():
            return folder
    raise BuildError(
        f"{directory} holds no Include/{HEADER}; name the folder of a CMSIS-NN checkout "
        "(--cmsis-nn DIR or UTVM_CMSIS_NN)"
    )


def _find_libraries(directory: Path, board: Board) -> list[Path]:
    found = sorted(path for path in directory.rglob(LIBRARY) if path.is_file())
    if not found:
        raise BuildError(
            f"{directory} holds CMSIS-NN's headers but no {LIBRARY}; {_how_to_build(board)}, "
            "or name it with --cmsis-nn-library"
        )
    return found


def _the_library(directory: Path, board: Board) -> Path:
    found = _find_libraries(directory, board)
    if len(found) > 1:
        listed = ", ".join(str(path.relative_to(directory)) for path in found)
        raise BuildError(
            f"{directory} holds several libraries ({listed}); choose one with --cmsis-nn-library"
        )
    return found[0]


def _check_instructions(facts: LibraryFacts, board: Board) -> None:
    cpu = board.cpu
    check_architecture(facts, board, _how_to_build(board))
    if cpu.mve and not facts.built.has_mve:
        raise BuildError(
            f"{facts.path} was built without the vector extension (MVE) that {board.name}'s "
            f"{cpu.core} has, so its figures would mean nothing; {_how_to_build(board)}"
        )
    if cpu.dsp and not cpu.mve and not facts.built.has_dsp:
        raise BuildError(
            f"{facts.path} was built without DSP instructions (no SMLAD in it, built for "
            f"{facts.built.architecture}), and {board.name}'s {cpu.core} has them, so its figures "
            f"would mean nothing; {_how_to_build(board)}"
        )


def _how_to_build(board: Board) -> str:
    flags = " ".join(board.cpu.compiler_flags)
    tail = f" with {flags} -O3" if flags else ""
    return f"build it as CMSIS-NN's README says, for {board.cpu.core}{tail}"
