"""A seed becomes a recipe: which operators follow each other, and what they read.

Model number N puts one operator in the middle of its attention, so that all come up equally often;
around it, anything goes that fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from random_models.attention import grow_attention, start_attention
from random_models.draw import Draw, Scope
from random_models.networks import grow
from random_models.operations import OPERATIONS
from random_models.recipe import CONSTANT, INPUT, Recipe, Ref, Step, Unfit, write
from utvm_deploy.frontend.files.supported_operator import MOVED
from utvm_deploy.frontend.operators.importers import FLOAT_IMPORTERS, IMPORTERS

# Steps beyond the first; most faults need one or two.
_STEPS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10)
# How often in a row nothing may fit before the model is as long as it gets.
_ATTEMPTS = 12
# What all tensors of a float32 model may take, so that it fits into the RAM of the boards. Other
# limits are made for int8.
_FLOAT_BYTES = 150_000
# How many of all models are whole networks.
_NETWORKS = 0.1


#: Operators that have no row in IMPORTERS, because they are gone when the import is done.
_FOLDED = ("SHAPE",)


#: Operators whose float32 results may differ from the reference's in their last bits.
_INEXACT = (
    *("ATAN2", "COS", "ELU", "EXP", "GELU", "HARD_SWISH", "L2_NORMALIZATION", "LOG", "LOGISTIC"),
    *("LOG_SOFTMAX", "POW", "RSQRT", "SIN", "SOFTMAX", "SVDF", "TANH"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
)
#: Operators that take or make other types besides, or keep a state.
_ON_OTHER_TYPES = (
    *("ARG_MAX", "ARG_MIN", "ASSIGN_VARIABLE", "CAST", "DEQUANTIZE", "EMBEDDING_LOOKUP", "GATHER"),
    *("DIV", "FLOOR_MOD", "QUANTIZE", "READ_VARIABLE", "SELECT", "SELECT_V2"),
)


#: The operators of models whose weights are int4: those that have such weights, and some between.
NARROW_KINDS = (
    *("ADD", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D"),
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    *("BATCH_MATMUL", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
)


#: The same of models whose weights are mostly zeros; the weights of others are not packed.
SPARSE_KINDS = (
    *("ADD", "AVERAGE_POOL_2D", "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D"),
    *("FULLY_CONNECTED", "FULLY_CONNECTED"),
)


def supported_kinds() -> tuple[str, ...]:
    """The operators that models are made of: imported, and known here."""
    return tuple(sorted([*_FOLDED, *(kind for kind in IMPORTERS if kind in OPERATIONS)]))


def float_kinds() -> tuple[str, ...]:
    """The operators that models of float32 are made of: all whose bits the reference has, too."""
    exact = set(FLOAT_IMPORTERS) - set(_INEXACT)
    moving = {kind for kind, row in IMPORTERS.items() if set(row.types) >= set(MOVED)}
    kinds = (exact | moving) - set(_ON_OTHER_TYPES)
    return tuple(sorted(kind for kind in kinds if kind in OPERATIONS))


def generate(
    seed: int,
    kinds: Sequence[str] | None = None,
    *,
    of_float: bool = False,
    is_narrow: bool = False,
    is_sparse: bool = False,
) -> Recipe:
    """The model of that number; the same in every run with the same operators.

    ``kinds`` are the operators to use, all that are supported by default. A model ``of_float`` is
    thought of as one of int8 whose numbers are float32. One that ``is_narrow`` has weights of int4,
    and one that ``is_sparse`` mostly weights of zero.
    """
    supported = float_kinds() if of_float else supported_kinds()
    supported = NARROW_KINDS if is_narrow else SPARSE_KINDS if is_sparse else supported
    kinds = supported if kinds is None else kinds
    if of_float:
        made = (_generated(seed, kinds, Draw((seed, attempt)), of_float) for attempt in count())
        return next(recipe for recipe in made if _bytes(recipe) <= _FLOAT_BYTES)
    recipe = _generated(seed, kinds, Draw(seed, pointwise=is_sparse), of_float)
    return replace(recipe, is_narrow=is_narrow, is_sparse=is_sparse)


def generate_network(seed: int, grow: Callable[[Scope, Ref], Ref] = grow) -> Recipe:
    """A whole network of a usual kind, or the one that ``grow`` grows."""
    scope = Scope(Draw(seed))
    _start(scope, "CONV_2D")
    grow(scope, scope.refs()[-1])
    return Recipe(tuple(scope.steps), _outputs(scope))


def generate_attention(seed: int, *, of_float: bool = False, is_narrow: bool = False) -> Recipe:
    """One or two blocks of attention; ``of_float`` and ``is_narrow`` as ``generate`` has them."""
    for attempt in count():
        scope = Scope(Draw((seed, attempt)), of_float=of_float)
        with suppress(Unfit):
            grow_attention(scope, start_attention(scope))
            recipe = Recipe(tuple(scope.steps), _outputs(scope), of_float, is_narrow)
            if not of_float or _bytes(recipe) <= _FLOAT_BYTES:
                return recipe
    raise AssertionError


def _bytes(recipe: Recipe) -> int:
    return sum(4 * math.prod(spec.shape) for spec in write(recipe).tensors)


def _generated(seed: int, kinds: Sequence[str], draw: Draw, of_float: bool) -> Recipe:
    scope = Scope(draw, of_float=of_float)
    first = kinds[seed % len(kinds)]
    _start(scope, first)
    if kinds in (supported_kinds(), NARROW_KINDS, SPARSE_KINDS) and draw.chance(_NETWORKS):
        grow(scope, scope.refs()[-1])
        return Recipe(tuple(scope.steps), _outputs(scope))
    for _ in range(draw.one(_STEPS) - 1):
        _extend(scope, draw.one(kinds))
    return Recipe(tuple(scope.steps), _outputs(scope), of_float)


def _start(scope: Scope, kind: str) -> None:
    """An input, and the operator in question on it."""
    while True:
        x = _new_input(scope, kind)
        if x is not None and _append(scope, kind, x) is not None:
            return
        scope.cut(0)


def _extend(scope: Scope, kind: str) -> None:
    """One more operator of that kind, on a value that there is or on a new input."""
    operation, draw = OPERATIONS[kind], scope.draw
    for _ in range(_ATTEMPTS):
        before = len(scope.steps)
        x = scope.pick(operation.takes, draw.one(_types_in(scope, kind)))
        if x is None:
            if draw.chance(0.7):
                return
            x = _new_input(scope, kind)
        if x is not None and _append(scope, kind, x) is not None:
            return
        scope.cut(before)


def types_of(kind: str) -> tuple[str, ...]:
    """Types of the value that an operator reads first, those that are met often several times."""
    row = IMPORTERS.get(kind)
    types = () if row is None else row.types
    others = ("int16", "int16", "uint8", "bool", "float32")
    return (*("int8",) * 5, *(t for t in others if t in types))


def _types_in(scope: Scope, kind: str) -> tuple[str, ...]:
    return ("int8",) if scope.of_float else types_of(kind)


def _new_input(scope: Scope, kind: str) -> Ref | None:
    """A model input of a shape and a type that the operator likes."""
    operation = OPERATIONS[kind]
    try:
        x = scope.input(operation.shape(scope.draw), scope.draw.one(_types_in(scope, kind)))
    except Unfit:
        return None
    return x if operation.takes(scope.spec(x)) else None


def _append(scope: Scope, kind: str, x: Ref) -> Ref | None:
    try:
        step: Step | None = OPERATIONS[kind].propose(scope, x)
        return None if step is None else scope.add(step)
    except Unfit:
        return None


def _outputs(scope: Scope) -> tuple[Ref, ...]:
    """What nothing reads, and now and then what something does."""
    read = {ref for step in scope.steps for ref in step.inputs}
    chosen = []
    for ref in scope.refs():
        if scope.steps[ref[0]].kind in (INPUT, CONSTANT):
            continue
        if ref not in read or scope.draw.chance(0.1):
            chosen.append(ref)
    return tuple(chosen)
