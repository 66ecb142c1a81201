"""Kernels of int8 that take weights of int4.

A product with the method ``halved`` unpacks them in registers. For others, some are unpacked into
scratch first.
"""

from __future__ import annotations

from dataclasses import replace

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.native.gathered_gemm import MOST_PIXELS, GatheredConv2D
from utvm_deploy.kernels.native.micro_kernel import packed_halves
from utvm_deploy.kernels.native.row_depthwise import RowDepthwise

#: Channels whose weights are unpacked at a time, and the bytes that they should take.
_MOST_BLOCK, _LINE_BYTES = 8, 2048
#: Pixels of a block at least: a weight takes about as long to unpack as a product or two.
_SHARING_PIXELS = 12
_WHY = "its weights are int4"


def packed_call(call: KernelCall, *, is_open: bool = False) -> KernelCall | str:
    """A call whose weights are int4 as one with packed weights, or why there is none.

    ``is_open``: more pixels than in ``call`` may be gathered, which share what is unpacked.
    """
    weights = [
        one for one in call.arguments if isinstance(one, ConstantArgument) and one.name == "weights"
    ]
    if not weights:
        return _WHY
    (table,), (low, high) = weights, element_type("int4").limits
    if table.data.dtype != "int8" or table.data.min() < low or table.data.max() > high:
        return f"{_WHY}, and its table has other bytes, too"
    kernel: RowDepthwise | GatheredConv2D | str
    data = packed_halves(table.data)
    if isinstance(call.kernel, RowDepthwise):
        kernel = _depthwise(call.kernel, table.data.size)
    elif isinstance(call.kernel, GatheredConv2D) and hasattr(call.kernel.product, "halved"):
        made = call.kernel.product.halved(table.data, call.kernel.output_channels)
        if isinstance(made, str):
            return f"{_WHY}; {made}"
        product, data = made
        kernel = replace(call.kernel, product=product)
    else:
        kernel = _convolution(call.kernel, _SHARING_PIXELS if is_open else 0)
    if isinstance(kernel, str):
        return kernel
    packed = replace(table, data=data)
    return replace(
        call,
        kernel=kernel,
        arguments=tuple(packed if one is table else one for one in call.arguments),
        rounded_once=None,
        candidate=None,
    )


def _depthwise(kernel: RowDepthwise, size: int) -> RowDepthwise | str:
    """All weights are unpacked, once for all rows, if they are at most those of a block."""
    if size > _LINE_BYTES:
        return f"{_WHY}, of {size} bytes; rows of channels unpack at most {_LINE_BYTES}"
    return replace(kernel, unpacked=-(-size // 8) * 8)


def _convolution(kernel: object, least: int) -> GatheredConv2D | str:
    """A product says by ``has_parts`` that its tables of some channels are parts of those of all.

    Then these channels are unpacked for a block of at ``least`` that many pixels.
    """
    if type(kernel) is not GatheredConv2D or kernel.groups > 1:
        return _WHY
    if not getattr(kernel.product, "has_parts", False):
        return f"{_WHY}, which this product does not unpack"
    outputs, depth, product = kernel.output_channels, kernel.depth, kernel.product
    whole = [one.elements for one in product.tables(outputs, depth)[:2]]

    def is_part(channels: int) -> bool:
        part, next_part = (
            [one.elements for one in product.tables(count, depth)[:2]]
            for count in (channels, channels + 1)
        )
        # A part that zeros fill up is not one: there, the next channels come before the zeros.
        is_filled = part == next_part
        is_whole = [one * (outputs // channels) for one in part] == whole
        return is_whole and not is_filled and part[0] % 8 == 0

    blocks = [n for n in range(1, _MOST_BLOCK + 1) if outputs % n == 0 and is_part(n)]
    if not blocks:
        return f"{_WHY}, of {outputs} channels that have no equal parts"
    small = [n for n in blocks if product.tables(n, depth)[0].elements <= _LINE_BYTES]
    block = max(small, default=min(blocks))
    pixels = kernel.pixels or MOST_PIXELS // product.pixels * product.pixels
    pixels = max(pixels, least // product.pixels * product.pixels)
    return replace(kernel, block=block, pixels=pixels)
