"""The end of a residual block as one call: a 1x1 convolution and the addition that reads it.

    utvm verify model.tflite --board mps2_an500 --plugin plugin.py

The pattern is a directed graph: the addition also reads a tensor that the convolution does not
make. The output of the convolution never is in the arena as a whole: each pixel is added as soon as
it is computed. docs/guides/backends.md explains patterns.
"""

from utvm_deploy.backends import (
    Backend,
    CText,
    Expression,
    KernelCall,
    Match,
    Operation,
    call,
    op,
    pattern,
)

C_TEXT = """\
// Rounds twice, as LiteRT's reference kernels do: to 31 bits behind the point, then the shift.
static int32_t residual_scaled(int32_t value, int32_t multiplier, int32_t shift) {
    int64_t product = (int64_t)value * (shift > 0 ? 1 << shift : 1) * multiplier;
    int32_t high = (int32_t)((product + (product >= 0 ? 1 << 30 : 1 - (1 << 30))) / (1ll << 31));
    if (shift >= 0) {
        return high;
    }
    int32_t mask = (1 << -shift) - 1, rest = high & mask;
    return (high >> -shift) + (rest > (mask >> 1) + (high < 0));
}

static int8_t residual_limited(int32_t value, int32_t low, int32_t high) {
    return (int8_t)(value < low ? low : value > high ? high : value);
}
"""
#: LiteRT shifts both sides of an addition by this before it scales them.
ADD_SHIFT = 20

BODY = """\
for (int32_t i = 0; i < {pixels}; i++) {{
    const int8_t *pixel = {source} + (i / {width} * {row} + i % {width} * {column}) * {channels};
    for (int32_t c = 0; c < {outputs}; c++) {{
        int32_t sum = bias[c];
        for (int32_t k = 0; k < {channels}; k++) {{
            sum += pixel[k] * weights[c * {channels} + k];
        }}
        int32_t made = residual_scaled(sum, multiplier[c], shift[c]) + convolution_zero_point;
        int32_t one = residual_limited(made, convolution_low, convolution_high);
        int32_t other = {other}[i * {outputs} + c];
        one = residual_scaled((one - one_zero_point) * (1 << {shift}), one_multiplier, one_shift);
        other = residual_scaled(
            (other - other_zero_point) * (1 << {shift}), other_multiplier, other_shift);
        int32_t total = residual_scaled(one + other, output_multiplier, output_shift);
        output_0[i * {outputs} + c] = residual_limited(total + output_zero_point, low, high);
    }}
}}
return 0;"""


def is_of_pixels(operation: Operation) -> bool:
    """Whether a convolution reads one pixel of int8 for each of its own."""
    weights = operation.input(1)
    one = operation.graph.tensors[operation.position(0)]
    return (one.dtype, weights.dtype) == ("int8", "int8") and weights.shape[1:3] == (1, 1)


def build(match: Match) -> KernelCall | str:
    """The call, by the arguments of our own kernels for both operators."""
    convolution, addition = match.operation("convolution"), match.operation("addition")
    assert convolution is not None and addition is not None
    first, second = match.each
    made, others = convolution.operator.outputs[0], addition.operator.inputs
    if convolution.result.shape != addition.result.shape or len({*others}) == 1:
        return "it broadcasts, or adds a tensor to itself"
    (other,) = (one for one in others if one != made)
    if other not in match.inputs or addition.graph.tensors[other].shape != addition.result.shape:
        return "the other side is a constant, or it is broadcast"
    _, height, width, channels = convolution.source.shape
    batch, rows, columns, outputs = convolution.result.shape
    strides = -(-height // rows), -(-width // columns)
    if batch != 1 or min(strides) < 1 or height % rows or width % columns:
        return "its strides do not divide the image, or it has several images"
    sides = ("left", "right") if others[0] == made else ("right", "left")
    sums, numbers, tables = second.our_numbers, first.our_numbers, first.our_tables
    sides_of = {"one": sides[0], "other": sides[1], "output": "output"}
    return call(
        match,
        "residual_scaled",
        BODY.format(
            pixels=rows * columns,
            width=columns,
            row=strides[0] * width,
            column=strides[1],
            channels=channels,
            outputs=outputs,
            shift=ADD_SHIFT,
            source=f"input_{match.inputs.index(convolution.position(0))}",
            other=f"input_{match.inputs.index(other)}",
        ),
        tables={name: tables[name] for name in ("weights", "bias", "multiplier", "shift")},
        numbers={
            **{
                f"{name}_{what}": sums[f"{side}_{what}"]
                for name, side in sides_of.items()
                for what in ("zero_point", "multiplier", "shift")
            },
            "low": sums["low"],
            "high": sums["high"],
            "convolution_zero_point": numbers["output_zero_point"],
            "convolution_low": numbers["low"],
            "convolution_high": numbers["high"],
        },
    )


@pattern(build)
def residual(x: Expression) -> Expression:
    """An addition of a 1x1 convolution and of any other tensor."""
    convolution = op("CONV_2D")(x).where(is_of_pixels).named("convolution")
    return op("ADD").reading(convolution).named("addition")


backend = Backend("Residual", (residual,), CText(C_TEXT))
