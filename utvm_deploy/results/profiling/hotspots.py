"""The hottest code of a model: its blocks of instructions, when each issues and what delayed it.

The cycle model reports blocks by address. Their functions come from the image's symbols, and their
text from the toolchain's disassembler if it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base import process
from utvm_deploy.base.errors import MissingTool
from utvm_deploy.project import Image

DISASSEMBLY_TIMEOUT_S = 60.0

#: What the cycle model says of an instruction -> what that means.
STALLS: Mapping[str, str] = {
    "": "",
    "paired": "issued with the one before",
    "operand": "waits for an operand",
    "bank": "loads of one bank do not pair",
    "unit": "does not pair with the one before",
    "busy": "the one before takes its cycles alone",
}

_LISTED = re.compile(r"^\s*([0-9a-f]+):\t[0-9a-f ]+\t(.*)$")
_FUNCTION_BIT = 1
# Of the runtime and the port, which run while the board waits.
_NOT_THE_MODEL = ("runtime", "template")


@dataclass(frozen=True)
class HotInstruction:
    """One instruction of a block."""

    address: int
    code: str  # the encoding, hexadecimal
    text: str  # as disassembled; the encoding where there is no disassembler
    cycle: int  # from the block's start, in a loop that runs
    cycles: int  # until the next one issues
    note: str  # what kept it, or that it cost nothing; empty if there is nothing to say


@dataclass(frozen=True)
class Hotspot:
    """A run of instructions without a branch in between."""

    function: str
    address: int
    executions: int
    core: int  # cycles of the core in all executions, without memory
    share: float  # of the core's cycles in all reported blocks of the model
    instructions: tuple[HotInstruction, ...]


def hotspots_of(report: Mapping[str, Any], image: Image, count: int) -> tuple[Hotspot, ...]:
    """The ``count`` hottest blocks of the model and of what it calls, from the model's report."""
    ours = image.code_of(_NOT_THE_MODEL)
    blocks = [
        block
        for block in report["hot"]
        if not any(begin <= block["address"] < end for begin, end in ours)
    ]
    total = sum(block["core"] for block in blocks) or 1
    texts = _disassembly(image)
    functions = sorted((address & ~_FUNCTION_BIT, name) for name, address in image.symbols.items())
    return tuple(
        Hotspot(
            function=_function_at(block["address"], functions),
            address=block["address"],
            executions=block["executions"],
            core=block["core"],
            share=block["core"] / total,
            instructions=_instructions(block["instructions"], texts),
        )
        for block in blocks[:count]
    )


def _instructions(
    listed: list[dict[str, Any]], texts: Mapping[int, str]
) -> tuple[HotInstruction, ...]:
    # How long the last one takes, nobody can say from the block alone.
    following = [*(one["cycle"] for one in listed[1:]), listed[-1]["cycle"] + 1]
    return tuple(
        HotInstruction(
            address=one["address"],
            code=str(one["code"]),
            text=texts.get(one["address"], str(one["code"])),
            cycle=one["cycle"],
            cycles=max(0, after - one["cycle"]),
            note=STALLS.get(one["stall"], one["stall"]),
        )
        for one, after in zip(listed, following, strict=True)
    )


def _function_at(address: int, functions: list[tuple[int, str]]) -> str:
    name = ""
    for start, candidate in functions:
        if start > address:
            break
        name = candidate
    return name or f"{address:#010x}"


def _disassembly(image: Image) -> dict[int, str]:
    """Address -> text of every instruction; empty without a disassembler."""
    program = f"{image.board.cpu.toolchain.prefix}objdump"
    try:
        process.find_tool(program)
    except MissingTool:
        return {}
    argv = [program, "-d", str(image.elf)]
    listing = process.run(argv, timeout_s=DISASSEMBLY_TIMEOUT_S).stdout
    matches = (_LISTED.match(line) for line in listing.splitlines())
    return {int(m[1], 16): " ".join(m[2].split()) for m in matches if m is not None}
