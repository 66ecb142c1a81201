"""The layers of a compiled model as the file has them: the calls that compute one layer together.

A layer in strips (``graph/strips/writer.py``) is many calls: one for each strip, MOVE for rows that
are read again, SLICE for rows that one reader takes. A loop (``emission/loops.py``) is a layer of
all its calls. Every other layer is one call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from utvm_deploy.compiler.compiled.model import Buffer, Layer, Loop
from utvm_deploy.graph.element_type import element_type

_MOVE, _SLICE = "MOVE", "SLICE"
#: What a loop is called, as operators are.
LOOP = "LOOP"
#: The operator in the file of an average whose input comes in strips.
_SUMS, _AVERAGES = "POOL_SUMS", "POOL_AVERAGES"
_IN_FILE = {_AVERAGES: "AVERAGE_POOL_2D"}
_NAME_OF_SUMS = re.compile(r"\[sums of \d+ rows\]$")

#: Positions in the file, and the tensor that is made.
_Key = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class FileLayer:
    """A layer, and the calls that compute it, in their order.

    ``layer`` has the index of the first call. Of a layer in strips, it has whole outputs, whose
    offset has no meaning; the other fields are those of its calls together, or of the first strip.
    A loop has the outputs that are read after it.
    """

    layer: Layer
    calls: tuple[Layer, ...]
    #: Of a layer in strips: index of a call -> first row and end of the rows that it is the first
    #: to make. Calls that make none are not in it.
    new_rows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    loop: Loop | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether it is computed in strips."""
        return self.layer is not self.calls[0] and self.loop is None

    @property
    def strips(self) -> tuple[Layer, ...]:
        """The calls that compute rows, and not only move them; none for a whole layer."""
        if not self.is_streamed:
            return ()
        return tuple(one for one in self.calls if one.index in self.new_rows or one.kind == _SUMS)

    @property
    def writers(self) -> tuple[Layer, ...]:
        """The calls that leave the outputs, or rows of one."""
        if self.loop is not None:
            return tuple(one for one in self.calls if one.index in self.loop.made)
        return tuple(one for one in self.calls if one.kind != _SUMS and not _is_slice(one))


def layers_of_file(layers: Sequence[Layer], loops: Sequence[Loop] = ()) -> tuple[FileLayer, ...]:
    """The layers of a compiled model, in the order of their first calls."""
    looped = [_loop(layers[loop.first : loop.end], loop) for loop in loops]
    inside = {call.index for one in looped for call in one.calls}
    apart = _apart([layer for layer in layers if layer.index not in inside])
    return tuple(sorted([*looped, *apart], key=lambda one: one.layer.index))


def _loop(calls: Sequence[Layer], loop: Loop) -> FileLayer:
    """The layer of a loop; its kernel is the one that multiplies most."""
    main = max(calls, key=lambda one: one.macs)
    layer = replace(
        _merged(calls, main),
        kind=LOOP,
        outputs=tuple(
            buffer for call in calls if call.index in loop.made for buffer in call.outputs
        ),
        operators=tuple(dict.fromkeys(number for one in calls for number in one.operators)),
        why=f"{loop.steps} steps of {loop.period} calls; {main.why}",
    )
    return FileLayer(replace(layer, name=layer.outputs[-1].name), tuple(calls), loop=loop)


def _apart(layers: Sequence[Layer]) -> list[FileLayer]:
    """The layers that are not loops, and the calls of each."""
    keys = {_key(layer) for layer in layers if _is_strip(layer)}
    groups: dict[object, list[Layer]] = {}
    slices: list[Layer] = []
    for layer in layers:
        if _is_slice(layer):
            slices.append(layer)
            continue
        key: object = _key(layer)
        group = groups.setdefault(key if key in keys else layer.index, [])
        # The strip that reads these rows comes next.
        if key in keys and all(one.operators == layer.operators for one in slices):
            group.extend(slices)
        else:
            groups |= {one.index: [one] for one in slices}
        slices = []
        group.append(layer)
    groups |= {one.index: [one] for one in slices}
    found: list[FileLayer] = []
    for key, calls in groups.items():
        layer_in_strips = _together(calls) if key in keys else None
        apart = [FileLayer(one, (one,)) for one in calls]
        found += apart if layer_in_strips is None else [layer_in_strips]
    return found


def _is_slice(layer: Layer) -> bool:
    return layer.kind == _SLICE and layer.outputs[0].rows is not None


def _is_strip(layer: Layer) -> bool:
    has_rows = layer.outputs[0].rows is not None and not _is_slice(layer)
    return has_rows or layer.kind in (_SUMS, _AVERAGES)


def _key(layer: Layer) -> _Key:
    return layer.operators, _whole_name(layer.outputs[0])


def _whole_name(buffer: Buffer) -> str:
    """The name of the tensor that these are some rows of."""
    if buffer.rows is not None:
        first, end = buffer.rows
        return buffer.name.removesuffix(f"[{first}:{end}]")
    return _NAME_OF_SUMS.sub("", buffer.name)


def _together(calls: Sequence[Layer]) -> FileLayer | None:
    """The layer that calls compute; None if not all of its rows come from strips.

    Strips of a CONCATENATION may need no call. Then there are only calls that move their rows.
    """
    new_rows, end = dict[int, tuple[int, int]](), 0
    for call in calls:
        rows = call.outputs[0].rows
        if rows is None or call.kind == _SLICE or rows[1] <= end:
            continue
        if rows[0] > end or call.kind == _MOVE:
            return None
        new_rows[call.index] = (end, rows[1])
        end = rows[1]
    last = calls[-1]
    if last.outputs[0].rows is None and last.kind != _SUMS:
        outputs = last.outputs  # strips are put together by a call, or averaged
    elif new_rows:
        outputs = (_whole(next(one for one in calls if one.index in new_rows).outputs[0], end),)
    else:
        return None
    main = next((one for one in calls if one.index in new_rows), last)
    layer = replace(
        _merged(calls, main),
        kind=_IN_FILE.get(main.kind, main.kind),
        name=outputs[0].name,
        outputs=outputs,
    )
    return FileLayer(layer, tuple(calls), new_rows)


def _merged(calls: Sequence[Layer], main: Layer) -> Layer:
    """A layer with what all of its calls take together, and with everything else of ``main``."""
    constants = tuple(dict.fromkeys(span for one in calls for span in one.constants))
    return replace(
        main,
        index=calls[0].index,
        macs=sum(one.macs for one in calls),
        npu_cycles=sum(one.npu_cycles or 0 for one in calls) or None,
        scratch_bytes=max(one.scratch_bytes for one in calls),
        is_external=any(one.is_external for one in calls),
        arena=tuple(dict.fromkeys(span for one in calls for span in one.arena)),
        pool=tuple(dict.fromkeys(span for one in calls for span in one.pool)),
        constants=constants,
        weights_bytes=sum(span.size_bytes for span in constants),
    )


def _whole(strip: Buffer, height: int) -> Buffer:
    """The buffer of a whole tensor of which a strip has some rows."""
    axis = strip.row_axis
    shape = (*strip.shape[:axis], height, *strip.shape[axis + 1 :])
    size = element_type(strip.dtype).size_bytes(math.prod(shape))
    return replace(strip, name=_whole_name(strip), shape=shape, size_bytes=size, rows=None)
