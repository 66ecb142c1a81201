"""The runtime's object files, kept between builds: images for a board differ only by their model.

    CACHE/objects/KEY/CMakeFiles/image.dir/runtime/utvm.c.obj ...

Paths are those of a build folder. CMake calls take_object.sh before the compiler, and that script
finds an object by its output name. The image's CMakeLists.txt stays as it is. Nothing depends on
the folder: it is renamed into place when it is complete, and a missing object is compiled.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from utvm_deploy.base import cache
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.project.generated import compile_options
from utvm_deploy.project.tree import tree_digest

_KEPT_SOURCES = ("runtime", "template")
_OBJECTS = Path("CMakeFiles") / "image.dir"
# Holds the image's id, so it is never the same.
_OWN_SOURCE = "main.c"


def objects_folder(files: Mapping[str, str], board: Board, compiler: str) -> Path:
    """Where the objects lie that follow from the tree's runtime and port, flags and compiler."""
    inputs = {name: files[name] for name in files if name.split("/")[0] in _KEPT_SOURCES}
    inputs["flags"] = "\n".join(compile_options(board))
    inputs["toolchain"] = files["toolchain.cmake"]
    inputs["compiler"] = compiler
    folder = cache_dir() / "objects" / tree_digest(inputs)
    # The compiler's launcher looks at nothing: a damaged folder has to be gone before.
    cache.take(folder, cache.User())
    return folder


def launcher_option(folder: Path) -> str:
    """CMake's option that takes objects from ``folder`` if they are there."""
    script = Path(__file__).with_name("take_object.sh")
    return f"-DCMAKE_C_COMPILER_LAUNCHER=sh;{script};{folder}"


def keep_objects(build: Path, folder: Path) -> None:
    """Copy what a build made of the runtime to ``folder``; on a full disk they are not kept."""
    with contextlib.suppress(OSError):
        if folder.is_dir():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder("new", folder.parent) as fresh:
            for name in _KEPT_SOURCES:
                shutil.copytree(
                    build / _OBJECTS / name,
                    fresh / _OBJECTS / name,
                    ignore=shutil.ignore_patterns(f"{_OWN_SOURCE}.*", "*.d"),
                )
            cache.seal(fresh, sorted(path for path in fresh.rglob("*") if path.is_file()))
            cache.keep(fresh, folder)
