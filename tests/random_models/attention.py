"""Blocks of a language model, of random size: heads, masks, rotary positions, norms and caches."""

from __future__ import annotations

import math
from collections.abc import Mapping

from random_models.draw import Scope
from random_models.networks import tried
from random_models.operations.operation import output_quantization
from random_models.operations.windows import weighted_attributes
from random_models.recipe import Attribute, Ref, Step


def start_attention(scope: Scope) -> Ref:
    """An input of (batch, rows, width)."""
    draw = scope.draw
    rows = draw.one((1, 2, 4, 7, 8, draw.between(1, 16)))
    width = draw.one((4, 8, 12, 16, 24, 32))
    return scope.input((draw.one((1, 1, 2)), rows, width), "int8", draw.scale_near(1 / 60))


def grow_attention(scope: Scope, x: Ref) -> Ref:
    """One or two blocks of attention and of a feed-forward network."""
    for _ in range(scope.draw.one((1, 1, 2))):
        x = _block(scope, x)
    return x


def _block(scope: Scope, x: Ref) -> Ref:
    draw = scope.draw
    normal = _norm(scope, x) if draw.chance(0.7) else x
    x = _binary(scope, "ADD", x, _attention(scope, normal))
    if draw.chance(0.6):
        normal = _norm(scope, x) if draw.chance(0.5) else x
        x = _binary(scope, "ADD", x, _feed_forward(scope, normal))
    return x


def _attention(scope: Scope, x: Ref) -> Ref:
    draw, (batch, rows, width) = scope.draw, scope.spec(x).shape
    shared, size = draw.one((1, 2, 3)), draw.one((2, 4, 6, 8))
    heads = shared * draw.one((1, 1, 2, 3))
    query, key, value = (
        _by_head(scope, _dense(scope, x, count * size), count) for count in (heads, shared, shared)
    )
    if draw.chance(0.5):
        tables = _tables(scope, rows, size)
        query, key = (_rotated(scope, one, tables) for one in (query, key))
    cache = draw.one(("", "", "append", "update"))
    if cache:
        key, value = (_cached(scope, one, cache) for one in (key, value))
    places = scope.spec(key).shape[2]
    grouped, apart = (batch, shared, heads // shared * rows), (batch, heads, rows)
    scores = _product(scope, _reshaped(scope, query, (*grouped, size)), key, adj_y=True)
    scores = _masked(scope, _reshaped(scope, scores, (*apart, places)))
    shares = scope.add(Step("SOFTMAX", (scores,), {"beta": 1.0}))
    read = _product(scope, _reshaped(scope, shares, (*grouped, places)), value)
    read = _turned(scope, _reshaped(scope, read, (*apart, size)))
    return _dense(scope, _reshaped(scope, read, (batch, rows, heads * size)), width)


def _masked(scope: Scope, scores: Ref) -> Ref:
    """Scores of which some are hidden: by a sum or a choice, known or given."""
    draw, spec = scope.draw, scope.spec(scores)
    kind, shape = draw.one(("", "sum", "sum", "choice")), (1, 1, *spec.shape[2:])
    if not kind:
        return scores
    make = draw.one((scope.causal, scope.input))
    if kind == "sum":
        steps = draw.one((4.0, spec.scales[0], 1000 / 255))
        mask = make(shape, "int8", steps, 127)
        natural = {"scale": spec.scales[0], "zero_point": draw.zero_point()}
        return _binary(scope, "ADD", scores, mask, natural)
    low = scope.constant((1,), "int8", spec.scales[0], spec.zero_points[0])
    return scope.add(Step("SELECT_V2", (make(shape, "bool"), scores, low)))


def _cached(scope: Scope, x: Ref, form: str) -> Ref:
    """Keys or values with those of earlier runs, or in a cache that is given."""
    draw, (batch, heads, rows, size) = scope.draw, scope.spec(x).shape
    if form == "append":
        attributes = {"form": form, "axis": 2, "kept": draw.between(1, 5), "fill": "zeros"}
        return scope.add(Step("READ_VARIABLE", (x,), attributes, draw.seed()))
    spec = scope.spec(x)
    shape = (batch, heads, rows + draw.between(0, 4), size)
    cache = scope.input(shape, "int8", spec.scales[0], spec.zero_points[0])
    place = [scope.input((4,), "int32")] if draw.chance(0.5) else []
    return scope.add(Step("DYNAMIC_UPDATE_SLICE", (cache, x, *place), {}, draw.seed()))


def _tables(scope: Scope, rows: int, size: int) -> tuple[Ref, Ref]:
    """Cosines and sines, of constants or of rows that are given."""
    make = scope.draw.one((scope.constant, scope.constant, scope.input))
    one, other = (make((1, 1, rows, size), "int8", 1 / 127, 0) for _ in range(2))
    return one, other


def _rotated(scope: Scope, x: Ref, tables: tuple[Ref, Ref]) -> Ref:
    """x * cos + (x with its halves exchanged) * sin."""
    shape, half = scope.spec(x).shape, scope.spec(x).shape[-1] // 2
    parts = [
        scope.add(Step("SLICE", (x,), {"begin": (0, 0, 0, first), "size": (*shape[:3], half)}))
        for first in (half, 0)
    ]
    if scope.draw.chance(0.5):
        parts[0] = scope.add(Step("NEG", (parts[0],)))
    exchanged = scope.add(Step("CONCATENATION", tuple(parts), {"axis": -1}))
    scale = scope.spec(x).scales[0]
    one, other = (
        _binary(scope, "MUL", part, table, output_quantization(scope.draw, scale))
        for part, table in zip((x, exchanged), tables, strict=True)
    )
    return _binary(scope, "ADD", one, other)


def _norm(scope: Scope, x: Ref) -> Ref:
    """x / sqrt(mean(x * x)) * weight, of x or of x minus its mean."""
    draw, shape, start = scope.draw, scope.spec(x).shape, x
    if draw.chance(0.4):
        mean = _mean(scope, x, scope.spec(x).scales[0], draw.zero_point())
        x = _binary(scope, "SUB", x, mean)
    scale = scope.spec(x).scales[0]
    square = _binary(scope, "MUL", x, x, {"scale": scale * scale * 60, "zero_point": -128})
    mean = _mean(scope, square, scale * scale * 30, -128)
    inverse = {"scale": 0.06 / scale / 127, "zero_point": draw.one((-128, 0))}
    root = tried(scope, mean, lambda: Step("RSQRT", (mean,), inverse))
    if root == mean:
        return start
    x = _binary(scope, "MUL", x, root, output_quantization(draw, 1 / 60))
    weights = scope.constant(shape[-1:], "int8", 1 / 60)
    return _binary(scope, "MUL", x, weights, output_quantization(draw, 1 / 60))


def _mean(scope: Scope, x: Ref, scale: float, zero_point: int) -> Ref:
    attributes = {"axes": (-1,), "keep_dims": True, "scale": scale, "zero_point": zero_point}
    return scope.add(Step("MEAN", (x,), attributes))


def _feed_forward(scope: Scope, x: Ref) -> Ref:
    """GELU, SiLU or SwiGLU between two dense layers."""
    draw, width = scope.draw, scope.spec(x).shape[-1]
    kind, wide = draw.one(("GELU", "silu", "swiglu", "RELU")), width * draw.one((1, 2, 3))
    made = _dense(scope, x, wide, kind if kind == "RELU" else "NONE")
    scale = scope.spec(made).scales[0]
    if kind == "GELU":
        attributes = {**output_quantization(draw, scale), "approximate": draw.chance(0.5)}
        made = scope.add(Step("GELU", (made,), attributes))
    elif kind != "RELU":
        gate = scope.add(Step("LOGISTIC", (made,)))
        made = _binary(scope, "MUL", made, gate, output_quantization(draw, scale))
        if kind == "swiglu":
            other = _dense(scope, x, wide)
            scale = scope.spec(made).scales[0] * scope.spec(other).scales[0] * 60
            made = _binary(scope, "MUL", made, other, output_quantization(draw, scale))
    return _dense(scope, made, width)


def _dense(scope: Scope, x: Ref, channels: int, activation: str = "NONE") -> Ref:
    draw, depth = scope.draw, scope.spec(x).shape[-1]
    attributes = weighted_attributes(draw, scope.spec(x).scales[0], depth)
    attributes |= {"channels": channels, "depth": depth, "keep_num_dims": True}
    attributes |= {"activation": activation, "fill": "random"}
    return scope.add(Step("FULLY_CONNECTED", (x,), attributes, draw.seed()))


def _product(scope: Scope, x: Ref, y: Ref, *, adj_y: bool = False) -> Ref:
    depth = scope.spec(x).shape[-1]
    natural = scope.spec(x).scales[0] * scope.spec(y).scales[0] * 60 * math.sqrt(depth)
    chosen = output_quantization(scope.draw, natural)
    if adj_y:  # LiteRT aborts on a softmax of finer steps
        chosen["scale"] = max(chosen["scale"], 2**-24)  # type: ignore[type-var]
    attributes = {"adj_x": False, "adj_y": adj_y, **chosen}
    return scope.add(Step("BATCH_MATMUL", (x, y), attributes, scope.draw.seed()))


def _binary(
    scope: Scope, kind: str, x: Ref, y: Ref, quantization: Mapping[str, Attribute] | None = None
) -> Ref:
    largest = max(scope.spec(one).scales[0] for one in (x, y))
    chosen = dict(quantization or output_quantization(scope.draw, 1.5 * largest))
    if kind != "MUL":  # LiteRT aborts on a sum whose steps are 2**19 times as fine
        chosen["scale"] = max(chosen["scale"], largest / 2**18)
    return scope.add(Step(kind, (x, y), {**chosen, "activation": "NONE"}))


def _by_head(scope: Scope, x: Ref, heads: int) -> Ref:
    batch, rows, width = scope.spec(x).shape
    return _turned(scope, _reshaped(scope, x, (batch, rows, heads, width // heads)))


def _turned(scope: Scope, x: Ref) -> Ref:
    return scope.add(Step("TRANSPOSE", (x,), {"order": (0, 2, 1, 3)}))


def _reshaped(scope: Scope, x: Ref, shape: tuple[int, ...]) -> Ref:
    return scope.add(Step("RESHAPE", (x,), {"shape": shape}))
