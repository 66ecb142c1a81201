"""A schedule that computes a sum of products with the tensor intrinsics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from utvm_deploy.base.errors import CompileError
from utvm_deploy.kernels.contract.lazy_tvm import s_tir, tirx, tvm
from utvm_deploy.kernels.intrinsics.facts import MOST_DEPTH, Dot, Intrinsic, Taps, register

#: Batches of pixels that are tried.
PIXELS = (2, 4, 8, 16, 32)
_REDUCED = 2
#: Weights of a call that stay in the smallest cache, of 4 KB, while pixels go through it.
CACHED_BYTES = 3072
#: Columns and channels of a window are one run of bytes in the image.
_COPIED_AXES = 2
#: The sum is not split further for that.
_LEAST_SPLIT = 32
_NO_SUM = "it is not a sum of products of two int8 buffers in int32"


@dataclass(frozen=True)
class Axes:
    """What the axes of a block are for, by their positions.

    The block computes ``c[both, rows, columns] += a[...] * b[...]``, summed over ``sums``.
    """

    both: tuple[int, ...]  # an index of a and of b
    rows: tuple[int, ...]  # of a only, such as pixels
    columns: tuple[int, ...]  # of b only, such as output channels
    sums: tuple[int, ...]
    extents: tuple[int, ...]
    #: How many of the last sums are one run of bytes in b.
    run: int
    #: Whether the last row axis and the sum are plain indices of a.
    is_plain: bool

    @property
    def depth(self) -> int:
        """Products in the run."""
        depth = 1
        for axis in self.sums[len(self.sums) - self.run :]:
            depth *= self.extents[axis]
        return depth


def tensorize(
    sch: Any,
    block: Any,
    family: str,
    *,
    pixels: int = 16,
    gather: bool | None = None,
    for_search: bool = False,
) -> Intrinsic:
    """Compute a block of int8 products with the intrinsics of a family, and say with which.

    ``block`` sums ``a[...] * b[...]``, as conv2d, depthwise, dense and batch matmul do. ``pixels``
    is how many of the last rows of ``a`` (pixels of an image row) a call takes at most. The largest
    divisor of their number is taken.

    ``gather`` copies the window of each of these pixels next to each other: a partial im2col. By
    default that is done where the intrinsic cannot read the image itself.

    The borders of a padded image are filled before its rows are copied, unless the schedule is
    ``for_search``: TVM's search prints traces, and fails to print this step.

    Raises CompileError if the intrinsics do not fit. The schedule is unusable then.
    """
    name = str(sch.get(block).name_hint)
    try:
        axes = axes_of(sch, block)
        if not for_search:
            _fill_apart(sch, block)
        if not axes.columns:
            return _tensorize_taps(sch, block, family, axes)
        return _tensorize_dot(sch, block, family, axes, pixels, gather)
    except s_tir.ScheduleError as error:
        reason = str(error).strip().splitlines()
        last = next((line for line in reversed(reason) if line.strip()), "no reason given")
        raise CompileError(
            f"the intrinsics of family {family} do not fit block {name}: TVM says: {last}"
        ) from None


def _fill_apart(sch: Any, block: Any) -> None:
    """Fill the borders of a padded image once, and copy its rows without a condition."""
    for producer in sch.get_producers(block):
        value = getattr(sch.get(producer).body, "value", None)
        if isinstance(value, tvm.ir.Call) and value.op.name == "prim.if_then_else":
            try:
                filling = sch.decompose_padding(producer, sch.get_loops(producer)[0])
            except s_tir.ScheduleError:
                continue  # what it fills in differs
            sch.fuse(*sch.get_loops(filling))
            sch.fuse(*sch.get_loops(producer)[-_COPIED_AXES:])


def block_of(sch: Any) -> Any:
    """The block that sums products; CompileError if there is not exactly one."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    sums = [block for block in blocks if sch.get(block).init is not None]
    if len(sums) != 1:
        raise CompileError(
            f"the tensor intrinsics do not fit a PrimFunc with {len(sums)} sums; split it so that "
            "each PrimFunc has one"
        )
    return sums[0]


def axes_of(sch: Any, block: Any) -> Axes:
    """What the axes of a block are for; CompileError if it does not sum such products."""
    one = sch.get(block)
    name = str(one.name_hint)
    left, right = _factors(one, name)
    uses = [_variables(index) for index in left.indices], [_variables(i) for i in right.indices]
    in_left, in_right = (set().union(*each) for each in uses)
    found: dict[str, list[int]] = {"both": [], "rows": [], "columns": [], "sums": []}
    variables = [axis.var for axis in one.iter_vars]
    for number, axis in enumerate(one.iter_vars):
        of_left, of_right = axis.var in in_left, axis.var in in_right
        if int(axis.iter_type) == _REDUCED:
            found["sums"].append(number)
        elif of_left and of_right:
            found["both"].append(number)
        else:
            found["columns" if of_right else "rows"].append(number)
    groups = {key: tuple(value) for key, value in found.items()}
    extents = tuple(int(axis.dom.extent) for axis in one.iter_vars)
    if not groups["sums"]:
        raise _unfit(name, _NO_SUM)
    run = _run([variables[axis] for axis in groups["sums"]], right.indices)
    last_row = [variables[axis] for axis in groups["rows"][-1:]]
    plain = [*last_row, variables[groups["sums"][-1]]]
    is_plain = all(any(_is(index, var) for index in left.indices) for var in plain) or (
        run == 1 and bool(last_row) and _is_shifted(left.indices, *plain)
    )
    return Axes(extents=extents, run=run, is_plain=is_plain, **groups)


def _tensorize_dot(
    sch: Any, block: Any, family: str, axes: Axes, pixels: int, gather: bool | None
) -> Dot:
    name = str(sch.get(block).name_hint)
    if axes.run == 0 or len(axes.columns) != 1:
        raise _unfit(
            name,
            "the last axis of its second buffer is not summed over; order the weights so that the "
            "input channels are last, such as [rows, columns, outputs, inputs]",
        )
    is_gathered = not axes.is_plain or axes.run > 1 if gather is None else gather
    gathered = _gather(sch, block, axes) if is_gathered else None
    copied = min(axes.run, _COPIED_AXES)
    if is_gathered:
        axes = _after_gathering(axes)
    rows = axes.extents[axes.rows[-1]] if axes.rows else 1
    tile = _rows_of_tile(rows, pixels)
    columns = axes.extents[axes.columns[0]]
    loops, outside = _tile(sch, block, axes, tile)
    depth = axes.depth
    # The weights of a call are read for each two pixels: they should stay in a cache.
    inner = _largest_divisor(depth, max(_LEAST_SPLIT, min(MOST_DEPTH, CACHED_BYTES // columns)))
    dot = Dot(family, tile, columns, inner)
    last = loops[axes.sums[-1]]
    others = [loops[axis] for axis in (*axes.both, *axes.rows[:-1])]
    sums = [loops[axis] for axis in axes.sums[:-1]]
    if inner < depth:
        outer, last = sch.split(last, [None, inner])
        sums.append(outer)
    row = [loops[axes.rows[-1]]] if axes.rows else []
    column = loops[axes.columns[0]]
    order = [*others, *sums, *row, column, last]
    sch.reorder(*order)
    sch.decompose_reduction(block, [*sums, *row, column][0])
    if gathered is not None and outside is not None:
        sch.compute_at(gathered, outside, preserve_unit_loops=True)
        sch.fuse(*sch.get_loops(gathered)[-copied:])
    _call(sch, row[0] if tile > 1 else column, dot)
    return dot


def _tensorize_taps(sch: Any, block: Any, family: str, axes: Axes) -> Taps:
    name = str(sch.get(block).name_hint)
    if len(axes.sums) not in (1, 2) or not axes.both:
        raise _unfit(name, "a depthwise window has one or two axes")
    sizes = [axes.extents[axis] for axis in axes.sums]
    height, width = sizes if len(sizes) == 2 else (1, sizes[0])
    taps = Taps(family, height, width, axes.extents[axes.both[-1]])
    loops, _ = _tile(sch, block, axes, 1)
    channel = loops[axes.both[-1]]
    others = [loops[axis] for axis in (*axes.both[:-1], *axes.rows)]
    # A loop of one turn has no part in the description.
    units = [loops[axis] for axis in axes.sums if axes.extents[axis] == 1]
    sums = [loops[axis] for axis in axes.sums if axes.extents[axis] > 1]
    sch.reorder(*others, *units, channel, *sums)
    sch.decompose_reduction(block, [*units, channel][0])
    _call(sch, channel, taps)
    return taps


def _call(sch: Any, loop: Any, intrinsic: Intrinsic) -> None:
    sch.tensorize(loop, register(intrinsic))


def _gather(sch: Any, block: Any, axes: Axes) -> Any:
    """Copy windows, and make the sums of the run one axis; the block that copies."""
    gathered = sch.reindex(block, ("read", 0))
    one = sch.get(block)
    numbers = {axis.var: number for number, axis in enumerate(one.iter_vars)}
    kept = len(axes.extents) - axes.run

    # Each index of both buffers is an axis now. Axes of the run become one, and axes of the
    # intrinsic come last.
    def rearranged(load: Any) -> Any:
        of = [_axis_of(index, numbers) for index in load.indices]

        def layout(*index: Any) -> list[Any]:
            by_axis = dict(zip(of, index, strict=True))
            run = [(axis, by_axis[axis]) for axis in range(kept, len(axes.extents)) if axis in of]
            units, total = _joined(axes, run)
            spatial = [by_axis[a] for a in of if a < kept and a not in axes.sums]
            sums = [by_axis[a] for a in of if a < kept and a in axes.sums]
            return [*sums, *units, *spatial, total]

        return _index_map(layout, len(of))

    def of_block(*index: Any) -> list[Any]:
        units, total = _joined(axes, list(enumerate(index))[kept:])
        return [*index[:kept], *units, total]

    for buffer, load in enumerate(_factors(one, "")):
        # The weights of a run of one axis stay as they are.
        if buffer == 0 or axes.run > 1:
            sch.transform_layout(block, ("read", buffer), rearranged(load))
    sch.transform_block_layout(block, _index_map(of_block, len(axes.extents)))
    return gathered


def _axis_of(index: Any, numbers: Mapping[Any, int]) -> int:
    (var,) = _variables(index)
    return numbers[var]


def _index_map(layout: Callable[..., Any], rank: int) -> Any:
    return tirx.IndexMap.from_func(layout, ndim=rank, index_dtype="int32")


def _joined(axes: Axes, run: Sequence[tuple[int, Any]]) -> tuple[list[Any], Any]:
    """The indices of axes with extent 1, and one index for all others.

    ``run`` has axes, the last one of them all, and their indices.
    """
    *outer, (last, total) = run
    units = [index for axis, index in outer if axes.extents[axis] == 1]
    scale = axes.extents[last]
    for axis, index in reversed(outer):
        if axes.extents[axis] > 1:
            total, scale = index * scale + total, scale * axes.extents[axis]
    return units, total


def _after_gathering(axes: Axes) -> Axes:
    kept = len(axes.extents) - axes.run
    sizes = axes.extents[kept:]
    units = sum(size == 1 for size in sizes[:-1])
    sums = (*axes.sums[: len(axes.sums) - axes.run], *range(kept, kept + units + 1))
    extents = (*axes.extents[:kept], *[1] * units, axes.depth)
    return replace(axes, sums=sums, extents=extents, run=1, is_plain=True)


def _tile(sch: Any, block: Any, axes: Axes, pixels: int) -> tuple[list[Any], Any]:
    """Loops of the block, one for each axis, the last row loop of ``pixels`` turns.

    Also the loop around them. With a consumer of the same axes, that is a loop of the consumer.
    """
    count = len(axes.extents)
    spatial = count - len(axes.sums)
    consumers = sch.get_consumers(block)
    around = None
    if len(consumers) == 1 and axes.rows and len(sch.get_loops(consumers[0])) == spatial:
        loops = sch.get_loops(consumers[0])
        outer, inner = sch.split(loops[axes.rows[-1]], [None, pixels])
        rest = [one for axis, one in enumerate(loops) if axis > axes.rows[-1]]
        before = [one for axis, one in enumerate(loops) if axis < axes.rows[-1]]
        sch.reorder(*before, outer, inner, *rest)
        sch.compute_at(block, outer, preserve_unit_loops=True)
        return list(sch.get_loops(block))[-count:], outer
    loops = list(sch.get_loops(block))[-count:]
    if axes.rows:
        around, loops[axes.rows[-1]] = sch.split(loops[axes.rows[-1]], [None, pixels])
        others = [loops[axis] for axis in (*axes.both, *axes.rows[:-1])]
        sch.reorder(*others, around, loops[axes.rows[-1]])
    return loops, around


def _factors(one: Any, name: str) -> tuple[Any, Any]:
    """The loads of the product that is added."""
    store = one.body
    value = store.value if isinstance(store, tirx.BufferStore) else None
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        raise _unfit(name, _NO_SUM)
    loads = []
    for factor in (value.b.a, value.b.b):
        load = factor.value if isinstance(factor, tirx.Cast) else factor
        if not isinstance(load, tvm.ir.TensorLoad) or str(load.source.dtype) != "int8":
            raise _unfit(name, _NO_SUM)
        loads.append(load)
    if str(store.buffer.dtype) != "int32":
        raise _unfit(name, _NO_SUM)
    return loads[0], loads[1]


def _variables(index: Any) -> set[Any]:
    import tvm_ffi  # loads TVM's library

    found: set[Any] = set()
    tvm_ffi.structural_walk(index, (tirx.Var, found.add))
    return found


def _run(sums: Sequence[Any], indices: Sequence[Any]) -> int:
    """How many of the sums are the last indices, in this order."""
    run = 0
    for var, index in zip(reversed(sums), reversed(indices), strict=False):
        if not _is(index, var):
            break
        run += 1
    return run


def _is(index: Any, var: Any) -> bool:
    return bool(index.same_as(var))


def _is_shifted(indices: Sequence[Any], row: Any, last: Any) -> bool:
    """Whether the last index is the sum's, and the row is an index plus something else."""
    return _is(indices[-1], last) and any(
        isinstance(index, tirx.Add) and (_is(index.a, row) or _is(index.b, row))
        for index in indices[:-1]
    )


def _largest_divisor(extent: int, most: int) -> int:
    return max(one for one in range(1, min(extent, max(most, 1)) + 1) if extent % one == 0)


def _rows_of_tile(rows: int, most: int) -> int:
    """The largest divisor, of the even ones if there are any: rows are multiplied in pairs."""
    even = [one for one in range(2, min(rows, most) + 1, 2) if rows % one == 0]
    return even[-1] if even else _largest_divisor(rows, most)


def _unfit(name: str, why: str) -> CompileError:
    return CompileError(f"the tensor intrinsics do not fit block {name}: {why}")
