"""Whether a model fits a board: before building by estimate, after linking by number."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board
from utvm_deploy.boards.facts import DEBUG_LINK, RUNTIME_FLASH_BYTES
from utvm_deploy.boards.regions import dead_places
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.compiler.options import MODEL_STACK_BYTES, RUNTIME_RAM_BYTES, SERIAL_RAM_BYTES
from utvm_deploy.project import esp_idf_project
from utvm_deploy.project.esp_idf_project import esp_idf_of
from utvm_deploy.project.generated import ALIAS_SUFFIX
from utvm_deploy.project.image import Image
from utvm_deploy.project.zephyr import is_zephyr, workspace_bytes

logger = logging.getLogger("utvm_deploy.project")


def arena_room(board: Board) -> int:
    """Bytes of the largest RAM that an image for the board leaves to activations, by estimate.

    Below zero where that RAM is too small for the runtime itself.
    """
    if is_zephyr(board):
        return workspace_bytes(board)
    esp_idf = esp_idf_of(board)
    if esp_idf is not None:
        return esp_idf_project.workspace_bytes(board, esp_idf)
    if board.data_ram != board.main_ram:
        return board.main_ram.size
    stack = 0 if board.is_host else board.project.stack_bytes
    serial = 0 if board.link.kinds == (DEBUG_LINK,) else SERIAL_RAM_BYTES
    return board.main_ram.size - RUNTIME_RAM_BYTES - serial - stack


def with_stack_for(compiled: CompiledModel | MemoryNeeds | None, board: Board) -> Board:
    """The board with a stack that holds the model and its scratch, where it wants that there."""
    if compiled is None or not compiled.stack_bytes:
        return board
    # A layer calls only its kernel. The other users of an application's stack are not known.
    spare = 0 if board.is_application else board.project.stack_bytes - MODEL_STACK_BYTES
    return with_larger_stack(board, max(compiled.stack_bytes - max(spare, 0), 0))


def with_larger_stack(board: Board, more_bytes: int) -> Board:
    """The board with a stack that holds so much more than usual."""
    if not more_bytes or board.is_host:
        return board
    wanted = board.project.stack_bytes + more_bytes
    # Whole eighths of a power of two, which every memory protection unit can guard.
    grain = max((1 << (wanted - 1).bit_length()) // 8, 32)
    size = -(-wanted // grain) * grain
    return replace(board, project=replace(board.project, stack_bytes=size))


def check_fits(model: CompiledModel | MemoryNeeds, board: Board) -> None:
    """CompileError, with the numbers, if an image with the model cannot fit the board.

    The code of the kernels is not counted yet.
    """
    stack = with_stack_for(model, board)
    if isinstance(model, CompiledModel):
        _check_pools(model, stack)
    room = arena_room(stack)
    _check_arena(model, board, room, f"of which runtime and stack take {_taken(stack, room):,}")
    _check_weights(model, board, RUNTIME_FLASH_BYTES)
    for sentence in dead_places(board, model.weights_bytes):
        logger.warning("%s", sentence)


def check_fits_alone(model: CompiledModel | MemoryNeeds, board: Board) -> None:
    """CompileError if the model itself cannot fit the board: its arena, stack and weights.

    For somebody else's firmware, which does not have our runtime. Kernels' code is not counted.
    """
    stack = board.data_ram
    if model.stack_bytes > stack.size:
        raise CompileError(
            f"model {model.name!r} needs {model.stack_bytes:,} bytes of stack for its layers' "
            f"scratch, and {board.name}'s region {stack.name} has {stack.size:,}; compile "
            "it with --scratch arena, or use a smaller model"
        )
    taken = model.stack_bytes if stack == board.main_ram else 0
    of_which = f"of which the layers' scratch takes {taken:,}" if taken else ""
    _check_arena(model, board, board.main_ram.size - taken, of_which)
    _check_weights(model, board, 0)


def _check_pools(model: CompiledModel, board: Board) -> None:
    """CompileError if a pool leaves too little to runtime and stack."""
    serial = 0 if board.link.kinds == (DEBUG_LINK,) else SERIAL_RAM_BYTES
    taken = RUNTIME_RAM_BYTES + serial + board.project.stack_bytes
    for pool in model.pools:
        region = board.region(pool.name)
        if region == board.data_ram and pool.size_bytes + taken > region.size:
            raise CompileError(
                f"model {model.name!r} needs {pool.size_bytes:,} bytes of {board.name}'s region "
                f"{region.name} for its pool, and runtime and stack take {taken:,} of its "
                f"{region.size:,}; give a smaller limit (--pool {region.name}=...)"
            )


def _taken(board: Board, room: int) -> int:
    return board.main_ram.size - room


def _check_arena(
    model: CompiledModel | MemoryNeeds, board: Board, room: int, of_which: str
) -> None:
    if model.arena_bytes <= room:
        return
    region = board.main_ram
    about = (
        f"{board.ram_bytes:,} bytes of RAM in all; the region of arenas is {region.name} with "
        f"{region.size:,}"
    )
    raise CompileError(
        f"model {model.name!r} needs {_amount(model, model.arena_bytes)} of RAM for its "
        f"activations, and {board.name} has {_left(room)} for it "
        f"({', '.join(filter(None, (about, of_which)))}); "
        "take less (utvm docs small-ram), or a board with more RAM"
    )


def _check_weights(model: CompiledModel | MemoryNeeds, board: Board, runtime_bytes: int) -> None:
    """``runtime_bytes`` are the runtime's in the region of code."""
    region = board.weights_flash(model.weights_bytes)
    taken = runtime_bytes if region == board.main_flash else 0
    room = region.size - taken
    if model.weights_bytes <= room:
        return
    is_only = sum(one.kind == "flash" for one in board.memory) == 1
    about = f"{region.size:,} bytes of flash{'' if is_only else f' in the region {region.name}'}"
    of_which = f"of which the runtime takes about {taken:,}" if taken else ""
    raise CompileError(
        f"model {model.name!r} needs {_amount(model, model.weights_bytes)} of flash for its "
        f"weights, and {board.name} has {_left(room)} for them "
        f"({', '.join(filter(None, (about, of_which)))}); "
        "use a smaller model or a board with more flash"
    )


def _amount(model: CompiledModel | MemoryNeeds, size: int) -> str:
    is_least = isinstance(model, MemoryNeeds) and model.is_least
    return f"{'at least ' if is_least else ''}{size:,} bytes"


def _left(room: int) -> str:
    return f"{room:,} bytes" if room > 0 else "none"


def check_image_fits(image: Image, arena_bytes: int, name: str) -> None:
    """The same after linking, with the linker's numbers."""
    left = max(image.workspace_bytes, 0)
    if arena_bytes > left:
        raise CompileError(
            f"model {name!r} needs {arena_bytes:,} bytes of RAM for its activations, and the image "
            f"leaves {left:,} of {image.board.name}'s {image.board.ram_bytes:,} "
            f"bytes ({image.ram_bytes:,} are data and stack); use a smaller model or a board with "
            f"more RAM"
        )


_OVERFLOW = re.compile(r"region [`'](?P<region>\w+)' overflowed by (?P<bytes>\d+) bytes?")
# What it says of sections whose address the script computes.
_BEYOND = re.compile(
    r"address (?P<address>0x[0-9a-f]+) of .* is not within region [`'](?P<region>\w+)'"
)


def overflow_sentence(board: Board, linker_output: str) -> str | None:
    """One sentence for a linker's complaint about a full region; None if it has none."""
    found = [(match["region"], int(match["bytes"])) for match in _OVERFLOW.finditer(linker_output)]
    for match in _BEYOND.finditer(linker_output):
        region = board.region(match["region"].removesuffix(ALIAS_SUFFIX))
        is_alias = match["region"] != region.name and region.alias is not None
        begin = region.alias if is_alias and region.alias is not None else region.address
        found.append((match["region"], int(match["address"], 16) - begin - region.size))
    if not found:
        return None
    name, over = max(found, key=lambda one: one[1])
    region = board.region(name.removesuffix(ALIAS_SUFFIX))
    kind = "flash" if region.kind == "flash" else "RAM"
    others = [one.name for one in board.memory if one.kind == "flash" and one != region]
    has_weights = region == board.main_flash == board.weights_flash(0)
    elsewhere = (
        f'write weights = "{others[0]}" in [project] of its board file, '
        if others and has_weights
        else ""
    )
    return (
        f"the image needs {region.size + over:,} bytes of {kind}, and {board.name}'s region "
        f"{region.name} has {region.size:,} ({over:,} too many); {elsewhere}use a smaller model or "
        f"a board with more {kind}"
    )
