"""What LiteRT checks of every operator before a run, for any operator.

Importers check the rest. A file that LiteRT refuses has no reference, so it is refused here, too.
``tests/soak/refused_mutants.py`` looks for what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.graph.model import Tensor

_LITERT = "LiteRT 2.3.0"

#: Version -> the operators whose greatest version in LiteRT's default kernels it is.
_VERSIONS: Mapping[int, str] = {
    1: "ADD_N ASSIGN_VARIABLE ATAN2 BITWISE_XOR CALL_ONCE CEIL CONV_3D CUMSUM ELU EXPAND_DIMS "
    "FLOOR HARD_SWISH L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGICAL_AND LOGICAL_NOT LOGICAL_OR "
    "NEG ONE_HOT POW PRELU RANK READ_VARIABLE REDUCE_ALL REDUCE_ANY RELU_0_TO_1 RELU_N1_TO_1 "
    "RESHAPE RIGHT_SHIFT ROUND SHAPE SQUARE VAR_HANDLE ZEROS_LIKE",
    2: "COS DEPTH_TO_SPACE DIV EXP FLOOR_MOD GREATER L2_NORMALIZATION LEAKY_RELU LESS_EQUAL LOG "
    "LOG_SOFTMAX RANGE REDUCE_PROD SELECT_V2 SIGN SIN SPACE_TO_DEPTH SQRT SQUARED_DIFFERENCE "
    "SQUEEZE SUM",
    3: "ARG_MAX ARG_MIN AVERAGE_POOL_2D FLOOR_DIV GELU GREATER_EQUAL LESS LOGISTIC MAX_POOL_2D "
    "MEAN MIRROR_PAD REDUCE_MAX REDUCE_MIN RELU RELU6 RSQRT SPLIT_V TANH TILE TOPK_V2",
    4: "BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO DYNAMIC_UPDATE_SLICE MAXIMUM MINIMUM "
    "NOT_EQUAL RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SOFTMAX SPACE_TO_BATCH_ND "
    "SVDF UNIDIRECTIONAL_SEQUENCE_LSTM",
    5: "ABS EMBEDDING_LOOKUP EQUAL FILL PACK SPLIT SUB TRANSPOSE_CONV",
    6: "ADD GATHER_ND PAD PADV2 QUANTIZE UNPACK",
    7: "CONCATENATION DEPTHWISE_CONV_2D",
    8: "CONV_2D GATHER MUL SLICE STRIDED_SLICE",
    9: "CAST DEQUANTIZE TRANSPOSE",
    14: "FULLY_CONNECTED",
}
#: Kind -> the greatest version that LiteRT has.
GREATEST_VERSION: Mapping[str, int] = {
    kind: version for version, kinds in _VERSIONS.items() for kind in kinds.split()
}
_LEAST_VERSION: Mapping[str, int] = {"BROADCAST_TO": 2}

#: Least and most inputs, and outputs, None for any number -> the operators that have them.
_OPERANDS: Mapping[tuple[int, int, int | None], str] = {
    (0, 0, 0): "CALL_ONCE",
    (0, 0, 1): "VAR_HANDLE",
    (1, 1, 1): "ABS AVERAGE_POOL_2D CAST CEIL COS DEPTH_TO_SPACE DEQUANTIZE ELU EXP FLOOR GELU "
    "HARD_SWISH ROUND "
    "L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC "
    "LOG_SOFTMAX MAX_POOL_2D NEG QUANTIZE RANK READ_VARIABLE RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 "
    "RSQRT SHAPE SIGN SIN SOFTMAX SPACE_TO_DEPTH SQRT SQUARE SQUEEZE TANH ZEROS_LIKE",
    (1, 1, None): "UNPACK",
    (1, 2, 1): "RESHAPE",
    (2, 2, 0): "ASSIGN_VARIABLE",
    (2, 2, 1): "ADD ARG_MAX ARG_MIN ATAN2 BATCH_MATMUL BITWISE_XOR BROADCAST_TO CUMSUM DIV "
    "EMBEDDING_LOOKUP EQUAL EXPAND_DIMS FILL FLOOR_DIV FLOOR_MOD GATHER GATHER_ND GREATER "
    "GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MEAN MINIMUM MIRROR_PAD MUL "
    "NOT_EQUAL PAD POW PRELU REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD "
    "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RIGHT_SHIFT SQUARED_DIFFERENCE SUB SUM "
    "TILE TRANSPOSE",
    (2, 2, 2): "TOPK_V2",
    (2, 2, None): "SPLIT",
    (2, 3, 1): "CONV_2D CONV_3D DEPTHWISE_CONV_2D FULLY_CONNECTED",
    (3, 3, 1): "BATCH_TO_SPACE_ND DYNAMIC_UPDATE_SLICE PADV2 RANGE SELECT SELECT_V2 SLICE "
    "SPACE_TO_BATCH_ND",
    (3, 3, None): "SPLIT_V",
    (3, 4, 1): "TRANSPOSE_CONV",
    (4, 4, 1): "ONE_HOT STRIDED_SLICE",
    (5, 5, 1): "SVDF",
    (20, 24, 1): "UNIDIRECTIONAL_SEQUENCE_LSTM",
}
OPERANDS: Mapping[str, tuple[int, int, int | None]] = {
    kind: counts for counts, kinds in _OPERANDS.items() for kind in kinds.split()
}
#: Kind -> the option that repeats how many outputs it has.
_COUNTED = {"SPLIT": "NumSplits", "SPLIT_V": "NumSplits", "UNPACK": "Num"}
#: The options that name an element type.
_TYPES = ("InDataType", "OutDataType", "OutputType", "OutType", "QuantizedBiasType")
#: How far the scale of a bias may be from that of the sums, in steps of the output.
_MOST_BIAS_STEP = 0.02
#: Units that the reference divides an input step of SOFTMAX into.
_SOFTMAX_UNITS = 1 << 26
#: Kind -> the inputs that are state, which must be variables of the file.
_STATES: Mapping[str, Sequence[int]] = {"SVDF": (4,), "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19)}
_POSITIONS = {2: "int32", 4: "int64"}
_KNOWN_TYPES: Mapping[int, str] = {
    **dict.fromkeys(range(19), "another type"),
    0: "float32",
    **_POSITIONS,
}


def check_version(kind: str, version: int) -> None:
    """Raise ModelError for a version of an operator that LiteRT has not."""
    least, most = _LEAST_VERSION.get(kind, 1), GREATEST_VERSION.get(kind)
    if most is not None and not least <= version <= most:
        known = f"versions {least} to {most}" if most > least else f"version {least}"
        raise ModelError(
            f"the file has version {version} of {kind}, and {_LITERT} has {known}; convert the "
            "model with the converter of that release"
        )


def check_prepared(operators: Sequence[SourceOperator]) -> None:
    """Raise ModelError for an operator that LiteRT refuses; importers check the rest."""
    for op in operators:
        _check_counts(op)
        for option in _TYPES:
            number = op.options.get(option, 0)
            if number not in _KNOWN_TYPES:
                raise op.damaged(f"its option {option} is {number}, which names no element type")
        if op.kind in CHECKS:
            CHECKS[op.kind](op)


def check_variables(
    operators: Sequence[SourceOperator], inputs: Sequence[int], is_variable: Callable[[int], bool]
) -> None:
    """Raise ModelError for a state that is not a variable of the file, or an input that is one."""
    for op in operators:
        for number in (op.inputs[i] for i in _STATES.get(op.kind, ()) if op.has_input(i)):
            if number is not None and not is_variable(number):
                raise op.damaged(f"its state '{op.tensors[number].name}' is not a variable")
        for number in set(inputs).intersection(op.inputs):
            if number is not None and is_variable(number):
                raise op.damaged(f"model input '{op.tensors[number].name}' is a variable")
        for number in op.outputs:
            if is_variable(number):
                raise op.damaged(f"its output '{op.tensors[number].name}' is a variable")


def _check_counts(op: SourceOperator) -> None:
    if op.kind not in OPERANDS:
        return
    least, most, outputs = OPERANDS[op.kind]
    if op.kind in _COUNTED:
        outputs = op.integer(_COUNTED[op.kind])
    for what, count, few, many in (
        ("inputs", len(op.inputs), least, most),
        ("outputs", len(op.outputs), outputs, outputs),
    ):
        if few is not None and many is not None and not few <= count <= many:
            wanted = f"{few}" if few == many else f"{few} to {many}"
            raise op.damaged(f"it has {count} {what}, and {_LITERT} takes {wanted}")


def _type_of_positions(option: str) -> Callable[[SourceOperator], None]:
    """The output has the integer type that the option names."""

    def check(op: SourceOperator) -> None:
        named, made = _KNOWN_TYPES.get(op.integer(option), ""), op.output().dtype
        if made in _POSITIONS.values() and named != made:
            raise op.damaged(f"its option {option} says {named}, but it makes {made}")

    return check


def _one_dimension(*positions: int) -> Callable[[SourceOperator], None]:
    """These inputs are rows of numbers."""

    def check(op: SourceOperator) -> None:
        for tensor in map(op.input, positions):
            if len(tensor.shape) != 1:
                raise op.damaged(f"'{tensor.name}' has shape {tensor.shape}, not one dimension")

    return check


def _short(*positions: int) -> Callable[[SourceOperator], None]:
    """These inputs are int32."""

    def check(op: SourceOperator) -> None:
        for tensor in map(op.input, positions):
            if tensor.dtype != "int32":
                raise op.damaged(f"'{tensor.name}' is {tensor.dtype}; {_LITERT} takes int32 there")

    return check


def _equal(*positions: int) -> Callable[[SourceOperator], None]:
    """All outputs are quantized as these inputs are, or as all inputs are."""

    def check(op: SourceOperator) -> None:
        inputs = positions or range(len(op.inputs))
        for tensor in (op.tensors[number] for number in op.outputs):
            if any(_step(tensor) != _step(op.input(position)) for position in inputs):
                raise op.damaged(
                    f"'{tensor.name}' and what it is made of are quantized differently; they must "
                    "be equal"
                )

    return check


def _all(*checks: Callable[[SourceOperator], None]) -> Callable[[SourceOperator], None]:
    def check(op: SourceOperator) -> None:
        for one in checks:
            one(op)

    return check


def _step(tensor: Tensor) -> tuple[float, int]:
    """Scale and zero point as LiteRT has them: 0 unless there is one of each."""
    quantization = tensor.quantization
    if quantization is None or quantization.axis is not None:
        return 0.0, 0
    return quantization.scale, quantization.zero_point


def _counted_inputs(op: SourceOperator) -> None:
    stated = op.integer("ValuesCount")
    if stated != len(op.inputs):
        raise op.damaged(f"its option ValuesCount is {stated}, but it has {len(op.inputs)} inputs")


def _same_shapes(op: SourceOperator) -> None:
    x, out = op.input(0), op.output()
    if x.shape != out.shape:
        raise op.damaged(f"it makes {out.shape} of {x.shape}; they must be equal")


def _kept_dimensions(op: SourceOperator) -> None:
    """What KeepDims says is what the shapes say."""
    _short(1)(op)
    keeps, x, out = bool(op.option("KeepDims")), op.input(0), op.output()
    if x.shape and op.input(1).data is not None and keeps != (len(x.shape) == len(out.shape)):
        raise op.damaged(f"its option KeepDims is {keeps}, but it makes {out.shape} of {x.shape}")


def _type_of_bias(op: SourceOperator) -> None:
    named = _KNOWN_TYPES[int(op.options.get("QuantizedBiasType", 0))]
    if op.input(2).dtype == "int16" and named not in ("float32", *_POSITIONS.values()):
        raise op.damaged(f"its option QuantizedBiasType says {named}; a bias is int32 or int64")


def _fully_connected(op: SourceOperator) -> None:
    """Rows as long as the weights where dimensions are kept, and a bias of the sums' scale."""
    x, weights = op.input(0), op.input(1)
    if op.options.get("KeepNumDims") and x.shape[-1:] != weights.shape[-1:]:
        raise op.damaged(f"it keeps the dimensions of {x.shape}, whose rows do not fit its weights")
    step, out = _step(weights)[0], _step(op.output())[0]
    if not (step and out and op.has_input(2)):
        return
    sums, bias = float(np.float32(_step(x)[0]) * np.float32(step)), _step(op.input(2))[0]
    if abs(sums - bias) / out > _MOST_BIAS_STEP:
        raise op.damaged(
            f"its bias has the scale {bias:g}, but its sums have {sums:g}: the difference is more "
            f"than {_MOST_BIAS_STEP} of the output's scale {out:g}"
        )


def _squeezed(op: SourceOperator) -> None:
    """The dimensions that its option names have the extent 1."""
    shape = op.input(0).shape
    for axis in op.numbers("SqueezeDims"):
        if not -len(shape) <= axis < len(shape) or shape[axis] != 1:
            raise op.damaged(f"it removes dimension {axis} of {shape}, which is not 1")


def _reshaped(op: SourceOperator) -> None:
    """Without a row of numbers as its second input, the option has the shape."""
    if op.has_input(1) and len(op.input(1).shape) == 1 and op.input(1).dtype == "int32":
        return
    wanted, shape = op.numbers("NewShape"), op.output().shape
    is_scalar = wanted == (0,) and shape == ()  # as old converters wrote it
    fits = len(wanted) == len(shape) and all(
        one in (-1, other) for one, other in zip(wanted, shape, strict=True)
    )
    if not fits and not is_scalar:
        raise op.damaged(f"its option NewShape is {wanted}, but it makes {shape}")


def _distinct_axes(op: SourceOperator) -> None:
    axes = op.input(1)
    if axes.data is not None and len(set(axes.data.tolist())) < axes.data.size:
        raise op.damaged(f"its axes {axes.data.tolist()} repeat")


def _wide_enough(op: SourceOperator) -> None:
    """The reference ends the process where its multiplier is not above 1."""
    x, beta = op.input(0), float(op.option("Beta"))
    if x.dtype == "int8" and 0 < _step(x)[0] * beta * _SOFTMAX_UNITS <= 1:
        raise op.unsupported(
            f"its input's scale {_step(x)[0]:g} times its beta {beta:g} must be above 2**-26"
        )


def _no_activation(op: SourceOperator) -> None:
    if op.integer("FusedActivationFunction") != 0:
        raise op.unsupported("it has a fused activation; only NONE is supported")


_REDUCTIONS = (
    *("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"),
)
#: Kind -> what LiteRT's Prepare checks of it beyond the counts, and beyond what importers check.
CHECKS: Mapping[str, Callable[[SourceOperator], None]] = {
    "ARG_MAX": _type_of_positions("OutputType"),
    "ARG_MIN": _type_of_positions("OutputType"),
    "BATCH_TO_SPACE_ND": _all(_short(1, 2), _one_dimension(1)),
    "CONCATENATION": _no_activation,
    "EXPAND_DIMS": _equal(0),
    "L2_NORMALIZATION": _no_activation,
    "FULLY_CONNECTED": _fully_connected,
    "MIRROR_PAD": _equal(0),
    "PACK": _all(_counted_inputs, _equal()),
    "PADV2": _equal(0, 2),
    "PRELU": _same_shapes,
    "RESHAPE": _reshaped,
    "RESIZE_BILINEAR": _all(_one_dimension(1), _short(1)),
    "RESIZE_NEAREST_NEIGHBOR": _all(_one_dimension(1), _short(1)),
    "REVERSE_V2": _all(_one_dimension(1), _distinct_axes),
    "SHAPE": _type_of_positions("OutType"),
    "SLICE": _one_dimension(1, 2),
    "SOFTMAX": _wide_enough,
    "SPACE_TO_BATCH_ND": _all(_short(1, 2), _one_dimension(1)),
    "SQUEEZE": _squeezed,
    "STRIDED_SLICE": _one_dimension(1, 2, 3),
    "TRANSPOSE_CONV": _type_of_bias,
    "TOPK_V2": _short(1),
    "UNPACK": _equal(0),
    **dict.fromkeys(_REDUCTIONS, _kept_dimensions),
}
