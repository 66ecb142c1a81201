"""Whether a compiled model fits a board: before building by estimate, after linking by number."""

from __future__ import annotations

import re
from dataclasses import replace

from utvm_deploy.board import Board
from utvm_deploy.board_facts import DEBUG_LINK
from utvm_deploy.compiler.model import CompiledModel
from utvm_deploy.compiler.options import MODEL_STACK_BYTES, RUNTIME_RAM_BYTES, SERIAL_RAM_BYTES
from utvm_deploy.errors import CompileError
from utvm_deploy.project.generated import ALIAS_SUFFIX
from utvm_deploy.project.image import Image
from utvm_deploy.project.zephyr import is_zephyr, workspace_bytes

RUNTIME_FLASH_BYTES = 10 * 1024


def arena_room(board: Board) -> int:
    """Bytes of the largest RAM that an image for the board leaves to activations, by estimate."""
    if is_zephyr(board):
        return workspace_bytes(board)
    if board.data_ram != board.main_ram:
        return board.main_ram.size
    stack = 0 if board.is_host else board.project.stack_bytes
    serial = 0 if board.link.kinds == (DEBUG_LINK,) else SERIAL_RAM_BYTES
    return board.main_ram.size - RUNTIME_RAM_BYTES - serial - stack


def with_stack_for(compiled: CompiledModel | None, board: Board) -> Board:
    """The board with a stack that holds the model and its scratch, where it wants that there."""
    if compiled is None or not compiled.stack_bytes:
        return board
    # A layer calls nothing but its kernel. What runs on Zephyr's stack besides is not known.
    spare = 0 if is_zephyr(board) else board.project.stack_bytes - MODEL_STACK_BYTES
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


def check_fits(compiled: CompiledModel, board: Board) -> None:
    """CompileError, with the numbers, if the model cannot fit; kernels' code is not counted yet."""
    board = with_stack_for(compiled, board)
    region, room = board.main_ram, arena_room(board)
    if compiled.arena_bytes > room:
        raise CompileError(
            f"model {compiled.name!r} needs {compiled.arena_bytes:,} bytes of RAM for its "
            f"activations, and {board.name} has {room:,} bytes for it "
            f"({board.ram_bytes:,} bytes of RAM in all; the largest region is {region.name} with "
            f"{region.size:,}, of which runtime and stack take {region.size - room:,}); "
            f"use a smaller model or a board with more RAM"
        )
    flash = board.main_flash
    if compiled.weights_bytes > flash.size - RUNTIME_FLASH_BYTES:
        raise CompileError(
            f"model {compiled.name!r} needs {compiled.weights_bytes:,} bytes of flash for its "
            f"weights, and {board.name} has {flash.size - RUNTIME_FLASH_BYTES:,} bytes for them "
            f"({flash.size:,} bytes of flash, of which the runtime takes about "
            f"{RUNTIME_FLASH_BYTES:,}); use a smaller model or a board with more flash"
        )


def check_image_fits(image: Image, arena_bytes: int, name: str) -> None:
    """The same after linking, with the linker's numbers."""
    if arena_bytes > image.workspace_bytes:
        raise CompileError(
            f"model {name!r} needs {arena_bytes:,} bytes of RAM for its activations, and the image "
            f"leaves {image.workspace_bytes:,} of {image.board.name}'s {image.board.ram_bytes:,} "
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
    return (
        f"the image needs {region.size + over:,} bytes of {kind}, and {board.name}'s region "
        f"{region.name} has {region.size:,} ({over:,} too many); use a smaller model or a board "
        f"with more {kind}"
    )
