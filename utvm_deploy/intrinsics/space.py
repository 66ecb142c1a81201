"""Spaces of TVM's meta_schedule in which PrimFuncs are computed with the tensor intrinsics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from utvm_deploy.base.errors import CompileError
from utvm_deploy.kernels.intrinsics.facts import LEAST_DEPTH, PREFIX, Dot, Intrinsic, register
from utvm_deploy.kernels.intrinsics.schedules import (
    CACHED_BYTES,
    PIXELS,
    axes_of,
    block_of,
    tensorize,
)

#: The most output channels of a sketch's tile.
_COLUMNS = (64, 32, 16, 8, 4, 2)
_DEPTHS = (96, 64, 48, 32, 24, 16, 12, 8, 4)
_SKETCHES = 4
_STRUCTURE = "SSRSR"
_INNERMOST = 64


def space(func: Any, family: str) -> Any:
    """The space of a PrimFunc: schedules with each batch of pixels, and sketches of TVM's rules.

    Give it to ``ms.tune_tir`` or ``DeviceTuning.tune`` as ``space``. What is not computed with an
    intrinsic is left out. Raises CompileError if nothing of the PrimFunc fits.
    """
    postprocs = _postprocs()
    schedules = ms.space_generator.ScheduleFn(
        schedules_of(func, family), sch_rules=[], postprocs=postprocs, mutator_probs={}
    )
    found = [schedules, *(_sketch(one, postprocs) for one in sketched(func, family))]
    return ms.space_generator.SpaceGeneratorUnion(
        found,
        sch_rules=[],
        postprocs=postprocs,
        mutator_probs={ms.mutator.MutateTileSize(): 0.5},
    )


def space_of_sketches(func: Any, family: str) -> Any:
    """The sketches of TVM's rules alone; None if there are none."""
    postprocs = _postprocs()
    found = [_sketch(one, postprocs) for one in sketched(func, family)]
    if not found:
        return None
    return ms.space_generator.SpaceGeneratorUnion(
        found,
        sch_rules=[],
        postprocs=postprocs,
        mutator_probs={ms.mutator.MutateTileSize(): 1.0},
    )


def schedules_of(func: Any, family: str) -> Callable[[Any], list[Any]]:
    """A function for ``ms.space_generator.ScheduleFn``: a schedule for each batch of pixels."""
    kept: dict[Intrinsic, int] = {}
    reasons = []
    for pixels in PIXELS:
        try:
            used = _tensorized(s_tir.Schedule(func), family, pixels)
        except CompileError as error:
            reasons.append(str(error))
        else:
            kept.setdefault(used, pixels)
    if not kept:
        raise CompileError(reasons[0])

    def schedules(sch: Any) -> list[Any]:
        found = []
        for pixels in kept.values():
            copy = sch.copy()
            _tensorized(copy, family, pixels)
            found.append(copy)
        return found

    return schedules


def sketched(func: Any, family: str) -> tuple[Dot, ...]:
    """Tiles that TVM's MultiLevelTilingWithIntrin can make of a PrimFunc, the largest first.

    There are none if the windows of pixels must be gathered first.
    """
    sch = s_tir.Schedule(func)
    axes = axes_of(sch, block_of(sch))
    if len(axes.columns) != 1 or axes.run != 1 or not axes.is_plain or not axes.rows:
        return ()
    rows, columns = axes.extents[axes.rows[-1]], axes.extents[axes.columns[0]]
    depths = (axes.depth, *_DEPTHS) if LEAST_DEPTH <= axes.depth <= _DEPTHS[0] else _DEPTHS
    tiles = (
        Dot(family, pixels, channels, depth)
        for depth in _divisors(axes.depth, depths)
        for channels in _divisors(columns, _COLUMNS)
        if depth * channels <= CACHED_BYTES
        for pixels in (_divisors(rows, PIXELS[::-1]) if rows > 1 else (1,))
    )
    return tuple(islice(tiles, _SKETCHES))


def intrinsics_in(sch: Any) -> tuple[str, ...]:
    """The names of the intrinsics that a schedule uses. RewriteTensorize only warns if it fails."""
    names = []
    for instruction in sch.trace.insts:
        if instruction.kind.name == "Tensorize":
            names += [str(one) for one in instruction.attrs if str(one).startswith(PREFIX)]
    return tuple(names)


def _tensorized(sch: Any, family: str, pixels: int) -> Intrinsic:
    return tensorize(sch, block_of(sch), family, pixels=pixels, for_search=True)


def _divisors(extent: int, wanted: tuple[int, ...]) -> Iterator[int]:
    return (one for one in wanted if extent % one == 0)


def _sketch(dot: Dot, postprocs: list[Any]) -> Any:
    rules = ms.schedule_rule
    rule = rules.MultiLevelTilingWithIntrin(
        register(dot),
        structure=_STRUCTURE,
        max_innermost_factor=_INNERMOST,
        reuse_write=rules.ReuseType(req="may", levels=[1, 2], scope="global"),
    )
    return ms.space_generator.PostOrderApply(
        sch_rules=[rule], postprocs=postprocs, mutator_probs={}
    )


def _postprocs() -> list[Any]:
    return [
        ms.postproc.RewriteParallelVectorizeUnroll(),
        ms.postproc.RewriteReductionBlock(),
        ms.postproc.RewriteTensorize(),
        _OnlyTensorized(),
    ]


@derived_object
class _OnlyTensorized(ms.postproc.PyPostproc):  # type: ignore[misc]
    """Leaves out what RewriteTensorize could not replace: plain loops without a word."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, sch: Any) -> bool:
        return bool(intrinsics_in(sch))

    def clone(self) -> Any:
        return _OnlyTensorized()
