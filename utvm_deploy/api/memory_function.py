"""``utvm_deploy.memory``: what a model takes of RAM, stack and flash, and what sets the peak."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.api import steps
from utvm_deploy.api.compile_function import compile
from utvm_deploy.base.errors import BuildError, CompileError, MissingTool
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import ARENA, STACK
from utvm_deploy.device import Device
from utvm_deploy.project import build_image, check_fits_alone
from utvm_deploy.project.model_code import model_code
from utvm_deploy.results.profiling.memory_page import memory_svg
from utvm_deploy.results.profiling.memory_report import (
    MemoryReport,
    image_memory,
    memory_json,
    memory_report,
)

SCHEMA = "utvm.memory/1"


@dataclass(frozen=True, repr=False, eq=False)
class MemoryResult(Result):
    """What ``memory`` found; ``found`` has the peak, the stack and the parts of flash."""

    found: MemoryReport

    @property
    def headline(self) -> str:
        """The arena, and which layers set it."""
        return self.found.headline

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each tensor and each scratch buffer in the arena."""
        found = self.found
        return [
            {
                "name": use.name,
                "kind": use.kind,
                "operator": found.compiled.layers[use.first].kind,
                "offset": use.offset,
                "bytes": use.size_bytes,
                "first": use.first,
                "last": use.last,
                "is_at_peak": use in found.peak.uses,
            }
            for use in found.compiled.memory
        ]

    @property
    def svg(self) -> str | None:
        """The arena over time: layers from left to right, bytes from the top down."""
        return memory_svg(memory_json(self.found))

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm memory --json``."""
        return plain_object(SCHEMA, {**memory_json(self.found), "svg": None, "html": None})


def memory(
    model: str | Path | Any,
    board: Board | str | Path | Device,
    *,
    image: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> MemoryResult:
    """What a model takes of RAM, stack and flash on a board, and what would lower the peak.

    ``model`` is a file, or what ``quantize`` gave. ``board`` is a name, a board file, a ``Board``
    or a device. Without ``image``, nothing is linked, and the result leaves out what an image with
    the runtime takes. ``options`` are those of ``compile``, which ``profile`` lists.
    ``progress(what, done, total)`` is called on the way.

    All figures are in bytes; offsets count from the start of the arena. Without a C compiler, the
    stack and the code are not known, and ``found.notes`` says so. Raises ModelError for a file that
    cannot be imported, and CompileError for a model that does not fit the board.
    """
    target, told = steps.board_of(board), progress or no_progress
    with steps.chosen_of(options, compile), steps.model_file(model, options.get("name")) as path:
        options, _ = steps.with_backend(options, target)
        compiled = steps.compile_fitting(path, target, told, fits=check_fits_alone, **options)
    code, whole, notes = None, None, []
    try:
        told("compiling its C", 0, 1)
        code = model_code(compiled, target)
    except MissingTool as error:
        notes.append(f"stack and code are not known: {error}")
    if code is not None and image:
        try:
            told("building the image", 0, 1)
            whole = image_memory(compiled, build_image(compiled, target), _scratch_place(compiled))
        except (MissingTool, CompileError, BuildError) as error:
            notes.append(f"there is no image with the runtime: {error}")
    return MemoryResult(memory_report(compiled, target, code, whole, notes))


def _scratch_place(compiled: CompiledModel) -> str:
    """The name of a pool, or one of ``options.SCRATCH_PLACES``."""
    held = [pool.name for pool in compiled.pools if pool.scratch_bytes]
    return next(iter(held), STACK if compiled.stack_bytes else ARENA)
