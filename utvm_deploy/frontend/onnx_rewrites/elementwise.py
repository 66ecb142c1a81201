"""Rewrites of operators on elements, norms and logical operators."""

from __future__ import annotations

import math

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.bodies import body_of
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting

#: The first version of ONNX whose operators broadcast by the last dimensions.
_BROADCASTING = 7


def prelu(r: Rewriting) -> str:
    """max(x, 0) + slope * min(x, 0): TVM takes the slopes to be along the last dimension."""
    x, slope = r.input(0), r.input(1)
    ranks = [len(r.state.shape(name) or ()) for name in (x, slope)]
    more = ranks[0] - 2
    if r.state.version < _BROADCASTING and more > 0 and ranks[1] == 1:
        slope = r.reshaped(slope, (*r.shape(1), *(1,) * more))
    above = r.add("Relu", x)
    below = r.add("Neg", r.add("Relu", r.add("Neg", x)))
    return r.add("Add", above, r.add("Mul", slope, below))


def lp_normalization(r: Rewriting) -> str:
    """x / norm, and 0 where the norm is 0."""
    x, rank = r.input(0), len(r.shape(0))
    kind = {1: "ReduceL1", 2: "ReduceL2"}.get(int(r.given.get("p", 2)))
    if kind is None:
        raise UnsupportedOperator(f"{r.place} has a p other than 1 and 2, which ONNX forbids")
    norm = r.reduced(kind, x, [r.axis("axis", -1, rank)])
    dtype = r.dtype(0)
    zero, one = r.constant(0, dtype), r.constant(1, dtype)
    is_zero = r.add("Equal", norm, zero)
    ratio = r.add("Div", x, r.add("Where", is_zero, one, norm))
    return r.add("Where", is_zero, zero, ratio)


def power(r: Rewriting) -> str | bool:
    """Powers with an exponent of another type, and powers of integers."""
    base, exponent = r.dtype(0), r.dtype(1)
    if base.kind == "f":
        if base == exponent:
            return False
        return r.add("Pow", r.input(0), r.cast(r.input(1), base))
    known = r.value(1)
    if exponent.kind == "f":
        if known is None or not (known == np.floor(known)).all():
            raise UnsupportedOperator(
                f"{r.place} raises integers to float powers; cast the integers to float32"
            )
        exponents = r.constant(known.astype(base))
    else:
        exponents = r.cast(r.input(1), base)
    if known is not None and (known < 0).any():
        raise UnsupportedOperator(f"{r.place} raises integers to negative powers")
    return _squared(r, r.input(0), exponents, base)


def _squared(r: Rewriting, base: str, exponents: str, dtype: np.dtype[np.generic]) -> str:
    """Powers of integers: a factor for each bit of the exponent."""
    one, two = r.constant(1, dtype), r.constant(2, dtype)
    made = one
    known = r.state.constants.get(exponents)
    bits = 6 if known is None else max(1, int(known.max(initial=0)).bit_length())
    for number in range(bits):
        is_odd = r.add("Equal", r.add("Mod", exponents, two), one)
        made = r.add("Mul", made, r.add("Where", is_odd, base, one))
        if number + 1 < bits:
            exponents = r.add("Div", exponents, two)
            base = r.add("Mul", base, base)
    return made


def cast_like(r: Rewriting) -> str | bool:
    """A cast to a type that is known, so that the cast of a constant is one."""
    dtype = r.state.dtype(r.input(1))
    if dtype is None:
        return False
    return r.cast(r.input(0), dtype)


def of_booleans(r: Rewriting) -> str | bool:
    """The largest or smallest boolean, by integers."""
    if r.dtype(0).kind != "b":
        return False
    integers = r.cast(r.input(0), np.int32)
    inputs = [integers, *r.node.input[1:]]
    return r.cast(r.add(r.kind, *inputs, **r.given), np.bool_)


def is_all_minus_infinity(r: Rewriting) -> str | bool:
    """Whether a maximum is -infinity, without it: TVM's begins at the least finite number."""
    for position in (0, 1):
        bound = r.value(1 - position)
        maker = r.state.makers.get(r.input(position))
        if bound is None or maker is None or maker.op_type != "ReduceMax":
            continue
        if bound.dtype.kind != "f" or not np.isneginf(bound).all():
            continue
        each = r.add("Equal", maker.input[0], r.constant(-math.inf, bound.dtype))
        given = {a.name: r.state.onnx.helper.get_attribute_value(a) for a in maker.attribute}
        least = r.add("ReduceMin", r.cast(each, np.int32), *maker.input[1:], **given)
        return r.cast(least, np.bool_)
    return False


def is_infinite(r: Rewriting) -> str | bool:
    """Infinities of one sign only."""
    signs = [int(r.given.get(f"detect_{sign}", 1)) for sign in ("positive", "negative")]
    if all(signs):
        return False
    zero = r.constant(0, r.dtype(0))
    side = r.add("Greater" if signs[0] else "Less", r.input(0), zero)
    found = r.add("And", r.add("IsInf", r.input(0)), side)
    return found if any(signs) else r.add("And", found, r.add("Not", found))


def layer_normalization(r: Rewriting) -> bool:
    """ONNX's own definition, if mean or deviation are read, too."""
    return (r.wants(1) or r.wants(2)) and _by_body(r)


def rms_normalization(r: Rewriting) -> bool:
    """ONNX's own definition, if several dimensions are normalized at once."""
    return len(r.shape(0)) - r.axis("axis", -1, len(r.shape(0))) > 1 and _by_body(r)


def _by_body(r: Rewriting) -> bool:
    body = body_of(r.state, r.node)
    r.made.extend(body or ())
    return body is not None


def batch_normalization(r: Rewriting) -> bool:
    """Normalization by the batch's own mean and variance, as in training."""
    if not int(r.given.get("training_mode", 0)):
        return False
    shape = r.shape(0)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    along = (1, shape[1], *(1,) * (len(shape) - 2))
    x, dtype = r.input(0), r.dtype(0)
    mean = r.reduced("ReduceMean", x, axes)
    centred = r.add("Sub", x, mean)
    variance = r.reduced("ReduceMean", r.add("Mul", centred, centred), axes)
    epsilon = r.constant(r.given.get("epsilon", 1e-5), dtype)
    deviation = r.add("Sqrt", r.add("Add", variance, epsilon))
    scale, bias = (r.reshaped(r.input(i), along) for i in (1, 2))
    normal = r.add("Div", centred, deviation)
    r.finish(r.add("Add", r.add("Mul", normal, scale), bias))
    momentum = float(r.given.get("momentum", 0.9))
    for position, own in ((1, mean), (2, variance)):
        if r.wants(position):
            old = r.add("Mul", r.input(position + 2), r.constant(momentum, dtype))
            new = r.add("Mul", r.reshaped(own, (shape[1],)), r.constant(1 - momentum, dtype))
            r.finish(r.add("Add", old, new), position)
    return True


def dropout(r: Rewriting) -> bool:
    """The input as it is, with a mask of true."""
    training, ratio = r.value(2), r.value(1)
    is_training = r.has(2) and (training is None or bool(training))
    if is_training and (not r.has(1) or ratio is None or float(ratio) != 0):
        raise UnsupportedOperator(
            f"{r.place} may be for training; export the model for inference, without its input "
            "training_mode"
        )
    if not is_training and not r.wants(1):
        return False  # a train step has it
    r.finish(r.input(0))
    if r.wants(1):
        # Before version 12, the mask had the type of the input.
        dtype = np.bool_ if r.state.version >= 10 else r.dtype(0)
        r.finish(r.constant(np.ones(r.shape(0), dtype)), 1)
    return True


def bit_shift(r: Rewriting) -> str:
    """Products and quotients by powers of 2; 0 where all bits are shifted out."""
    dtype = r.dtype(0)
    if dtype.kind != "u":
        raise UnsupportedOperator(
            f"{r.place} shifts signed integers, for which C may be undefined; multiply or divide "
            "by powers of 2 instead"
        )
    bits = dtype.itemsize * 8
    powers = r.constant([1 << bit for bit in range(bits)], dtype)
    least = r.constant(bits, dtype)
    is_left = r.text("direction", "LEFT") == "LEFT"
    places = r.cast(r.input(1), np.int64)
    made = r.add("Mul" if is_left else "Div", r.input(0), r.add("Gather", powers, places))
    is_inside = r.add("Less", r.cast(r.input(1), np.int32), r.cast(least, np.int32))
    return r.add("Where", is_inside, made, r.constant(0, dtype))


def dequantize(r: Rewriting) -> str | bool:
    """(x - zero point) * scale, of four bits, or where blocks along an axis share a scale."""
    size = int(r.given.get("block_size", 0))
    if not size and r.dtype(0).name not in ("int4", "uint4"):
        return False
    shape, scales = r.shape(0), r.shape(1)
    axis = r.axis("axis", 1, len(shape)) if scales else 0

    def beside(name: str) -> str:
        """Scales or zero points that have the extents of x, or 1 each."""
        if size:
            return r.taken(name, np.arange(shape[axis]) // size, axis)
        extents = [-1 if one == axis else 1 for one in range(len(shape))]
        return r.add("Reshape", name, r.constant(extents, np.int64)) if scales else name

    x = r.cast(r.input(0), np.int32)
    if r.has(2):
        x = r.add("Sub", x, beside(r.cast(r.input(2), np.int32)))
    return r.add("Mul", r.cast(x, r.dtype(1)), beside(r.input(1)))


def determinant(r: Rewriting) -> str:
    """The determinant of small matrices, by the elements of their first rows."""
    shape = r.shape(0)
    size = shape[-1]
    if size > 4:
        raise UnsupportedOperator(
            f"{r.place} is of matrices of {size} rows; at most 4 are supported"
        )
    rank = len(shape)
    rows = [r.taken(r.input(0), row, rank - 2) for row in range(size)]
    cells = [[r.taken(row, column, rank - 2) for column in range(size)] for row in rows]
    return _minor(r, cells)


def _minor(r: Rewriting, cells: list[list[str]]) -> str:
    if len(cells) == 1:
        return cells[0][0]
    total = ""
    for column, cell in enumerate(cells[0]):
        rest = [row[:column] + row[column + 1 :] for row in cells[1:]]
        term = r.add("Mul", cell, _minor(r, rest))
        total = r.add("Sub" if column % 2 else "Add", total, term) if total else term
    return total


def cumulative_product(r: Rewriting) -> str:
    """Products of the elements up to each, step by step."""
    axis_value, shape = r.value(1), r.shape(0)
    if axis_value is None:
        raise UnsupportedOperator(f"{r.place} has a computed axis; make it a constant")
    axis = int(axis_value.reshape(-1)[0]) % len(shape)
    count = shape[axis]
    order = list(range(count))[:: -1 if r.given.get("reverse", 0) else 1]
    one = r.constant(np.ones([1 if i == axis else e for i, e in enumerate(shape)], r.dtype(0)))
    made: dict[int, str] = {}
    total = one
    for place in order:
        before = total
        part = r.part(r.input(0), place, place + 1, axis)
        total = r.add("Mul", total, part) if total != one else part
        made[place] = before if r.given.get("exclusive", 0) else total
    return r.add("Concat", *(made[place] for place in range(count)), axis=axis)


def binarizer(r: Rewriting) -> str:
    """1 where an element is above the threshold."""
    threshold = r.constant(r.given.get("threshold", 0.0), r.dtype(0))
    return r.cast(r.add("Greater", r.input(0), threshold), r.dtype(0))
