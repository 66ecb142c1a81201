"""Random Relax graphs: a seed draws shapes, operators and how they are joined."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relax_operators import WHOLE, Case, Given, constant, op
from tvm import relax

#: Most elements of a tensor, so that no graph takes long.
MOST_ELEMENTS = 600


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of a variable."""
    return tuple(map(int, x.ty.shape.values))


@dataclass(frozen=True)
class Step:
    """An operator that may follow, for tensors of some ranks."""

    make: Callable[[random.Random, Any], Any]
    ranks: tuple[int, ...] = (2, 3, 4)


def _axis(chance: random.Random, x: Any) -> int:
    return chance.randrange(len(shape_of(x)))


def _operand(chance: random.Random, x: Any) -> Any:
    """A constant that broadcasts to the shape."""
    shape = [1 if chance.random() < 0.4 else extent for extent in shape_of(x)]
    return constant(*shape[chance.randrange(len(shape)) :])


def _transposed(chance: random.Random, x: Any) -> Any:
    axes = list(range(len(shape_of(x))))
    chance.shuffle(axes)
    return op.permute_dims(x, axes)


def _sliced(chance: random.Random, x: Any) -> Any:
    axis = _axis(chance, x)
    extent = shape_of(x)[axis]
    begin = chance.randrange(extent)
    return op.strided_slice(
        x, [axis], [begin], [chance.randint(begin + 1, extent)], [chance.choice([1, 2])]
    )


def _padded(chance: random.Random, x: Any) -> Any:
    widths = [chance.choice([0, 0, 1, 2]) for _ in range(2 * len(shape_of(x)))]
    return op.nn.pad(x, widths, pad_value=chance.choice([0.0, 1.5]))


def _product(chance: random.Random, x: Any) -> Any:
    return op.matmul(x, constant(shape_of(x)[-1], chance.randint(1, 9)))


def _convolved(chance: random.Random, x: Any) -> Any:
    channels = shape_of(x)[1]
    is_depthwise = chance.random() < 0.4
    side = chance.choice([1, 3])
    outputs = channels if is_depthwise else chance.randint(1, 8)
    weights = constant(outputs, 1 if is_depthwise else channels, side, side)
    return op.nn.conv2d(
        x,
        weights,
        strides=chance.choice([1, 2]),
        padding=side // 2,
        groups=channels if is_depthwise else 1,
    )


def _pooled(chance: random.Random, x: Any) -> Any:
    pool = chance.choice([op.nn.max_pool2d, op.nn.avg_pool2d])
    return pool(x, (3, 3), (chance.choice([1, 2]),) * 2, (1, 1))


def _reduced(chance: random.Random, x: Any) -> Any:
    reduce = chance.choice([op.sum, op.mean, op.max, op.min, op.variance])
    return reduce(x, axis=[_axis(chance, x)], keepdims=True)


def _halves(chance: random.Random, x: Any) -> Any:
    axis = _axis(chance, x)
    extent = shape_of(x)[axis]
    if extent < 2:
        return op.nn.relu(x)
    parts = op.split(x, [extent // 2], axis=axis)
    first, second = relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 1)
    return op.concat([second, first, second], axis=axis)


def _flat(chance: random.Random, x: Any) -> Any:
    shape = shape_of(x)
    return op.reshape(x, (shape[0], -1) if chance.random() < 0.5 else (*shape[:-2], -1, 1))


def _unary(make: Callable[[Any], Any]) -> Step:
    return Step(lambda chance, x: make(x))


STEPS = (
    Step(lambda chance, x: chance.choice([op.add, op.subtract])(x, _operand(chance, x))),
    Step(lambda chance, x: op.multiply(x, _operand(chance, x))),
    Step(lambda chance, x: op.maximum(x, _operand(chance, x))),
    Step(lambda chance, x: op.minimum(op.add(x, x), _operand(chance, x))),
    Step(lambda chance, x: op.where(op.less(x, one := _operand(chance, x)), x, one)),
    Step(_transposed),
    Step(_sliced),
    Step(_padded),
    Step(_halves),
    Step(_flat),
    Step(lambda chance, x: op.cumsum(x, axis=_axis(chance, x))),
    Step(lambda chance, x: op.sort(x, axis=_axis(chance, x))),
    Step(lambda chance, x: op.nn.softmax(x, axis=_axis(chance, x))),
    Step(lambda chance, x: op.tile(x, [1] * (len(shape_of(x)) - 1) + [2])),
    Step(_product),
    Step(_reduced),
    Step(_convolved, (4,)),
    Step(_convolved, (4,)),
    Step(_pooled, (4,)),
    _unary(op.nn.relu),
    _unary(lambda x: op.clip(x, -0.75, 0.5)),
    _unary(op.abs),
    _unary(op.sigmoid),
    _unary(op.tanh),
    _unary(lambda x: op.sqrt(op.abs(x))),
    _unary(lambda x: op.exp(op.minimum(x, relax.const(2.0)))),
    _unary(op.nn.gelu),
)


def random_graph(seed: int) -> Case:
    """A graph of one to three inputs and two to eight operators."""
    chance = random.Random(seed)
    rank = chance.choice([2, 3, 4, 4])
    shape = [1 if rank == 4 else chance.randint(1, 5)] + [
        chance.randint(2, 9) for _ in range(rank - 1)
    ]
    while math.prod(shape) > MOST_ELEMENTS:
        shape[shape.index(max(shape))] -= 1
    inputs = tuple(Given(tuple(shape)) for _ in range(chance.randint(1, 3)))
    return Case(f"graph_{seed}", inputs, lambda *given: _joined(chance, given), WHOLE)


def _joined(chance: random.Random, given: Sequence[Any]) -> Any:
    """The last of two to eight values, each made of earlier ones."""
    emit = relax.BlockBuilder.current().emit
    values = [emit(op.add(given[0], one)) for one in given]
    for _ in range(chance.randint(2, 8)):
        x = values[-1] if chance.random() < 0.7 else chance.choice(values)
        equals = [one for one in values if shape_of(one) == shape_of(x)]
        if len(equals) > 1 and chance.random() < 0.4:
            join = chance.choice([op.add, op.subtract, op.maximum])
            values.append(emit(join(x, chance.choice(equals))))
            continue
        step = chance.choice([one for one in STEPS if len(shape_of(x)) in one.ranks])
        made = emit(step.make(chance, x))
        if math.prod(shape_of(made)) <= MOST_ELEMENTS:
            values.append(made)
    return values[-1]
