"""The default schedule of a PrimFunc that TVM made: fewer buffers, and sums in registers.

    inline ─▶ tile the products ─▶ compute rows together

- Stages that are computed element by element are computed where they are read, if that repeats no
  costly function.
- Products of two tensors, and pools, compute a tile of outputs at once. So a loaded value is used
  several times. What follows is computed on the tile, too, not in another pass.
- Stages of a softmax or a normalization are computed for one row after another, so that their
  buffers have one row.

No step changes the order in which the terms of one sum are added, so every step keeps all bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from utvm_deploy.kernels.contract.lazy_tvm import tirx, tvm
from utvm_deploy.kernels.portable.schedules.tiling import (
    MAX_FLOAT_ACCUMULATORS,
    choose_tile,
    schedule_accumulation,
)

# TVM's numbers for a block's dimension whose elements are independent, or are summed up.
_SPATIAL, _REDUCED = 0, 2
#: Stages inside of others may take this factor of all steps: rows of a padded image overlap.
_MOST_REPEATED = 1.02
#: Steps that a mathematical function stands for.
_COSTLY_STEPS = 20
#: What does not count as costly among TVM's calls.
_CHEAP = ("tirx.if_then_else", "tirx.likely")


def schedule_tir(sch: Any) -> str:
    """Shape the loops; what was done, for the report."""
    inlined = sum(_inline(sch, block) for block in _blocks(sch))
    tiled = sum(_tile_if_possible(sch, block) for block in _blocks(sch))
    joined = sum(_join(sch, block) for block in reversed(_blocks(sch)))
    for block in _blocks(sch):
        for nested in sch.get_child_blocks(block) or (block,):
            _begin(sch, nested)
    done = [
        f"{count} {what}"
        for count, what in (
            (inlined, "stages inlined"),
            (tiled, "tiled"),
            (joined, "computed by rows"),
        )
        if count
    ]
    return ", ".join(["TVM's loops", *done])


def _blocks(sch: Any) -> list[Any]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _attempt(step: Callable[..., object], *arguments: Any) -> bool:
    """Whether TVM's step was possible; one that is not changes nothing."""
    try:
        step(*arguments)
    except (tvm.s_tir.ScheduleError, tvm.error.InternalError):
        return False
    return True


def _inline(sch: Any, block: Any) -> bool:
    """Compute a stage where it is read, or in the stage that it reads."""
    consumers = sch.get_consumers(block)
    if _is_costly(sch, block) and (len(consumers) > 1 or _is_repeated(sch, block, consumers)):
        return False
    if _attempt(sch.compute_inline, block):
        return True
    # On a copy first: TVM fails inside of this step for some stages, which may leave it half done.
    is_possible = _attempt(sch.copy().reverse_compute_inline, block)
    return is_possible and _attempt(sch.reverse_compute_inline, block)


def _is_costly(sch: Any, block: Any) -> bool:
    """Whether an element takes a mathematical function or a division, of indices, too."""
    found: list[Any] = []

    def call(node: Any) -> None:
        if str(getattr(node.op, "name", "")) not in _CHEAP:
            found.append(node)

    divisions = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
    _walk(sch.get(block).body, (divisions, found.append), (tvm.ir.Call, call))
    return bool(found)


def _is_repeated(sch: Any, block: Any, consumers: Any) -> bool:
    """Whether a consumer takes more steps than the stage has elements."""
    return any(_steps(sch, one) > _steps(sch, block) for one in consumers)


def _steps(sch: Any, block: Any) -> int:
    product = 1
    for loop in sch.get_loops(block):
        product *= int(sch.get(loop).extent)
    return product


def _tile_if_possible(sch: Any, block: Any) -> bool:
    """Tile a reduction, unless a step of it fails, which would leave the others behind."""
    return _attempt(_tile, sch.copy(), block) and _tile(sch, block)


def _tile(sch: Any, block: Any) -> bool:
    """Compute a tile of outputs of a reduction at once, and what follows on the same tile."""
    kinds = [int(one.iter_type) for one in sch.get(block).iter_vars]
    spatial, reduced = kinds.count(_SPATIAL), kinds.count(_REDUCED)
    loops = sch.get_loops(block)
    if not reduced or kinds != [_SPATIAL] * spatial + [_REDUCED] * reduced:
        return False
    if len(loops) != len(kinds) or len(sch.get(block).writes) != 1:
        return False
    consumers = sch.get_consumers(block)
    sources = _sources(sch, block)
    is_product = len(sources) > 1
    if not is_product and any(sources & _sources(sch, one) for one in consumers):
        return False  # a stage of a normalization, whose input is read again
    sides = [loop for loop in loops[:spatial] if int(sch.get(loop).extent) > 1]
    if not sides:
        return False
    last = int(sch.get(sides[-1]).extent)
    before = int(sch.get(sides[-2]).extent) if len(sides) > 1 and is_product else 1
    tile = choose_tile(before, last, MAX_FLOAT_ACCUMULATORS)
    if tile.pixels * tile.channels == 1:
        return False
    inner = []
    outer = list(loops[:spatial])
    for side, factor in ((sides[-2:-1], tile.pixels), (sides[-1:], tile.channels)):
        if factor > 1:
            place = next(i for i, one in enumerate(outer) if one.same_as(side[0]))
            outer[place], within = sch.split(side[0], [None, factor])
            inner.append(within)
    sch.reorder(*outer, *loops[spatial:], *inner)
    for consumer in consumers:
        if all(int(one.iter_type) == _SPATIAL for one in sch.get(consumer).iter_vars):
            _attempt(sch.reverse_compute_at, consumer, outer[-1])
    schedule_accumulation(sch, block, loops[spatial:], inner)
    return True


def _begin(sch: Any, block: Any) -> None:
    """Set the sums of a reduction to zero before its loops, not in their first step.

    C compilers do not see that the first step comes first, and warn.
    """
    if sch.get(block).init is None:
        return
    for loop in reversed(sch.get_loops(block)):
        if _attempt(sch.decompose_reduction, block, loop):
            return


def _sources(sch: Any, block: Any) -> set[Any]:
    """The buffers that a block reads, but does not write."""
    written = {one.source for one in sch.get(block).writes}
    return {one.source for one in sch.get(block).reads} - written


def _join(sch: Any, block: Any) -> bool:
    """Compute a stage inside of the outer loops of what reads it, if nothing is computed twice."""
    consumers = sch.get_consumers(block)
    if not consumers:
        return False
    before = _all_steps(sch)
    loops = sch.get_loops(consumers[0])
    # The deepest loop first: its buffers are the smallest.
    for loop in reversed(loops):
        trial = sch.copy()
        if _attempt(trial.compute_at, block, loop) and (
            _all_steps(trial) <= before * _MOST_REPEATED
        ):
            sch.compute_at(block, loop)
            return True
    return False


def _all_steps(sch: Any) -> int:
    """The steps of all stages."""
    return sum(
        _steps(sch, block) * (_COSTLY_STEPS if _is_costly(sch, block) else 1)
        for block in _blocks(sch)
    )


def _walk(node: Any, *visits: Any) -> None:
    import tvm_ffi

    tvm_ffi.structural_walk(node, visits)
