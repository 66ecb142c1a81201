"""Finds the user's CMSIS-NN, or muRISCV-NN, and checks that it was built for the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from utvm_deploy.backends.cmsis_nn import CMSIS_NN, MURISCV_NN, CmsisNn, Product
from utvm_deploy.backends.cmsis_nn.library import PREFIX, is_in_zephyr
from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import Board
from utvm_deploy.project.library_checks import check_architecture, check_machine, digest_of
from utvm_deploy.project.static_library import LibraryFacts, read_static_library
from utvm_deploy.project.zephyr import is_zephyr

HEADER = "arm_nnfunctions.h"
SOURCES = "Source"
#: A function that every build of the library has, behind the prefix.
KNOWN_FUNCTION = "convolve_wrapper_s8"


def find_cmsis_nn(directory: Path, board: Board, library: Path | None = None) -> CmsisNn:
    """The library in ``directory``, for ``board``; BuildError if anything is missing or wrong.

    The folder holds ``Include/`` (or is that folder). ``libcmsis-nn.a`` is in it or below, unless
    ``library`` names it. A Zephyr application builds the library itself, so there a checkout is
    enough.
    """
    directory = directory.absolute()
    include = _find_headers(directory, CMSIS_NN)
    if library is None and _zephyr_builds_it(directory, board):
        return _sources(directory, include, board)
    found = _the_library(directory, board) if library is None else library.absolute()
    return _checked(found, include, board, CMSIS_NN)


def find_cmsis_nn_builds(
    directory: Path, board: Board, libraries: Sequence[Path] = (), product: Product = CMSIS_NN
) -> tuple[CmsisNn, ...]:
    """Every build of the library in ``directory``, each labelled by where it lies.

    ``libraries`` names the builds in place of those that are found. ``product`` may be another
    library with CMSIS-NN's interface.
    """
    check_is_for(board, product)
    directory = directory.absolute()
    include = _find_headers(directory, product)
    if not libraries and product == CMSIS_NN and _zephyr_builds_it(directory, board):
        return (_sources(directory, include, board),)
    paths = [path.absolute() for path in libraries] or _find_libraries(directory, board, product)
    if len(paths) == 1:
        return (_checked(paths[0], include, board, product),)
    labels = [_label(path, directory, product) for path in paths]
    for label in labels:
        if labels.count(label) > 1:
            raise BuildError(f"the library {label} is named twice; name each build once")
    return tuple(
        replace(_checked(path, include, board, product), label=label)
        for path, label in zip(paths, labels, strict=True)
    )


def _zephyr_builds_it(directory: Path, board: Board) -> bool:
    return is_zephyr(board) and (directory / SOURCES).is_dir()


def _sources(directory: Path, include: tuple[Path, ...], board: Board) -> CmsisNn:
    sources = list((directory / SOURCES).rglob("*.c"))
    return CmsisNn(
        include_dirs=tuple(map(str, include)),
        library="",
        digest=digest_of(include, sources),
        built_with=f"built by Zephyr for {board.cpu.core}",
        has_mve=board.cpu.mve,
        # A file for each function, by its name.
        functions=frozenset(path.stem for path in sources if is_in_zephyr(path.stem)),
    )


def _checked(library: Path, include: tuple[Path, ...], board: Board, product: Product) -> CmsisNn:
    facts = read_static_library(library)
    advice, wanted = how_to_build(board, product), product.prefix + KNOWN_FUNCTION
    check_machine(facts, board, advice)
    if wanted not in facts.symbols:
        older = ", or it is older than 4.0" if product == CMSIS_NN else ""
        raise BuildError(
            f"{library} does not define {wanted}: it is not {product.name}{older}; {advice}"
        )
    _check_instructions(facts, board, product, advice)
    built = facts.built
    variants = {"MVE": built.has_mve, "DSP": built.has_dsp, "vectors": built.has_vectors}
    variant = next((name for name, has in variants.items() if has), "plain C")
    return CmsisNn(
        include_dirs=tuple(map(str, include)),
        library=str(library),
        digest=digest_of(include, (library,)),
        built_with=", ".join(filter(None, (facts.compiler, built.architecture, variant))),
        has_mve=built.has_mve,
        has_vectors=built.has_vectors,
        is_armclang="arm compiler" in facts.compiler.lower(),
        functions=_by_cmsis_nn_names(facts.symbols, product),
        product=product,
    )


def _by_cmsis_nn_names(symbols: frozenset[str], product: Product) -> frozenset[str]:
    if product.prefix == PREFIX:
        return symbols
    own = (name for name in symbols if name.startswith(product.prefix))
    return frozenset(PREFIX + name.removeprefix(product.prefix) for name in own)


def _label(library: Path, directory: Path, product: Product) -> str:
    """The folder of the library inside the user's folder, and the file if it has its own name."""
    if library.is_relative_to(directory):
        library = library.relative_to(directory)
    is_usual = library.name == product.library and library.parent.name
    return str(library.parent if is_usual else library)


def _find_headers(directory: Path, product: Product) -> tuple[Path, ...]:
    given = f"(--{product.option} DIR or {product.variable})"
    if not directory.is_dir():
        raise BuildError(
            f"there is no {product.name} at {directory}; name the folder that holds its Include/ "
            f"{given}"
        )
    folders = tuple(directory / name for name in product.include)
    for found in (folders, (directory,)):
        if (found[0] / HEADER).is_file():
            return found
    raise BuildError(
        f"{directory} holds no {product.include[0]}/{HEADER}; name the folder of a {product.name} "
        f"checkout {given}"
    )


def _find_libraries(directory: Path, board: Board, product: Product) -> list[Path]:
    found = sorted(path for path in directory.rglob(product.library) if path.is_file())
    if not found:
        raise BuildError(
            f"{directory} holds {product.name}'s headers but no {product.library}; "
            f"{how_to_build(board, product)}, or name it with --{product.option}-library"
        )
    return found


def _the_library(directory: Path, board: Board) -> Path:
    found = _find_libraries(directory, board, CMSIS_NN)
    if len(found) > 1:
        listed = ", ".join(str(path.relative_to(directory)) for path in found)
        raise BuildError(
            f"{directory} holds several libraries ({listed}); choose one with --cmsis-nn-library"
        )
    return found[0]


def _check_instructions(facts: LibraryFacts, board: Board, product: Product, advice: str) -> None:
    cpu = board.cpu
    check_architecture(facts, board, advice)
    if cpu.facts.vectors and product == MURISCV_NN and not facts.built.has_vectors:
        raise BuildError(
            f"{facts.path} was built without the vectors (USE_VEXT) that {board.name}'s {cpu.core} "
            f"has, so its figures would mean nothing; {advice}"
        )
    if cpu.mve and not facts.built.has_mve:
        raise BuildError(
            f"{facts.path} was built without the vector extension (MVE) that {board.name}'s "
            f"{cpu.core} has, so its figures would mean nothing; {advice}"
        )
    if cpu.dsp and not cpu.mve and not facts.built.has_dsp:
        raise BuildError(
            f"{facts.path} was built without DSP instructions (no SMLAD in it, built for "
            f"{facts.built.architecture}), and {board.name}'s {cpu.core} has them, so its figures "
            f"would mean nothing; {advice}"
        )


def check_is_for(board: Board, product: Product) -> None:
    """BuildError if the product has nothing for the board's core."""
    if product == MURISCV_NN and board.cpu.target.name != "riscv":
        raise BuildError(
            f"{product.name} is for RISC-V, and {board.name}'s core is {board.cpu.core}; take a "
            f"RISC-V board, or compare with --against {CMSIS_NN.option}"
        )


def how_to_build(board: Board, product: Product) -> str:
    """What the user does to have a build of the product for the board's core."""
    flags = " ".join(board.cpu.compiler_flags)
    reader = board.cpu.target.libraries
    if product == MURISCV_NN and board.cpu.facts.vectors and reader:
        flags = f"{reader.vector_build} -DUSE_VEXT"
    tail = f" with {flags} -O3" if flags else ""
    return f"build it as {product.name}'s README says, for {board.cpu.core}{tail}"
