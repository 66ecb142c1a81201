"""From a project tree to an image: CMake, and which images are in the cache already."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from utvm_deploy.base import cache, process
from utvm_deploy.base.build_failure import BuildStep, run_step
from utvm_deploy.base.errors import BuildError, MissingTool, SystemRefused
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board, load_board, with_template
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.project import esp_idf_build, zephyr_build
from utvm_deploy.project.esp_idf_project import esp_idf_of
from utvm_deploy.project.fit import check_fits, check_image_fits, overflow_sentence
from utvm_deploy.project.image import Image
from utvm_deploy.project.objects import keep_objects, launcher_option, objects_folder
from utvm_deploy.project.tree import (
    PROJECT_FILE,
    project_files,
    remove_other_models,
    tree_digest,
    write_tree,
)
from utvm_deploy.project.zephyr import is_zephyr

logger = logging.getLogger("utvm_deploy.project")

# CMake's own part takes a second or two; more means a hung disk.
CONFIGURE_TIMEOUT_S = 120.0
# A large model's generated C takes GCC up to a minute on a slow machine.
BUILD_TIMEOUT_S = 900.0
VERSION_TIMEOUT_S = 30.0

# Settings that CMake takes from the environment: an image is made of its tree and nothing else.
_NO_SETTINGS = {"CFLAGS": "", "LDFLAGS": "", "CMAKE_BUILD_TYPE": ""}

# What CMake would find out about the compiler by compiling trial programs.
_KNOWN_COMPILER = ("-DCMAKE_C_COMPILER_FORCED=1", "-DCMAKE_C_COMPILER_ID=GNU")

BUILD_FOLDER = "build"
LOG_FILE = "build.log"
ELF_FILE = "image.elf"


def build_image(compiled: CompiledModel | None, board: Board) -> Image:
    """The image of the model (or of the runtime alone) for the board, built or from the cache."""
    if compiled is not None:
        check_fits(compiled, board)
    try:
        return _cached(project_files(compiled, board), board, compiled)
    except SystemRefused:
        raise
    except BuildError as error:
        theirs = [one.name for one in compiled.externals if not one.is_linked] if compiled else []
        if not theirs:
            raise
        told = f"{error}; the model's sources have C of {' and '.join(theirs)}"
        raise BuildError(told, error.log_path) from error


def build_image_with(objects: Sequence[Path], entry_points: Sequence[str], board: Board) -> Image:
    """The runtime's image with compiled modules in it, for boards that run no code from RAM.

    What they define for others must have different names; ``entry_points`` are kept.
    """
    files = project_files(None, board)
    lines = [
        *(f'target_link_libraries(image PRIVATE "{path}")' for path in objects),
        *(f'target_link_options(image PRIVATE "-Wl,-u,{name}")' for name in entry_points),
    ]
    files["CMakeLists.txt"] += "\n".join([*lines, ""])
    return _cached(files, board, None)


def _cached(files: Mapping[str, str], board: Board, compiled: CompiledModel | None) -> Image:
    made_by = _made_by(board)
    key = tree_digest({**files, "compiler": made_by})
    images = cache_dir() / "images"
    entry = images / key
    image = Image(elf_path(entry, board), board)
    if cache.take(entry, image):
        logger.debug("image %s is in the cache", key)
        return image
    try:
        images.mkdir(parents=True, exist_ok=True)
        work = TemporaryFolder("new", images)
    except OSError as exc:
        raise _not_kept(images, exc) from exc
    fresh = work.path
    try:
        cache.hold(fresh, image)
        write_tree(files, fresh)
        if board.is_application:
            _build_beside_kernel(fresh, files, board, made_by)
        else:
            objects = objects_folder(files, board, made_by)
            _build(fresh, board, [launcher_option(objects), *_KNOWN_COMPILER])
            if not process.is_dry_run():
                keep_objects(fresh / BUILD_FOLDER, objects)
                shutil.rmtree(fresh / BUILD_FOLDER / "CMakeFiles", ignore_errors=True)
        if process.is_dry_run():
            return image
        if compiled is not None:
            built = Image(elf_path(fresh, board), board)
            check_image_fits(built, compiled.arena_bytes, compiled.name)
        cache.seal(fresh, _used_files(fresh, board))
        cache.keep_held(fresh, entry, image)
    except OSError as exc:
        raise _not_kept(images, exc) from exc
    except BuildError as exc:
        kept = _keep_log(exc.log_path, images.parent, key)
        raise type(exc)(str(exc).replace(str(exc.log_path), str(kept)), kept) from exc
    finally:
        work.close()
    return image


def _used_files(entry: Path, board: Board) -> list[Path]:
    """What is read of a built image's folder later: the image, and what flashes an application."""
    if not board.is_application:
        return [elf_path(entry, board)]
    return sorted(path for path in (entry / BUILD_FOLDER).rglob("*") if path.is_file())


def _not_kept(images: Path, why: OSError) -> BuildError:
    return SystemRefused(
        f"images cannot be kept in {images}: {why.strerror}; set UTVM_CACHE to another folder"
    )


def build_project(
    directory: Path | str,
    *,
    trust: bool = False,
    check: Callable[[Board], None] = lambda board: None,
) -> Image:
    """Build a tree that ``create_project`` wrote, in its folder ``build``.

    ``trust`` is that of ``load_board`` for the tree's board file. ``check`` may refuse the board
    before the build.
    """
    directory = Path(directory)
    try:
        description = json.loads((directory / PROJECT_FILE).read_text(encoding="utf-8"))
        board = load_board(directory / f"{description['board']}.toml", trust=trust)
        board = with_template(board, description["template"])
        model = description["model"]
        needed = None if model is None else (int(model["arena_bytes"]), str(model["name"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise BuildError(
            f"{directory} is not a project tree ({PROJECT_FILE} cannot be used: {reason}); "
            f"make one with: utvm project create MODEL DIR --board B"
        ) from exc
    check(board)
    _build(directory, board)
    image = Image(elf_path(directory, board), board)
    if needed is not None and not process.is_dry_run():
        check_image_fits(image, *needed)
    return image


def elf_path(directory: Path, board: Board) -> Path:
    """Where the image is, once the tree in ``directory`` is built."""
    return (
        directory / BUILD_FOLDER / (zephyr_build.ZEPHYR_ELF_FILE if is_zephyr(board) else ELF_FILE)
    )


def compiler_version(board: Board) -> str:
    """The version text of the board's compiler; part of every cache key."""
    board.cpu.toolchain.prepare()
    version = process.run([board.cpu.toolchain.compiler, "--version"], timeout_s=VERSION_TIMEOUT_S)
    return version.stdout


def _made_by(board: Board) -> str:
    """What an image depends on in addition to its files."""
    if not board.is_application:
        return compiler_version(board)
    try:
        compiler = compiler_version(board)
    except MissingTool:
        compiler = "of the build system"
    found = zephyr_build.find_zephyr() if is_zephyr(board) else esp_idf_build.find_esp_idf()
    return f"{found.identity}\n{compiler}"


def _build_beside_kernel(
    directory: Path, files: Mapping[str, str], board: Board, made_by: str
) -> None:
    """Build where the same kernel was built before, and put the image into ``directory``."""
    folder = cache_dir() / board.template / zephyr_build.kernel_key(files, made_by)
    with cache.folder_for_one(folder) as shared:
        tree = shared / "application"
        remove_other_models(files, tree)
        write_tree(files, tree)
        _build(tree, board)
        if process.is_dry_run():
            return
        build = tree / BUILD_FOLDER
        names = zephyr_build.KEPT_FILES if is_zephyr(board) else esp_idf_build.kept_files(build)
        _keep_build(build, directory / BUILD_FOLDER, names)
    cache.trim(folder.parent, cache.MOST_BYTES[folder.parent.name])


def _keep_build(build: Path, target: Path, names: Iterable[Path]) -> None:
    """Copy of a finished build what outlives the next one: enough to run and to flash it."""
    for name in names:
        # Not every board has an image in each format.
        if (build / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(build / name, target / name)


def _build(directory: Path, board: Board, options: Sequence[str] = ()) -> None:
    build = directory / BUILD_FOLDER
    log = directory / LOG_FILE
    log.unlink(missing_ok=True)
    if is_zephyr(board):
        zephyr_build.build_application(directory, build, board, log)
        return
    esp_idf = esp_idf_of(board)
    if esp_idf is not None:
        esp_idf_build.build_esp_idf(directory, build, board, esp_idf, log)
        return
    board.cpu.toolchain.prepare()
    process.find_tool(board.cpu.toolchain.compiler)
    generator = "Ninja" if shutil.which("ninja") else "Unix Makefiles"
    configure = ["cmake", "-S", str(directory), "-B", str(build)]
    if not (build / "CMakeCache.txt").is_file():
        configure += ["-G", generator, *options]
    jobs = str(os.cpu_count() or 1)
    steps = (
        ("configuring", configure, CONFIGURE_TIMEOUT_S),
        ("building", ["cmake", "--build", str(build), "-j", jobs], BUILD_TIMEOUT_S),
    )
    if not process.is_dry_run():
        build.mkdir(parents=True, exist_ok=True)
    # A compiler that is killed leaves its temporary files: let them go with the build.
    env = {**_NO_SETTINGS, "TMPDIR": str(build.absolute())}
    for what, argv, timeout_s in steps:
        too_large = partial(overflow_sentence, board)
        sentence = f"{what} an image for {board.name}"
        run_step(BuildStep(sentence, argv, timeout_s, too_large, partial(_reason, board)), env, log)


def _reason(board: Board, done: process.Completed) -> str | None:
    remedies = board.cpu.toolchain.remedies.items()
    said = ((re.search(f".*{words}.*", done.output), advice) for words, advice in remedies)
    return next((f"{found[0]}; {advice}" for found, advice in said if found), None)


def _keep_log(log: Path | None, cache_folder: Path, key: str) -> Path | None:
    """Move a failed build's log out of the folder that is about to go."""
    if log is None or not log.is_file():
        return log
    kept = cache_folder / "failed" / f"{key}.log"
    # On a full disk the error itself is worth more than its log.
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, kept)
        cache.trim_now_and_then(kept)
    return kept
