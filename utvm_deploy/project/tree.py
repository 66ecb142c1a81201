"""The contents of a project tree, and writing it.

    DIR/
      CMakeLists.txt  toolchain.cmake  image_id.cmake  link.ld (bare metal)
      BOARD.toml  utvm_project.json
      runtime/    the C runtime
      template/   the port: main, start-up, drivers
      model/      the compiled model, if there is one

It builds with CMake alone. Applications of Zephyr and of ESP-IDF look a little different: see
zephyr.py and esp_idf_project.py. build.py builds all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from utvm_deploy.base.errors import BoardError, BuildError
from utvm_deploy.base.paths import data_dir, runtime_dir
from utvm_deploy.boards.board import Board, with_template
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.project import generated
from utvm_deploy.project.esp_idf_project import esp_idf_files, esp_idf_of
from utvm_deploy.project.fit import with_stack_for
from utvm_deploy.project.pools import placed_pools, without_pools
from utvm_deploy.project.zephyr import application_files, image_id_header

logger = logging.getLogger(__name__)

PROJECT_FILE = "utvm_project.json"
PROJECT_SCHEMA = "utvm.project_tree/1"
# Hexadecimal digits of the digest in the image's id; HELLO reports up to 64 characters.
_IMAGE_ID_DIGITS = 16


def create_project(
    compiled: CompiledModel | None, board: Board, directory: Path | str, template: str | None = None
) -> Path:
    """Write a self-contained tree; refuses a folder that holds anything but a project.

    ``compiled`` None makes an image of the runtime alone.
    """
    directory = Path(directory)
    check_directory(directory)
    files = project_files(compiled, board, template)
    remove_other_models(files, directory)
    # What says that the folder is ours comes first: a tree cut by a full disk can be made again.
    write_tree({PROJECT_FILE: files[PROJECT_FILE], **files}, directory)
    return directory


def check_directory(directory: Path) -> None:
    """BuildError if ``directory`` holds what ``create_project`` had better leave alone."""
    if not os.path.lexists(directory):
        return
    if not directory.is_dir():
        raise BuildError(f"{directory} is not a folder; name a folder for the project")
    if any(directory.iterdir()) and not (directory / PROJECT_FILE).is_file():
        raise BuildError(
            f"{directory} is not empty and not a project of utvm; name a new or empty folder"
        )


def project_files(
    compiled: CompiledModel | None, board: Board, template: str | None = None
) -> dict[str, str]:
    """Path within the tree -> text of every file, image_id.cmake and the JSON included."""
    board = with_template(board, template)
    if board.why_no_image:
        raise BoardError(board.why_no_image)
    base_stack_bytes = board.project.stack_bytes
    board = with_stack_for(compiled, board)
    files = {f"runtime/{p.name}": p.read_text(encoding="utf-8") for p in _c_files(runtime_dir())}
    files.update(_template_files(board, compiled))
    if compiled is not None:
        if compiled.board != board.name:
            raise BoardError(
                f"model {compiled.name!r} was compiled for {compiled.board}, not for {board.name}; "
                f"compile it for {board.name}"
            )
        files.update({f"model/{name}": text for name, text in compiled.sources.items()})
    files[f"{board.name}.toml"] = board.source
    if board.is_application:
        folders = _template_folders(board)
        esp_idf = esp_idf_of(board)
        if esp_idf is None:
            files.update(application_files(board, compiled, base_stack_bytes, folders))
        else:
            sources = [name for name in sorted(files) if name.endswith((".c", ".S"))]
            files.update(esp_idf_files(board, esp_idf, compiled, sources, folders))
        image_id = _image_id(compiled, files)
        files["template/image_id.h"] = image_id_header(image_id)
    else:
        files.update(_cmake_files(board, compiled, files))
        image_id = _image_id(compiled, files)
        files["image_id.cmake"] = (
            "# What the image says it is when a host greets it: a digest of all files here.\n"
            f'set(UTVM_IMAGE_ID [["{image_id}"]])\n'
        )
    files[PROJECT_FILE] = _description(compiled, board, image_id)
    return files


def _cmake_files(
    board: Board, compiled: CompiledModel | None, files: Mapping[str, str]
) -> dict[str, str]:
    sources = [name for name in sorted(files) if name.endswith((".c", ".S"))]
    return {
        "CMakeLists.txt": generated.cmake_lists(
            board,
            [name for name in sources if not name.startswith("model/")],
            [name for name in sources if name.startswith("model/")],
            compiled.externals if compiled else (),
            *((compiled.optimization_flag, compiled.entry_points) if compiled else ()),
        ),
        "toolchain.cmake": generated.toolchain_file(board),
    }


def write_tree(files: Mapping[str, str], directory: Path) -> None:
    """Write the files; an unchanged file is not written, so that Make does not build it again.

    BuildError if the disk is full or the folder is not writable.
    """
    for name, text in files.items():
        path = directory / name
        try:
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise BuildError(
                f"cannot write {path}: {exc.strerror}; make room there, or name another folder"
            ) from exc


def remove_other_models(files: Mapping[str, str], directory: Path) -> None:
    """Remove what an earlier model left there: a Zephyr tree builds all that it finds."""
    for stale in (directory / "model").glob("*"):
        if f"model/{stale.name}" not in files and stale.suffix in (".c", ".h", ".S"):
            stale.unlink()


def _c_files(*folders: Path) -> list[Path]:
    """Sources, and what the linker reads as it is; files of later folders replace earlier ones."""
    found = {
        path.name: path
        for folder in folders
        for path in folder.iterdir()
        if path.suffix in (".c", ".h", ".S", ".ld")
    }
    if not found:
        raise BuildError(
            f"{folders[0]} holds no C sources; the installation is damaged, reinstall it"
        )
    return [found[name] for name in sorted(found)]


def _template_folders(board: Board) -> list[Path]:
    names = board.cpu.target.templates.folders[board.template]
    folders = [data_dir("templates") / name for name in names]
    if not all(folder.is_dir() for folder in folders):
        raise BoardError(f"template {board.template!r} is not in this installation")
    return folders


def _guard_files(board: Board) -> tuple[str, ...]:
    """The sources that keep tasks from harming the runtime. It is said if there are none."""
    guard = board.cpu.target.templates.guard_of(board.cpu.facts)
    if guard is not None:
        return guard
    logger.warning("%s: %s", board.name, board.cpu.no_guard)
    return ("guard_none.c",)


def _template_files(board: Board, compiled: CompiledModel | None) -> dict[str, str]:
    folders, guard = _template_folders(board), _guard_files(board)
    chosen = [
        path
        for path in _c_files(*folders)
        if path.name in guard or path.suffix != ".c" or not path.name.startswith("guard")
    ]
    files: dict[str, str] = {}
    if board.template == "baremetal":
        # Drivers are named KIND_NAME.c. Of each kind the board's file names one, or its core does.
        project = board.project
        assert project.uart is not None and project.timer is not None and project.clock is not None
        kinds = ("uart", "timer", "clock", "boot", "ticks")
        drivers = (project.uart, project.timer.driver, project.clock)
        names = [
            *(driver.name for driver in drivers),
            project.boot_block,
            "cycle_model" if board.has_cycle_model else "timer",
        ]
        prefixes = tuple(f"{kind}_" for kind in kinds)
        wanted = {f"{kind}_{name}.c" for kind, name in zip(kinds, names, strict=True)}
        chosen = [
            p
            for p in chosen
            if p.suffix != ".c" or p.name in wanted or not p.name.startswith(prefixes)
        ]
        pools = placed_pools(compiled, board)
        externals = compiled.externals if compiled else ()
        weights = board.weights_flash(compiled.weights_bytes) if compiled else None
        files["template/board_config.h"] = generated.board_config(board, externals, pools, weights)
        kept_out = generated.without_window(board, externals, pools, weights)
        if kept_out:
            logger.warning(
                "an MPU of %d windows has none left for %s, so tasks that use that are stopped; "
                "if the MPU of %s has no more windows, give fewer --pool",
                generated.MPU_WINDOWS,
                ", ".join(kept_out),
                board.name,
            )
        files["link.ld"] = generated.linker_script(without_pools(board, pools), folders, weights)
    files.update({f"template/{p.name}": p.read_text(encoding="utf-8") for p in chosen})
    return files


def _image_id(compiled: CompiledModel | None, files: Mapping[str, str]) -> str:
    name = compiled.name if compiled else "runtime"
    # HELLO reports 64 characters of it; a long name gives way to the digest.
    return f"{name[:40]}@{tree_digest(files)[:_IMAGE_ID_DIGITS]}"


def tree_digest(files: Mapping[str, str]) -> str:
    """SHA-256 over names and texts."""
    digest = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name].encode()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def _description(compiled: CompiledModel | None, board: Board, image_id: str) -> str:
    description = {
        "schema": PROJECT_SCHEMA,
        "board": board.name,
        "template": board.template,
        "image_id": image_id,
        "model": None
        if compiled is None
        else {
            "name": compiled.name,
            "digest": compiled.model_digest,
            "arena_bytes": compiled.arena_bytes,
            "weights_bytes": compiled.weights_bytes,
        },
    }
    return json.dumps(description, indent=2) + "\n"
