"""Ways to damage a model file: its bytes, and what its fields say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from random_models.generator import generate
from random_models.recipe import write
from tflite_serializer import OperatorSpec
from tflite_writer import ModelWriter, call_once

# What the fields of a hostile file say: nothing, everything, and what is next to it.
_NUMBERS = (0, 1, -1, 2, -2, 127, -128, 255, 65_535, 2**20, 2**31 - 1, -(2**31))
_SCALES = (0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e-38, 3e38, 1.0)
_EXTENTS = (0, -1, 1, 3, 2**16, 2**20, 2**26, 2**31 - 1, -(2**31))
_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool", "float16", "string")
_WORDS = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000, 0xFFFFFF00, 8], np.uint32)


def mutant(number: int) -> tuple[str, bytes]:
    """Hostile file ``number``: how it was made, and its bytes; always the same."""
    rng = np.random.default_rng([number, 77])
    model = write(generate(int(rng.integers(0, 100_000))))
    name = tuple(MUTATIONS)[number % len(MUTATIONS)]
    return name, MUTATIONS[name](rng, model)


def _flip_bits(rng: np.random.Generator, model: ModelWriter) -> bytes:
    data = np.frombuffer(model.to_bytes(), np.uint8).copy()
    for position in rng.integers(0, len(data), rng.integers(1, 9)):
        data[position] ^= 1 << rng.integers(0, 8)
    return data.tobytes()


def _flip_early_bits(rng: np.random.Generator, model: ModelWriter) -> bytes:
    """Where the tables are: a file is written back to front, weights behind."""
    data = np.frombuffer(model.to_bytes(), np.uint8).copy()
    for position in rng.integers(8, min(len(data), 900), rng.integers(1, 4)):
        data[position] ^= 1 << rng.integers(0, 8)
    return data.tobytes()


def _truncate(rng: np.random.Generator, model: ModelWriter) -> bytes:
    data = model.to_bytes()
    return data[: int(rng.integers(0, len(data)))]


def _splice(rng: np.random.Generator, model: ModelWriter) -> bytes:
    """A piece of one file over, or into, another."""
    data = model.to_bytes()
    other = write(generate(int(rng.integers(0, 100_000)))).to_bytes()
    begin = int(rng.integers(0, len(other)))
    piece = other[begin : begin + int(rng.integers(1, 400))]
    at = int(rng.integers(8, len(data)))
    behind = at if rng.random() < 0.5 else at + len(piece)
    return data[:at] + piece + data[behind:]


def _wild_words(rng: np.random.Generator, model: ModelWriter) -> bytes:
    data = model.to_bytes()
    words = np.frombuffer(data[: len(data) // 4 * 4], np.uint32).copy()
    for _ in range(rng.integers(1, 4)):
        words[rng.integers(2, len(words))] = rng.choice(_WORDS)
    return words.tobytes()


def _field(rng: np.random.Generator, model: ModelWriter) -> bytes:
    """One to three fields of the model say something else; the file itself is sound."""
    if model.once is not None:
        model.operators.insert(0, call_once())
    for _ in range(rng.integers(1, 4)):
        target = model.once if model.once is not None and rng.random() < 0.3 else model
        _FIELDS[int(rng.integers(len(_FIELDS)))](rng, target)
    return model.to_bytes()


#: Name -> how a file is damaged. Fields come up as often as the rest together.
MUTATIONS: Mapping[str, Callable[[np.random.Generator, ModelWriter], bytes]] = {
    "bits": _flip_bits,
    "field 1": _field,
    "early bits": _flip_early_bits,
    "field 2": _field,
    "truncation": _truncate,
    "field 3": _field,
    "splice": _splice,
    "field 4": _field,
    "words": _wild_words,
    "field 5": _field,
}


#: Options that hold a number of an enumeration.
_OF_ONE_BYTE = (
    *("Padding", "FusedActivationFunction", "Mode"),
    *("OutputType", "OutType", "InDataType", "OutDataType"),
)


def _pick_tensor(rng: np.random.Generator, model: ModelWriter) -> int:
    return int(rng.integers(len(model.tensors)))


def _pick_operator(rng: np.random.Generator, model: ModelWriter) -> OperatorSpec:
    return model.operators[int(rng.integers(len(model.operators)))]


def _shape(rng: np.random.Generator, model: ModelWriter) -> None:
    number = _pick_tensor(rng, model)
    shape = list(model.tensors[number].shape)
    kind = rng.integers(4)
    if kind == 0 or not shape:
        shape = [int(rng.choice(_EXTENTS)) for _ in range(rng.integers(0, 12))]
    elif kind == 1:
        shape[int(rng.integers(len(shape)))] = int(rng.choice(_EXTENTS))
    elif kind == 2:
        del shape[int(rng.integers(len(shape)))]
    else:
        shape.insert(int(rng.integers(len(shape) + 1)), int(rng.choice((1, 2, 7))))
    model.tensors[number] = replace(model.tensors[number], shape=tuple(shape))


def _large_but_consistent(rng: np.random.Generator, model: ModelWriter) -> None:
    """Every activation that has an extent gets it much larger."""
    spec = model.tensors[_pick_tensor(rng, model)]
    if not spec.shape:
        return
    old, new = spec.shape[int(rng.integers(len(spec.shape)))], int(rng.choice((2**12, 2**18)))
    for number, other in enumerate(model.tensors):
        if other.data is None and old in other.shape:
            shape = tuple(new if d == old else d for d in other.shape)
            model.tensors[number] = replace(other, shape=shape)


def _type(rng: np.random.Generator, model: ModelWriter) -> None:
    number = _pick_tensor(rng, model)
    model.tensors[number] = replace(model.tensors[number], dtype=str(rng.choice(_TYPES)))


def _scale(rng: np.random.Generator, model: ModelWriter) -> None:
    number = _pick_tensor(rng, model)
    count = int(rng.choice((0, 1, 1, 1, 2, 5)))
    scales = tuple(float(s) for s in rng.choice(_SCALES, count))
    model.tensors[number] = replace(model.tensors[number], scales=scales)


def _zero_point(rng: np.random.Generator, model: ModelWriter) -> None:
    number = _pick_tensor(rng, model)
    zeros = tuple(int(z) for z in rng.choice(_NUMBERS, int(rng.choice((0, 1, 1, 3)))))
    axis = int(rng.choice((0, 0, 1, -1, 9)))
    model.tensors[number] = replace(model.tensors[number], zero_points=zeros, axis=axis)


def _data(rng: np.random.Generator, model: ModelWriter) -> None:
    """Constants cut short, grown, filled with wild numbers; activations that become constants."""
    number = _pick_tensor(rng, model)
    spec = model.tensors[number]
    data = spec.data or b""
    kind = rng.integers(4)
    if kind == 0:
        data = data[: len(data) // 2]
    elif kind == 1:
        data += b"\x7f" * 5
    elif kind == 2 and spec.dtype == "int32" and data:
        data = rng.choice(np.array(_NUMBERS, np.int64), len(data) // 4).astype("<i4").tobytes()
    else:
        data = bytes(max(0, min(math.prod(spec.shape), 10_000)))
    model.tensors[number] = replace(spec, data=data)


def _variable(rng: np.random.Generator, model: ModelWriter) -> None:
    number = _pick_tensor(rng, model)
    name = str(rng.choice(("", "a\nb", "\x00\xff", "*/ #error", "n" * 5000)))
    model.tensors[number] = replace(model.tensors[number], is_variable=True, name=name)


def _operand(rng: np.random.Generator, model: ModelWriter) -> None:
    """Dangling, absent, or one from elsewhere: cycles come of that, too."""
    op = _pick_operator(rng, model)
    operands = op.inputs if rng.random() < 0.6 else op.outputs
    wild = [-1, -2, len(model.tensors), 2**31 - 1, _pick_tensor(rng, model), *op.outputs]
    value = int(rng.choice(wild))
    if operands and rng.random() < 0.8:
        operands[int(rng.integers(len(operands)))] = value
    else:
        operands.append(value)


def _fewer_operands(rng: np.random.Generator, model: ModelWriter) -> None:
    op = _pick_operator(rng, model)
    operands = op.inputs if rng.random() < 0.7 else op.outputs
    if operands:
        operands.pop(int(rng.integers(len(operands))))


def _option(rng: np.random.Generator, model: ModelWriter) -> None:
    op = _pick_operator(rng, model)
    if op.options is None or not op.options[1] or rng.random() < 0.1:
        op.options = None
        return
    name, fields = op.options
    key = str(rng.choice(list(fields)))
    if isinstance(fields[key], list | tuple):
        value: object = [int(n) for n in rng.choice(_NUMBERS, 3)]
    elif isinstance(fields[key], float):
        value = float(rng.choice(_SCALES))
    elif isinstance(fields[key], str):
        value = str(rng.choice(("", fields[key], "another", "n" * 5000)))
    elif key in _OF_ONE_BYTE:
        value = int(rng.integers(-3, 9))
    elif isinstance(fields[key], bool):
        value = not fields[key]
    else:
        value = int(rng.choice(_NUMBERS))
    op.options = (name, {**fields, key: value})


def _kind(rng: np.random.Generator, model: ModelWriter) -> None:
    """Another operator's name, with or without the options that it has."""
    op, other = _pick_operator(rng, model), write(generate(int(rng.integers(0, 100_000))))
    donor = _pick_operator(rng, other)
    op.kind = str(rng.choice((donor.kind, donor.kind, "WHILE", "no_such_operator")))
    if rng.random() < 0.5:
        op.options = donor.options


def _order(rng: np.random.Generator, model: ModelWriter) -> None:
    kind = rng.integers(3)
    if kind == 0:
        model.operators.reverse()
    elif kind == 1:
        model.operators.append(_pick_operator(rng, model))
    elif len(model.operators) > 1:
        del model.operators[int(rng.integers(len(model.operators)))]


def _ends(rng: np.random.Generator, model: ModelWriter) -> None:
    ends = model.inputs if rng.random() < 0.5 else model.outputs
    kind = rng.integers(3)
    if kind == 0:
        ends.append(_pick_tensor(rng, model))
    elif kind == 1:
        ends.clear()
    else:
        ends.append(int(rng.choice((-1, len(model.tensors), 2**31 - 1))))


_FIELDS = (
    _shape,
    _shape,
    _large_but_consistent,
    _type,
    _scale,
    _scale,
    _zero_point,
    _data,
    _variable,
    _operand,
    _operand,
    _fewer_operands,
    _option,
    _option,
    _kind,
    _order,
    _ends,
)
