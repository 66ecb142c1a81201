"""Windows, strides and padding as operators of any element type have them."""

from __future__ import annotations

from utvm_deploy.frontend.files.source import SourceOperator
from utvm_deploy.frontend.operators.operands import (
    is_padded,
    padding_of,
    parameter,
    same_padding,
    steps_of,
)
from utvm_deploy.graph.attribute_values import NO_CLAMP, Limits
from utvm_deploy.graph.attributes import Convolution, Convolution3D, Pool, ResizeBilinear
from utvm_deploy.graph.model import Tensor


def convolution_of(op: SourceOperator, x: Tensor, weights: Tensor) -> Convolution:
    """Strides, dilations and padding of a convolution, without its activation."""
    strides = steps_of(op, "StrideH", "StrideW")
    dilations = steps_of(op, "DilationHFactor", "DilationWFactor")
    window = ((weights.shape[1] - 1) * dilations[0] + 1, (weights.shape[2] - 1) * dilations[1] + 1)
    return Convolution(strides, dilations, padding_of(op, x, window, strides), NO_CLAMP)


def conv3d_of(op: SourceOperator, x: Tensor, weights: Tensor, limits: Limits) -> Convolution3D:
    """Strides, dilations and padding of CONV_3D, with its activation."""
    strides, dilations = (
        (op.positive(depth), *steps_of(op, row, column))
        for depth, row, column in (
            ("StrideD", "StrideH", "StrideW"),
            ("DilationDFactor", "DilationHFactor", "DilationWFactor"),
        )
    )
    depths, rows, columns = (
        same_padding(x.shape[1 + axis], (weights.shape[axis] - 1) * dilations[axis] + 1, stride)
        if is_padded(op)
        else (0, 0)
        for axis, stride in enumerate(strides)
    )
    return Convolution3D(strides, dilations, (depths, rows, columns), limits)


def depth_multiplier_of(op: SourceOperator, x: Tensor, weights: Tensor) -> int:
    """How many outputs of a depthwise convolution there are for an input channel."""
    multiplier, rest = divmod(weights.shape[3], x.shape[3])
    if rest or not multiplier or weights.shape[0] != 1:
        raise op.damaged(f"weights of shape {weights.shape} do not fit an input of shape {x.shape}")
    # The option is redundant, and LiteRT too goes by the shapes; 0 is what old converters wrote.
    stated = op.integer("DepthMultiplier")
    if stated not in (0, multiplier):
        raise op.damaged(f"its DepthMultiplier is {stated}, but its shapes say {multiplier}")
    return multiplier


def transposed_of(
    op: SourceOperator, x: Tensor, weights: Tensor
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Strides of TRANSPOSE_CONV, and the rows above and columns left of its output.

    Its first input is the output's shape, which must be a constant.
    """
    out = op.output()
    if op.input(0).data is None:
        raise op.unsupported(
            f"its output shape '{op.input(0).name}' is an input or computed, not a constant in the "
            "file. Use Keras's Conv2DTranspose on an input of fixed size and batch, or give "
            "tf.nn.conv2d_transpose a list of numbers, and convert the model again"
        )
    if tuple(parameter(op, 0, "output shape").reshape(-1).tolist()) != out.shape:
        raise op.damaged(f"its output has shape {out.shape}, which is not what its input says")
    strides = steps_of(op, "StrideH", "StrideW")
    window = (weights.shape[1], weights.shape[2])
    top, bottom, left, right = padding_of(op, out, window, strides)
    back = [
        (size + padding - taps) // stride + 1
        for size, padding, taps, stride in zip(
            out.shape[1:3], (top + bottom, left + right), window, strides, strict=True
        )
    ]
    if tuple(back) != x.shape[1:3]:
        raise op.damaged(f"an output of {out.shape} does not come from an input of {x.shape}")
    return strides, (top, left)


def pool_of(op: SourceOperator, x: Tensor) -> Pool:
    """Window, strides and padding of a pool, without its activation."""
    window = (op.positive("FilterHeight"), op.positive("FilterWidth"))
    strides = (op.positive("StrideH"), op.positive("StrideW"))
    return Pool(window, strides, padding_of(op, x, window, strides), NO_CLAMP)


def bilinear_of(op: SourceOperator) -> ResizeBilinear:
    """The two options of RESIZE_BILINEAR, whose size must be a constant."""
    out = op.output()
    size = parameter(op, 1, "size").reshape(-1)
    if tuple(size.tolist()) != out.shape[1:3]:
        raise op.damaged(f"its size is {size.tolist()}, but its output is {out.shape}")
    corners, centers = bool(op.option("AlignCorners")), bool(op.option("HalfPixelCenters"))
    if corners and centers:
        raise op.damaged("it aligns corners and has half-pixel centers at the same time")
    return ResizeBilinear(corners, centers)
