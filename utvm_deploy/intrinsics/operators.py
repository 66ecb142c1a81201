"""int8 operators as plain PrimFuncs: int8 in, int32 out.

Images are [batch, rows, columns, channels].

Each has one block, named as the function. With
padding there is a block "pad" before it.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from utvm_deploy.base.errors import CompileError

#: Layouts of the weights of a convolution: output channels, rows, columns, input channels.
OHWI, HWOI = "OHWI", "HWOI"


def conv2d(
    height: int,
    width: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    batch: int = 1,
    layout: str = OHWI,
) -> Any:
    """A convolution. ``padding`` is above and left, and as much below and right, of zeros."""
    if layout not in (OHWI, HWOI):
        raise CompileError(
            f"the intrinsics do not fit weights in the layout {layout!r}; take {OHWI} or {HWOI}"
        )
    image, padded, rows, columns = _image(height, width, inputs, kernel, strides, padding, batch)
    shape = (outputs, *kernel, inputs) if layout == OHWI else (*kernel, outputs, inputs)
    weights = te.placeholder(shape, "int8", "weights")
    ky, kx, ci = _sums(ky=kernel[0], kx=kernel[1], ci=inputs)

    def product(n: Any, y: Any, x: Any, o: Any) -> Any:
        weight = weights[o, ky, kx, ci] if layout == OHWI else weights[ky, kx, o, ci]
        pixel = padded[n, y * strides[0] + ky, x * strides[1] + kx, ci]
        return te.sum(pixel.astype("int32") * weight.astype("int32"), axis=[ky, kx, ci])

    output = te.compute((batch, rows, columns, outputs), product, name="conv2d")
    return te.create_prim_func([image, weights, output])


def depthwise_conv2d(
    height: int,
    width: int,
    channels: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    batch: int = 1,
) -> Any:
    """A depthwise convolution; weights are [rows, columns, channels]."""
    image, padded, rows, columns = _image(height, width, channels, kernel, strides, padding, batch)
    weights = te.placeholder((*kernel, channels), "int8", "weights")
    ky, kx = _sums(ky=kernel[0], kx=kernel[1])

    def product(n: Any, y: Any, x: Any, c: Any) -> Any:
        pixel = padded[n, y * strides[0] + ky, x * strides[1] + kx, c]
        return te.sum(pixel.astype("int32") * weights[ky, kx, c].astype("int32"), axis=[ky, kx])

    output = te.compute((batch, rows, columns, channels), product, name="depthwise_conv2d")
    return te.create_prim_func([image, weights, output])


def dense(rows: int, inputs: int, outputs: int) -> Any:
    """A fully connected layer; weights are [outputs, inputs]."""
    values = te.placeholder((rows, inputs), "int8", "input")
    weights = te.placeholder((outputs, inputs), "int8", "weights")
    (k,) = _sums(k=inputs)

    def product(m: Any, n: Any) -> Any:
        return te.sum(values[m, k].astype("int32") * weights[n, k].astype("int32"), axis=k)

    output = te.compute((rows, outputs), product, name="dense")
    return te.create_prim_func([values, weights, output])


def batch_matmul(batch: int, rows: int, depth: int, columns: int) -> Any:
    """Products of matrices, the second ones transposed: [batch, columns, depth]."""
    left = te.placeholder((batch, rows, depth), "int8", "left")
    right = te.placeholder((batch, columns, depth), "int8", "right")
    (k,) = _sums(k=depth)

    def product(b: Any, m: Any, n: Any) -> Any:
        return te.sum(left[b, m, k].astype("int32") * right[b, n, k].astype("int32"), axis=k)

    output = te.compute((batch, rows, columns), product, name="batch_matmul")
    return te.create_prim_func([left, right, output])


def _image(
    height: int,
    width: int,
    channels: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int],
    batch: int,
) -> tuple[Any, Any, int, int]:
    """The image, the padded image, and the rows and columns of the output."""
    image = te.placeholder((batch, height, width, channels), "int8", "input")
    top, left = padding
    rows, columns = height + 2 * top, width + 2 * left
    padded = image
    if top or left:

        def pixel(n: Any, y: Any, x: Any, c: Any) -> Any:
            inside = [y >= top, y < top + height, x >= left, x < left + width]
            return te.if_then_else(
                te.all(*inside), image[n, y - top, x - left, c], te.const(0, "int8")
            )

        padded = te.compute((batch, rows, columns, channels), pixel, name="pad")
    of_output = ((rows - kernel[0]) // strides[0] + 1, (columns - kernel[1]) // strides[1] + 1)
    return image, padded, *of_output


def _sums(**extents: int) -> tuple[Any, ...]:
    return tuple(te.reduce_axis((0, extent), name) for name, extent in extents.items())
