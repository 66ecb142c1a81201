"""Smaller tables of weights where the fastest kernels would not fit the board's flash.

A Winograd convolution has 3.6 or 8 times the weights. So it is only taken where the flash has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall

#: What code takes of the flash: this part, but at most that many bytes.
_CODE_PART, _MOST_CODE_BYTES = 4, 128 * 1024


def room_for_tables(board: Board) -> int:
    """Bytes of flash for the constant tables of a model; the rest is for code."""
    region = board.weights_flash(0)
    flash = region.size
    if region != board.main_flash:
        return flash
    return flash - min(flash // _CODE_PART, _MOST_CODE_BYTES)


def within_flash(
    sequence: Sequence[Step | View], smaller: Callable[[Step], KernelCall], most_bytes: int
) -> tuple[Step | View, ...]:
    """The sequence, with ``smaller`` calls of some steps if all tables take more than that.

    Steps that save the most bytes come first. ``smaller`` gives another call of a step whose
    kernel has a smaller form. If nothing helps, the tables stay larger.
    """
    total = sum(_table_bytes(step.call) for step in _steps(sequence))
    if total <= most_bytes:
        return tuple(sequence)
    others = {
        number: smaller(item)
        for number, item in enumerate(sequence)
        if isinstance(item, Step) and item.call.heeds_compact > 0
    }
    found = list(sequence)

    def saved(number: int) -> int:
        step = found[number]
        assert isinstance(step, Step)
        return _table_bytes(step.call) - _table_bytes(others[number])

    for number in sorted(others, key=saved, reverse=True):
        bytes_less, step = saved(number), found[number]
        if total <= most_bytes or bytes_less <= 0:
            break
        assert isinstance(step, Step)
        why = (
            f"its tables of {_table_bytes(step.call):,} bytes are more than the flash has room for"
        )
        call = others[number]
        found[number] = replace(step, call=replace(call, why_not=call.why_not or why))
        total -= bytes_less
    return tuple(found)


def _steps(sequence: Iterable[Step | View]) -> Iterable[Step]:
    return (item for item in sequence if isinstance(item, Step))


def _table_bytes(call: KernelCall) -> int:
    return sum(a.data.nbytes for a in call.arguments if isinstance(a, ConstantArgument))
