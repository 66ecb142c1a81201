"""What each operator becomes in a stream; each rule writes it, and says what its outputs are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.signals.options import read_options
from utvm_deploy.frontend.streams.flow import Flow
from utvm_deploy.frontend.streams.writer import Shape, Writer, same_block

_SAME, _VALID = 0, 1
#: Options of windows along the axes 1 and 2: stride, dilation, and the window of a pool.
_STRIDES, _DILATIONS = ("strideH", "strideW"), ("dilationHFactor", "dilationWFactor")
_FILTERS = ("filterHeight", "filterWidth")


@dataclass(frozen=True)
class Place:
    """One operator of the file."""

    position: int
    operator: Any
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def options(self) -> Any:
        return self.operator.builtinOptions


@dataclass(frozen=True)
class _Window:
    """A window over time: taps, their distance, and padding before the whole recording."""

    taps: int
    stride: int
    dilation: int
    pads: int

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation + 1


def as_it_is(w: Writer, at: Place) -> None:
    """Write an operator again, whose inputs have no columns over time."""
    late = {w.late[one] for one in at.inputs if one in w.late}
    w.operators.append(at.operator)
    for number in at.outputs:
        if late:
            w.late[number] = max(late)


def pointwise(w: Writer, at: Place) -> None:
    """Operators that compute each column alone; inputs may be broadcast."""
    rank = max(len(w.shapes[one]) for one in at.inputs if one >= 0)
    flowing = [one for one in at.inputs if one in w.flows]
    delay = max(w.flows[one].delay for one in flowing)
    sources = {one: w.settled(one, delay) for one in flowing}
    flow = w.flows[sources[flowing[0]]]
    from_end = flow.axis - len(w.shapes[flowing[0]])
    for number in at.inputs:
        shape = w.shapes[number] if number >= 0 else ()
        if number in sources:
            other = w.flows[sources[number]]
            alike = (other.columns, other.unit, other.stride, other.axis - len(shape))
            if alike != (flow.columns, flow.unit, flow.stride, from_end):
                raise w.refusal(at.position, "joins tensors whose columns are not the same")
        elif number in w.late:
            raise w.refusal(at.position, "joins columns over time with the result of a pool")
        elif len(shape) >= -from_end and shape[from_end] > 1:
            raise w.refusal(at.position, "has another constant for each column over time")
    inputs = [sources.get(one, one) for one in at.inputs]
    write(w, at, inputs, replace(flow, axis=rank + from_end))


def window(w: Writer, at: Place) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D and pools."""
    x, options = at.inputs[0], at.options
    flow = w.flows[x]
    if flow.axis not in (1, 2) or flow.unit > 1:
        raise w.refusal(at.position, f"does not compute along axis {flow.axis}, which is time")
    side = flow.axis - 1
    result = w.shapes[at.outputs[0]][flow.axis]
    it = _window_of(w, at, side)
    if result == 1 and it.reach == flow.window and flow.window > 1 and not it.pads:
        behind_window(w, at)
        return
    if options.padding == _SAME and (result - 1) * it.stride + it.reach > flow.window:
        w.padding.add(at.position)
        if "POOL" in at.kind and at.kind != "MAX_POOL_2D":
            raise w.refusal(at.position, "divides by fewer columns where it pads along time")
    _check_hop(w, at, flow, it.stride)
    fill = aside = _lowest(w, x) if at.kind == "MAX_POOL_2D" else w.zero(x)
    pads = it.pads > 0 or (w.ends and options.padding == _SAME and it.reach > it.stride)
    if flow.padded is not None and (not pads or flow.padded == fill):
        fill = flow.padded
    elif flow.padded is not None:
        x = w.settled(x)
        flow = w.flows[x]
    source = w.masked(x, fill) if pads or flow.padded is not None else x
    delay = max(-((it.pads + it.stride - it.reach - flow.delay) // it.stride), 0)
    before = delay * it.stride + it.pads - flow.delay
    length = flow.columns - it.stride + it.reach
    source = w.span(source, before, length, fill)
    lost = flow.own + (0 if options.padding == _SAME else (it.reach - 1) * flow.stride)
    if options.padding == _SAME and it.reach > it.stride:
        source = _padded_aside(w, at, source, side, aside)
        options.padding = _VALID
    rate = {"columns": flow.columns // it.stride, "stride": flow.stride * it.stride}
    made = Flow(flow.axis, 1, **rate, window=result, delay=delay, lost=lost)
    write(w, at, [source, *at.inputs[1:]], made)


def _check_hop(w: Writer, at: Place, flow: Flow, stride: int) -> None:
    if flow.columns % stride:
        least, hop = flow.stride * stride, flow.columns * flow.stride
        raise w.refusal(
            at.position,
            f"takes {least} columns of the input for each column that it makes, and a hop of {hop} "
            f"does not divide into these; give a multiple of {least}",
        )


def _window_of(w: Writer, at: Place, side: int) -> _Window:
    """The window along time; its padding is that of a recording of a multiple of its strides."""
    options = at.options
    is_pool = "POOL" in at.kind
    stride = getattr(options, _STRIDES[side])
    dilation = 1 if is_pool else getattr(options, _DILATIONS[side])
    shape = None if is_pool else w.shapes[at.inputs[1]]
    taps = getattr(options, _FILTERS[side]) if shape is None else shape[1 + side]
    reach = (taps - 1) * dilation + 1
    pads = max(reach - stride, 0) // 2 if options.padding == _SAME else 0
    return _Window(taps, stride, dilation, pads)


def _padded_aside(w: Writer, at: Place, source: int, side: int, fill: float) -> int:
    """The tensor with the padding of SAME along the axis that is not time."""
    other = 1 - side
    it, axis = _window_of(w, at, other), 1 + other
    extent = w.shapes[at.inputs[0]][axis]
    result = w.shapes[at.outputs[0]][axis]
    total = max((result - 1) * it.stride + it.reach - extent, 0)
    if not total:
        return source
    if at.kind != "MAX_POOL_2D" and "POOL" in at.kind:
        raise w.refusal(
            at.position, "leaves out the padding along another axis, which a stream adds"
        )
    paddings = np.zeros((4, 2))
    paddings[axis] = total // 2, total - total // 2
    shape = list(w.shapes[source])
    shape[axis] += total
    made = w.tensor(source, tuple(shape), "padded")
    inputs = [source, w.constant(paddings)]
    if fill == w.zero(source):
        return w.put("PAD", inputs, made, "PadOptions")
    return w.put("PADV2", [*inputs, w.scalar(source, fill)], made, "PadV2Options")


def behind_window(w: Writer, at: Place) -> None:
    """Operators that take the last columns of a window at once, as pools over all of time do."""
    taken = {one: w.last_window(one) for one in at.inputs if one in w.flows}
    at.operator.inputs = [taken.get(one, one) for one in at.inputs]
    w.operators.append(at.operator)
    for number in at.outputs:
        w.late[number] = max(w.late[one] for one in taken.values())


def reshape(w: Writer, at: Place) -> None:
    """RESHAPE, SQUEEZE and EXPAND_DIMS."""
    x, result = at.inputs[0], w.shapes[at.outputs[0]]
    flow = w.flows[x]
    found = same_block(w.shapes[x], flow, result)
    if found is None:
        behind_window(w, at)
        return
    axis, unit = found
    shape = list(result)
    shape[axis] = flow.columns * unit
    at.operator.opcodeIndex = schema.code_index(w.model, "RESHAPE", 1)
    schema.set_options(at.operator, "ReshapeOptions", newShape=shape)
    write(w, at, [x, w.constant(np.array(shape))], replace(flow, axis=axis, unit=unit))


def fully_connected(w: Writer, at: Place) -> None:
    """FULLY_CONNECTED: of each column, or of a whole window that was made flat."""
    x, shape = w.settled(at.inputs[0]), w.shapes[at.inputs[0]]
    flow, depth = w.flows[x], w.shapes[at.inputs[1]][-1]
    rows = same_block(shape[:-1], flow, w.shapes[at.outputs[0]][:-1])
    is_each = flow.unit == 1 and flow.axis < len(shape) - 1 and depth == shape[-1]
    if not is_each or rows is None:
        behind_window(w, at)
        return
    write(w, at, [x, *at.inputs[1:]], replace(flow, axis=rows[0]))


def transpose(w: Writer, at: Place) -> None:
    """TRANSPOSE: time is another axis behind it."""
    flow = w.flows[at.inputs[0]]
    order = _constant(w, at, 1).reshape(-1).tolist()
    write(w, at, list(at.inputs), replace(flow, axis=order.index(flow.axis)))


def along_last(w: Writer, at: Place) -> None:
    """SOFTMAX and others along the last axis."""
    x = at.inputs[0]
    if w.flows[x].axis == len(w.shapes[x]) - 1:
        raise w.refusal(at.position, "computes along time, which a stream has not as a whole")
    pointwise(w, at)


def framer(w: Writer, at: Place) -> None:
    """SignalFramer: it keeps its samples itself, so a run gives the frames of its samples."""
    x = at.inputs[0]
    flow = w.flows[x]
    options = at.operator.customOptions
    step = 1 if options is None else read_options(bytes(options)).get("frame_step", 1)
    if flow.axis != len(w.shapes[x]) - 1 or flow.unit > 1 or flow.first or flow.padded is not None:
        raise w.refusal(at.position, "takes samples over time, of which none came late")
    _check_hop(w, at, flow, step)
    w.has_states = True
    w.operators.append(at.operator)
    rate = {"columns": flow.columns // step, "stride": flow.stride * step}
    window = w.shapes[at.outputs[0]][-2]
    w.begin(at.outputs[0], Flow(len(w.shapes[x]) - 1, 1, **rate, window=window))


def reduce(w: Writer, at: Place) -> None:
    """MEAN, SUM and others over some axes."""
    x = at.inputs[0]
    flow, rank = w.flows[x], len(w.shapes[x])
    axes = {int(axis) % rank for axis in _constant(w, at, 1).reshape(-1)}
    if flow.axis in axes or flow.unit > 1:
        behind_window(w, at)
        return
    gone = 0 if at.options.keepDims else sum(axis < flow.axis for axis in axes)
    x = w.settled(x)
    write(w, at, [x, *at.inputs[1:]], replace(w.flows[x], axis=flow.axis - gone))


def pad(w: Writer, at: Place) -> None:
    """PAD and PADV2: columns before the recording are what the stream finds at first."""
    x = at.inputs[0]
    flow = w.flows[x]
    paddings = _constant(w, at, 1).astype(np.int64)
    before, after = (int(one) for one in paddings[flow.axis])
    value = float(_constant(w, at, 2).reshape(-1)[0]) if len(at.inputs) > 2 else w.zero(x)
    if flow.padded is not None:
        x = w.settled(x)
        flow = w.flows[x]
    paddings[flow.axis] = 0
    if before or after:
        if flow.unit > 1 or at.kind == "MIRROR_PAD":
            raise w.refusal(at.position, "pads along time with other columns")
        w.padding.add(at.position)
    if paddings.any():
        made = w.tensor(at.outputs[0], w.extended(at.outputs[0], flow, flow.extent), "padded")
        at.operator.inputs = [x, w.constant(paddings), *at.inputs[2:]]
        at.operator.outputs = [made]
        w.operators.append(at.operator)
        w.flows[made] = flow
        x = made
    window = w.shapes[at.outputs[0]][flow.axis]
    after = after if w.ends else 0
    padded = replace(flow, delay=flow.delay - before, pads=before, after=after, window=window)
    _rename(w, at.outputs[0], x, replace(padded, padded=value if before or after else None))


def slices(w: Writer, at: Place) -> None:
    """SLICE and STRIDED_SLICE: columns that are left out at an end only shift the others."""
    x = w.settled(at.inputs[0])
    flow, shape, result = w.flows[x], w.shapes[at.inputs[0]], w.shapes[at.outputs[0]]
    begin, last = (_constant(w, at, i).astype(np.int64).reshape(-1) for i in (1, 2))
    axis, gone, step = flow.axis, 0, 1
    start = int(begin[axis])
    if at.kind == "STRIDED_SLICE":
        o = at.options
        if o.ellipsisMask or o.newAxisMask or len(begin) != len(shape):
            raise w.refusal(at.position, "has a mask that a stream does not take")
        step = int(_constant(w, at, 3).reshape(-1)[axis])
        start = 0 if o.beginMask >> axis & 1 else start
        gone = bin(o.shrinkAxisMask & ((1 << axis) - 1)).count("1")
        shrinks = bool(o.shrinkAxisMask >> axis & 1)
    else:
        shrinks = False
    start += shape[axis] if start < 0 else 0
    count = 1 if shrinks else result[axis - gone]
    if flow.unit > 1 or step != 1:
        raise w.refusal(at.position, "takes single columns over time")
    if shrinks or (count == 1 and flow.window > 1):
        begin[axis], last[axis] = 0, 1
        _one_column(w, at, x, start, [w.constant(begin), w.constant(last), *at.inputs[3:]])
        return
    begin[axis], last[axis] = 0, flow.columns
    lost = flow.lost + (flow.window - count) * flow.stride
    moved = replace(flow, axis=axis - gone, delay=flow.delay + start, window=count, lost=lost)
    write(w, at, [x, w.constant(begin), w.constant(last), *at.inputs[3:]], moved)


def _one_column(w: Writer, at: Place, x: int, position: int, others: list[int]) -> None:
    """Let an operator take a column of the window: of one that begins with it, the first."""
    taken = w.last_window(x, w.flows[x].window - position)
    at.operator.inputs = [taken, *others]
    w.operators.append(at.operator)
    w.late[at.outputs[0]] = w.late[taken]


def gather(w: Writer, at: Place) -> None:
    """GATHER: one column, several of a window, or places of another axis."""
    x, positions = w.settled(at.inputs[0]), _constant(w, at, 1)
    flow, (axis,) = w.flows[x], _axes_of(w, at)
    if axis != flow.axis:
        if flow.axis < at.options.batchDims:
            raise w.refusal(at.position, "takes other places for each column over time")
        moves = positions.ndim - 1 - at.options.batchDims if axis < flow.axis else 0
        write(w, at, [x, at.inputs[1]], replace(flow, axis=flow.axis + moves))
    elif positions.size == 1 and flow.unit == 1:
        zero = w.constant(np.zeros(positions.shape))
        _one_column(w, at, x, int(positions.reshape(-1)[0]) % flow.window, [zero])
    else:
        behind_window(w, at)


def _axes_of(w: Writer, at: Place) -> list[int]:
    """The axes along which an operator works, from 0; only REVERSE_V2 may have several."""
    where: Mapping[str, int] = {
        "SPLIT": 0,
        "SPLIT_V": 2,
        "REVERSE_V2": 1,
        "CUMSUM": 1,
        "ARG_MAX": 1,
        "ARG_MIN": 1,
    }
    if at.kind in where:
        axes = _constant(w, at, where[at.kind]).reshape(-1).tolist()
    else:
        axes = [at.options.axis]
    rank = len(w.shapes[at.outputs[0]]) if at.kind == "PACK" else len(w.shapes[_data_of(w, at)])
    return [axis % rank for axis in axes]


def along_axis(w: Writer, at: Place) -> None:
    """Operators along an axis that is not time, such as CONCATENATION of channels."""
    flowing = [one for one in at.inputs if one in w.flows]
    axes = _axes_of(w, at)
    delay = max(w.flows[one].delay for one in flowing)
    sources = {one: w.settled(one, delay) for one in flowing}
    flow = w.flows[sources[flowing[0]]]
    if flow.axis in axes and at.kind != "PACK":
        raise w.refusal(at.position, "works along time, which a stream has not as a whole")
    alike = {(f.axis, f.columns, f.unit, f.stride) for f in map(w.flows.get, sources.values()) if f}
    # Constants and results of pools would be columns, too.
    others = [one for one in at.inputs if one not in sources and len(w.shapes[one]) > 1]
    if len(alike) > 1 or (others and at.kind in ("CONCATENATION", "PACK")):
        raise w.refusal(at.position, "joins tensors whose columns are not the same")
    moves = {"PACK": 1, "UNPACK": -1, "ARG_MAX": -1, "ARG_MIN": -1}.get(at.kind, 0)
    below = flow.axis + (at.kind == "PACK")
    made = replace(flow, axis=flow.axis + (moves if moves and axes[0] < below else 0))
    write(w, at, [sources.get(one, one) for one in at.inputs], made)


def _data_of(w: Writer, at: Place) -> int:
    return next(one for one in at.inputs if one in w.flows)


def _constant(w: Writer, at: Place, position: int) -> Any:
    found = w.value(at.inputs[position])
    if found is None:
        raise w.refusal(at.position, "has no constant axes, as a stream demands")
    return found


def _lowest(w: Writer, number: int) -> float:
    dtype: Any = np.dtype(schema.STORED[w.graph.tensors[number].type])
    return float(np.iinfo(dtype).min if dtype.kind in "iu" else np.finfo(dtype).min)


def write(w: Writer, at: Place, inputs: list[int], flow: Flow) -> None:
    """Write the operator with other inputs; its outputs have this flow."""
    at.operator.inputs = inputs
    w.operators.append(at.operator)
    for number in at.outputs:
        w.begin(number, flow)


def _rename(w: Writer, output: int, source: int, flow: Flow) -> None:
    """Let an output be another tensor, under its own name: a RESHAPE that costs nothing."""
    shape: Shape = w.extended(output, flow, flow.extent)
    w.put("RESHAPE", [source, w.constant(np.array(shape))], output, "ReshapeOptions")
    w.begin(output, flow)


Rule = Callable[[Writer, Place], None]

_POINTWISE = (
    *("ABS", "ADD", "ADD_N", "CAST", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EQUAL", "EXP"),
    *("FLOOR", "FLOOR_DIV", "FLOOR_MOD", "GELU", "GREATER", "GREATER_EQUAL", "HARD_SWISH"),
    *("LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"),
    *("LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "POW", "PRELU", "QUANTIZE"),
    *("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SELECT", "SELECT_V2"),
    *("SIGN", "SIN", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH"),
)
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_POINTWISE, pointwise),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"), window),
    "L2_POOL_2D": window,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshape),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"), along_last),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), reduce),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), pad),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), slices),
    **dict.fromkeys(("CONCATENATION", "PACK", "SPLIT", "SPLIT_V", "UNPACK"), along_axis),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN", "CUMSUM", "REVERSE_V2"), along_axis),
    "FULLY_CONNECTED": fully_connected,
    "GATHER": gather,
    "TRANSPOSE": transpose,
    "SignalFramer": framer,
    **dict.fromkeys(("SignalWindow", "SignalRfft", "SignalIrfft"), along_last),
}
#: Those of which any input may be columns over time; of others, it is the first one.
OF_ANY_INPUT = frozenset(kind for kind, rule in RULES.items() if rule in (pointwise, along_axis))
