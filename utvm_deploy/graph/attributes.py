"""The attributes of operators, one frozen dataclass per family.

Padding is always explicit (SAME and VALID are resolved at import). Activations are clamps in units
of the quantized output, and ``limits`` in real numbers. Kernels of integers read the clamps, and
those of float32 and training the limits. So passes can merge either without knowing its origin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from utvm_deploy.graph.attribute_values import Clamp, Indices, Limits, Padding, Shape
from utvm_deploy.graph.signals.attributes import Signal

#: The shares of two neighbours, as RESIZE_BILINEAR weighs them, add up to this.
SHARES = 1 << 10
#: Comparisons whose order does not matter.
EQUALITIES = ("EQUAL", "NOT_EQUAL")


class OfOneType:
    """A base of operators whose inputs and outputs have the same element type, whichever it is."""


class OfMixedTypes:
    """A base of operators with operands of different types; only their importer checks these."""


@dataclass(frozen=True)
class Convolution:
    """CONV_2D and DEPTHWISE_CONV_2D; weights are OHWI, or 1HWC for depthwise, as in the file."""

    strides: tuple[int, int]  # rows, columns
    dilations: tuple[int, int]
    padding: Padding
    clamp: Clamp
    depth_multiplier: int = 1  # DEPTHWISE_CONV_2D only
    sums_in_32_bits: bool = False  # of int16; otherwise they are summed up in 64
    limits: Limits = None


@dataclass(frozen=True)
class Convolution3D:
    """CONV_3D of float32; weights are [depth, row, column, input channel, output channel]."""

    strides: tuple[int, int, int]  # depths, rows, columns
    dilations: tuple[int, int, int]
    padding: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # before and after
    limits: Limits


@dataclass(frozen=True)
class FullyConnected:
    """FULLY_CONNECTED; weights are [outputs, inputs]."""

    clamp: Clamp
    limits: Limits = None
    # The factor of each output (input scale * weight scale / output scale), if a pass joined layers
    # with several output scales; empty: the tensors have the scales.
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Pool:
    """AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D; padded positions do not count."""

    window: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    clamp: Clamp
    limits: Limits = None


@dataclass(frozen=True)
class PoolSums(OfMixedTypes):
    """POOL_SUMS: int32 sums of each channel's pixels; only passes make it.

    The first input is an image of int8. The second, if there is one, are the sums of rows above.
    """


@dataclass(frozen=True)
class PoolAverages(OfMixedTypes):
    """POOL_AVERAGES: what AVERAGE_POOL_2D makes of the sums of ``count`` pixels."""

    count: int
    clamp: Clamp


@dataclass(frozen=True)
class Add:
    """ADD of two tensors, with broadcasting."""

    clamp: Clamp
    # For int16 with scales of 2**n: the bits by which each side is shifted right, instead of a
    # factor.
    shifts: tuple[int, int] | None = None
    limits: Limits = None


@dataclass(frozen=True)
class Subtract:
    """SUB of two tensors, with broadcasting."""

    clamp: Clamp
    shifts: tuple[int, int] | None = None  # as in ``Add``
    limits: Limits = None


@dataclass(frozen=True)
class Multiply:
    """MUL of two tensors, with broadcasting."""

    clamp: Clamp
    limits: Limits = None


@dataclass(frozen=True)
class Divide:
    """DIV of two tensors, with broadcasting."""

    limits: Limits = None


@dataclass(frozen=True)
class OfTwo:
    """ATAN2, FLOOR_DIV and POW: functions of one element of each input, with broadcasting."""


@dataclass(frozen=True)
class Extremum:
    """MINIMUM and MAXIMUM of two equally quantized tensors, with broadcasting."""


@dataclass(frozen=True)
class BitwiseXor(OfOneType):
    """BITWISE_XOR of two tensors, with broadcasting; their quantization has no meaning."""


@dataclass(frozen=True)
class IntegerArithmetic(OfOneType):
    """ADD, MAXIMUM and others of two tensors of plain integers, with broadcasting.

    Results wrap around.
    """


@dataclass(frozen=True)
class IntegerFunction(OfOneType):
    """ABS, NEG and SIGN of plain integers; results wrap around."""


@dataclass(frozen=True)
class AddN(OfOneType):
    """ADD_N: the sum of tensors of one shape; that of int32 wraps around."""


@dataclass(frozen=True)
class FloorMod(OfOneType):
    """FLOOR_MOD of the stored values, with broadcasting; a divisor of 0 makes 0."""


@dataclass(frozen=True)
class Prelu:
    """PRELU: the second input, broadcast, multiplies negative elements."""


@dataclass(frozen=True)
class RightShift(OfOneType):
    """RIGHT_SHIFT of one tensor by another, with broadcasting, of the stored values."""


@dataclass(frozen=True)
class SquaredDifference:
    """SQUARED_DIFFERENCE of two tensors, with broadcasting."""


@dataclass(frozen=True)
class CallTir(OfMixedTypes):
    """CALL_TIR: a PrimFunc of TVM's; its parameters are the inputs, then the outputs."""

    name: str
    text: str  # the PrimFunc as ``tvm.ir.save_json`` writes it
    macs: int = 0  # multiplications whose products are summed up
    # The parameters that are numbers of the graph's format, where the PrimFunc has float32.
    numbers: tuple[int, ...] = ()
    # The graph and the operator of float32 that it computes with numbers.
    origin: Any = field(default=None, compare=False, repr=False)
    # The inputs that its output may lie exactly on.
    in_place: tuple[int, ...] = ()


@dataclass(frozen=True)
class LeakyRelu:
    """LEAKY_RELU: ``alpha`` multiplies negative elements."""

    alpha: float


@dataclass(frozen=True)
class OfOne:
    """ABS, EXP, HARD_SWISH, LOG, LOGISTIC, NEG, SQRT, TANH and others: functions of one element."""


@dataclass(frozen=True)
class Gelu:
    """GELU, computed by erf, or by tanh if it is approximate."""

    approximates: bool


@dataclass(frozen=True)
class Mean:
    """MEAN over ``axes`` (sorted, non-negative)."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Sum:
    """SUM over ``axes`` (sorted, non-negative)."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Reduce:
    """REDUCE_MAX, _MIN, _PROD, _ANY and _ALL over ``axes`` (sorted, non-negative)."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class CumulativeSum(OfOneType):
    """CUMSUM along ``axis`` (not negative): each element is the sum of those up to it."""

    axis: int
    exclusive: bool  # the element itself is not added
    reverse: bool  # from the last element to the first


@dataclass(frozen=True)
class ArgExtremum:
    """ARG_MAX and ARG_MIN: the first position of the extremum along ``axis``."""

    axis: int


@dataclass(frozen=True)
class TransposeConvolution:
    """TRANSPOSE_CONV; weights are OHWI. Inputs: image, weights, bias."""

    strides: tuple[int, int]
    padding: tuple[int, int]  # top and left, of what would be convolved back
    clamp: Clamp
    sums_in_32_bits: bool = False
    limits: Limits = None


@dataclass(frozen=True)
class BatchMatmul:
    """BATCH_MATMUL; a turned side is stored with its two last dimensions exchanged."""

    left_turned: bool
    right_turned: bool


@dataclass(frozen=True)
class ResizeBilinear:
    """RESIZE_BILINEAR to the size of the output."""

    align_corners: bool
    half_pixel_centers: bool
    #: Of some rows only: for each of the output's, both neighbours and the share of the second.
    rows: tuple[tuple[int, int, int], ...] = ()

    def neighbours(self, size: int, count: int) -> list[tuple[int, int, int]]:
        """For each of ``count`` positions: both neighbours of ``size``, the latter's share."""
        scale = (SHARES * size + count // 2) // count
        if self.align_corners and count > 1:
            scale = (SHARES * (size - 1) + (count - 1) // 2) // (count - 1)
        found = []
        for position in range(count):
            place = position * scale
            if self.half_pixel_centers:
                place += scale // 2 - SHARES // 2
            # Divisions of the reference round towards zero.
            lower = max(int(place / SHARES), 0)
            upper = min(int((place + SHARES - 1) / SHARES), size - 1)
            found.append((min(lower, size - 1), upper, place - SHARES * lower))
        return found


@dataclass(frozen=True)
class Svdf(OfMixedTypes):
    """SVDF. Inputs: x, weights by feature, weights over time, bias, state; it makes y and state."""

    rank: int
    limits: Limits = None  # of float32; None stands for no activation


@dataclass(frozen=True)
class Lstm(OfMixedTypes):
    """UNIDIRECTIONAL_SEQUENCE_LSTM; the gates are input, forget, cell and output gate.

    Inputs: x, weights of x for four gates, weights of the hidden state for four, biases for four,
    hidden state, cell state. The following may be None: peepholes of input, forget and output gate,
    a projection and its bias, norms for four gates. Without weights of the input gate, that gate is
    one minus the forget gate. The outputs are y and the two states.
    """

    time_major: bool
    cell_clip: float  # 0 is none
    projection_clip: float  # 0 is none


@dataclass(frozen=True)
class QuantizedLstm(Lstm):
    """An LSTM of int8, and the scales that its tensors do not have."""

    hidden_scale: float  # of the hidden state before any projection
    hidden_zero_point: int
    output_scale: float
    gate_scales: tuple[float, float, float, float]  # before their functions


@dataclass(frozen=True)
class Pad:
    """PAD and PADV2: (before, after) for each dimension, filled with ``value``."""

    paddings: tuple[tuple[int, int], ...]
    value: float | None = None  # None is the input's zero point, 0.0 for float32


@dataclass(frozen=True)
class Reshape(OfOneType):
    """RESHAPE, SQUEEZE and EXPAND_DIMS: the output tensor's shape says everything."""


@dataclass(frozen=True)
class Move(OfOneType):
    """MOVE: a run of the input's elements, at another address; only passes make it.

    The run begins with element ``start``. The output may overlap the input where it begins before
    the run.
    """

    start: int


@dataclass(frozen=True)
class Shift(OfOneType):
    """SHIFT: the last elements along ``axis``, and those of a second input behind them.

    Only passes make it. The output has the shape of the first input, and may have its bytes.
    """

    axis: int


@dataclass(frozen=True)
class InputRows(OfOneType):
    """INPUT_ROWS: rows of the model's input, as the caller pushes them; only passes make it.

    The input is never whole in memory (``Tensor.is_outside``), and no code reads it.
    """


@dataclass(frozen=True)
class Variable(OfOneType):
    """READ_VARIABLE and ASSIGN_VARIABLE: they read and write the bytes of a state."""


@dataclass(frozen=True)
class Boolean(OfMixedTypes):
    """EQUAL and its kin, LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, SELECT, SELECT_V2 and CAST."""


@dataclass(frozen=True)
class Rearrange(OfOneType):
    """TRANSPOSE, SLICE, GATHER, RESIZE_NEAREST_NEIGHBOR and others that only move elements.

    The input is viewed with the shape ``view``. ``indices`` are the positions in each of its
    dimensions. Then the dimensions are put in ``order`` (as numpy's transpose takes it). The result
    is viewed as ``shape``.
    """

    view: Shape
    indices: tuple[Indices, ...]
    order: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True)
class Gather:
    """GATHER and EMBEDDING_LOOKUP by computed positions. Inputs: what is taken from, positions.

    The first ``batches`` dimensions of both are the same; what is out of range counts as the
    nearest position.
    """

    axis: int
    batches: int


@dataclass(frozen=True)
class UpdateSlice(OfMixedTypes):
    """DYNAMIC_UPDATE_SLICE: the first input, in which the second replaces as much.

    It begins where the third says, an int32 or int64 for each dimension; a place from which it
    would reach outside counts as the nearest.
    """


@dataclass(frozen=True)
class OneHot(OfMixedTypes):
    """ONE_HOT: at each position along a new dimension ``axis`` one value, elsewhere another.

    Inputs: positions, the value at a position ("on"), the value elsewhere ("off").
    """

    axis: int  # in the output, not negative
    depth: int  # the extent of the new dimension


@dataclass(frozen=True)
class TopPositions(OfMixedTypes):
    """TOPK_V2: the positions of the ``count`` largest elements along the last dimension.

    The largest stands first; of equal elements, the first one does.
    """

    count: int


@dataclass(frozen=True)
class Concatenation(OfOneType):
    """CONCATENATION along ``axis``; PACK, which ``stacks``, makes that dimension."""

    axis: int
    stacks: bool = False


@dataclass(frozen=True)
class Softmax:
    """SOFTMAX along the last dimension."""

    beta: float


@dataclass(frozen=True)
class LogSoftmax:
    """LOG_SOFTMAX along the last dimension."""


@dataclass(frozen=True)
class L2Normalization:
    """L2_NORMALIZATION along the last dimension."""


@dataclass(frozen=True)
class LocalResponse:
    """LOCAL_RESPONSE_NORMALIZATION: x * (bias + alpha * sum of squares near by)**-beta."""

    radius: int
    bias: float
    alpha: float
    beta: float


@dataclass(frozen=True)
class Relu:
    """RELU, RELU6, RELU_0_TO_1 and RELU_N1_TO_1 standing alone: requantize, then clamp."""

    clamp: Clamp
    limits: Limits = None


@dataclass(frozen=True)
class Quantize:
    """QUANTIZE: float32 -> integers, or integers -> integers of another scale or type."""


@dataclass(frozen=True)
class Dequantize:
    """DEQUANTIZE: integers -> float32."""


@dataclass(frozen=True)
class Lookup(OfMixedTypes):
    """LOOKUP: the entry of a table for each byte of the first input; only passes make it.

    The second input is constant. It has 256 entries, by the byte without a sign, for each position
    along ``axis``, or for all of them.
    """

    axis: int


@dataclass(frozen=True)
class External(OfMixedTypes):
    """A custom operator, or a region of operators, that only a backend computes.

    ``lower(graph, operator, core)`` gives the call of the backend's kernel.
    """

    lower: Callable[..., Any] = field(compare=False, repr=False)
    options: bytes = b""  # of a custom operator, as the file has them
    subgraph: Any = field(default=None, compare=False, repr=False)  # of a region: its Graph
    family: str = ""  # of a region: its backend, as records name it


Attributes: TypeAlias = (
    Convolution
    | Convolution3D
    | FullyConnected
    | IntegerArithmetic
    | IntegerFunction
    | AddN
    | Pool
    | PoolSums
    | PoolAverages
    | Add
    | Subtract
    | Multiply
    | Divide
    | OfTwo
    | Extremum
    | BitwiseXor
    | FloorMod
    | Prelu
    | RightShift
    | SquaredDifference
    | CallTir
    | LeakyRelu
    | OfOne
    | Gelu
    | Mean
    | Sum
    | Reduce
    | ArgExtremum
    | CumulativeSum
    | TransposeConvolution
    | BatchMatmul
    | ResizeBilinear
    | Svdf
    | Lstm
    | Pad
    | Reshape
    | Move
    | Shift
    | InputRows
    | Variable
    | Boolean
    | Rearrange
    | Gather
    | UpdateSlice
    | OneHot
    | TopPositions
    | Concatenation
    | Softmax
    | LogSoftmax
    | L2Normalization
    | LocalResponse
    | Relu
    | Quantize
    | Dequantize
    | Lookup
    | Signal
    | External
)
