"""Networks whose layers are joined along the channels, as in DenseNet, U-Net and Inception."""

from __future__ import annotations

from random_models.draw import Scope
from random_models.networks import any_step, conv, depthwise, grow_head, tried
from random_models.operations.operation import output_quantization
from random_models.recipe import Ref, Step


def grow_joined(scope: Scope, x: Ref) -> Ref:
    """Convolutions, each joined with what was before; then others read what is joined."""
    draw = scope.draw
    side = draw.between(4, 12)
    shape = (1, side, draw.one((side, draw.between(1, 12))), draw.one((1, 3, 8)))
    x = scope.input(shape, draw.one(("int8", "int8", "int16")))
    x = conv(scope, x, draw.one((4, 8, 12, 16, draw.between(1, 20))))
    for _ in range(draw.between(1, 3)):
        parts = [x, *(_part(scope, x, x) for _ in range(draw.between(1, 2)))]
        order = draw.rng.permutation(len(parts))
        step = Step("CONCATENATION", tuple(parts[i] for i in order), {"axis": draw.one((3, -1))})
        x = tried(scope, x, lambda step=step: step)
        if draw.chance(0.3):
            x = depthwise(scope, x)
        elif draw.chance(0.3):
            x = any_step(scope, draw.one(("MAX_POOL_2D", "AVERAGE_POOL_2D", "PAD")), x)
        if draw.chance(0.3):
            x = conv(scope, x, draw.between(1, 20), (1, 1))
    if draw.chance(0.6):
        x = conv(scope, x, draw.between(1, 20), draw.one(((1, 1), (3, 3))))
    if draw.chance(0.5):
        quantization = output_quantization(draw, scope.spec(x).scales[0])
        whole = {"axes": (1, 2), "keep_dims": draw.chance(0.5), **quantization}
        mean = Step("MEAN", (x,), whole)
        x = tried(scope, x, lambda: mean)
    return grow_head(scope, x)


def _part(scope: Scope, x: Ref, like: Ref) -> Ref:
    """A convolution of ``x`` that is quantized as ``like`` is, by itself or by QUANTIZE."""
    draw, spec = scope.draw, scope.spec(like)
    wanted = {"scale": spec.scales[0], "zero_point": spec.zero_points[0]}
    is_requantized = spec.dtype == "int8" and draw.chance(0.3)
    own = output_quantization(draw, spec.scales[0]) if is_requantized else wanted
    size = draw.one((1, 3))
    activation = draw.one(("RELU6", "NONE"))
    y = conv(scope, x, draw.one((4, 8, 12, draw.between(1, 20))), (size, size), 1, activation, own)
    if y == x or not is_requantized:
        return y
    step = Step("QUANTIZE", (y,), {"dtype": "int8", **wanted})
    return tried(scope, x, lambda: step)
