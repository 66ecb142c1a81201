"""The emulated twin of a real board: its program on an emulated machine with the same core.

Of the board are the core's features, the clock, the caches, and the name, kind, size and costs of
each region. Of the machine are the addresses, the serial line and the timer. So the program, its
fit and its modelled cycles are those of the board, as far as the cycle model knows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import board_names, load_board
from utvm_deploy.boards.facts import MONITOR_LINK, Board, Region

#: What the name of a twin ends in.
SUFFIX = ".twin"
#: The unit of a region that the machine has too little memory for.
_GRAIN = 32 * 1024


def emulated_twin(board: Board) -> Board:
    """The board's twin. Raises BoardError if no emulated machine has its core."""
    if board.runs_here:
        raise BoardError(f"{board.name} runs on this computer already; leave --emulate out")
    machine = machine_for(board)
    if machine is None:
        cores = sorted({one.cpu.core for one in _machines()})
        raise BoardError(
            f"no emulated machine has {board.name}'s core with all that it has "
            f"({_features(board)}): there are {', '.join(cores)}; plug the board in, or give "
            "--board with an emulated one (utvm boards)"
        )
    assert machine.emulator is not None
    memory = _placed(board, machine)
    return replace(
        board,
        name=f"{board.name}{SUFFIX}",
        description=f"emulated twin of {board.name} on {machine.name}",
        memory=memory,
        project=replace(
            machine.project,
            templates=("baremetal",),
            compiler_flags=board.project.compiler_flags,
            stack_bytes=board.project.stack_bytes,
            vectors=board.vector_flash.name,
            data=board.data_ram.name,
            through_alias=(),
            zephyr=None,
            code=board.main_flash.name,
            weights=board.project.weights,
            workspace=board.main_ram.name,
        ),
        probe=machine.probe,
        link=machine.link,
        emulator=replace(machine.emulator, twin_note=_note(board, machine, memory)),
    )


def machine_for(board: Board) -> Board | None:
    """The emulated board that the twin runs on; one with a cycle model if there is any."""
    cpu = board.cpu
    fitting = [
        one
        for one in _machines()
        if one.cpu.core == cpu.core
        # An emulated unit for floating point computes in all precisions of its core.
        and (cpu.fpu == "none" or one.cpu.fpu != "none")
        and one.cpu.dsp >= cpu.dsp
        and one.cpu.mve >= cpu.mve
    ]
    return min(fitting, key=lambda one: (not one.has_cycle_model, one.name), default=None)


def _machines() -> Iterator[Board]:
    for name in board_names():
        with suppress(BoardError):  # somebody else's board file
            one = load_board(name)
            images = "baremetal" in one.project.templates and MONITOR_LINK in one.link.kinds
            if one.emulator is not None and images and not one.is_host:
                yield one


def _features(board: Board) -> str:
    cpu = board.cpu
    names = [cpu.core, f"fpu {cpu.fpu}"]
    names += [name for name, has in (("dsp", cpu.dsp), ("mve", cpu.mve)) if has]
    return ", ".join(names)


def _placed(board: Board, machine: Board) -> tuple[Region, ...]:
    """The board's regions at addresses where the machine has memory."""
    assert machine.emulator is not None
    own = machine.emulator.memory or tuple((one.address, one.size) for one in machine.memory)
    # The core reads its vectors at an address that the machine sets.
    spans = sorted(own, key=lambda one: one[0] != machine.vector_flash.address)
    free = [[address, address + size] for address, size in spans]
    used = [board.vector_flash, board.main_flash, board.weights_flash(0)]
    used += [board.data_ram, board.main_ram]
    others = sorted(board.memory, key=lambda one: -one.size)
    placed: dict[str, Region] = {}
    for region in dict.fromkeys((*used, *others)):
        # RAM is where the machine has RAM, as long as there is room.
        places = free if region.kind == "flash" else [*free[1:], *free[:1]]
        if region == board.vector_flash:
            places = free[:1]
        found = _place(region, places)
        if found is not None:
            placed[region.name] = found
        elif region in used:
            raise BoardError(
                f"{machine.name}, which has {board.name}'s core, has no memory left for its region "
                f"{region.name}; plug the board in"
            )
    return tuple(placed[one.name] for one in board.memory if one.name in placed)


def _place(region: Region, free: list[list[int]]) -> Region | None:
    """The region in the first place that holds it; else a smaller one in the largest place."""
    grain = 1 << max(region.size - 1, 31).bit_length()  # as an MPU guards it
    for place in free:
        start = -(-place[0] // grain) * grain
        if start + region.size <= place[1]:
            break
    else:
        place = max(free, key=lambda one: one[1] - one[0])
        start = -(-place[0] // _GRAIN) * _GRAIN
    size = min(region.size, place[1] - start)
    if size <= 0:
        return None
    place[0] = start + size
    return replace(
        region, address=start, size=size, alias=None, boot=region.kind == "flash", needs_init=False
    )


def _note(board: Board, machine: Board, memory: tuple[Region, ...]) -> str:
    """What is the board's, and what is the machine's."""
    counted = "cycles are modelled, with its clock, caches and costs of memory, not measured"
    if not machine.has_cycle_model:
        counted = "it counts instructions, not cycles, because there is no cycle model of this core"
    elif not board.cpu.dcache_bytes:
        counted = (
            "cycles are modelled, not measured, with its clock and without the wait states of its "
            "flash, because the model has costs of memory only for cores with a cache"
        )
    by_name = {region.name: region for region in memory}
    differs = [
        f"{one.name} has {by_name[one.name].size if one.name in by_name else 0:,} of its "
        f"{one.size:,} bytes there"
        for one in board.memory
        if one.name not in by_name or by_name[one.name].size != one.size
    ]
    if board.project.through_alias:
        differs.append("nothing is read through the alias of its flash there")
    more = "".join(f"; {sentence}" for sentence in differs)
    return (
        f"{board.name}{SUFFIX} is emulated: {board.name}'s program, with its sizes of memory, at "
        f"the addresses of {machine.name}; {counted}{more}"
    )
