"""The strategies of the Thumb family, for cores with Thumb-2 and for those without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import (
    Choices,
    Layer,
    NoChoices,
    Strategy,
    Wish,
    candidates_of,
)
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.layer_tables import convolution_tables, dense_tables
from utvm_deploy.kernels.native.row_depthwise import RowProduct
from utvm_deploy.kernels.native.scaling import REACH_LIMIT
from utvm_deploy.kernels.native.thumb.armv6m_depthwise import SUM_LIMIT, armv6m_row_product
from utvm_deploy.kernels.native.thumb.armv6m_gemm import armv6m_product
from utvm_deploy.kernels.native.thumb.conv2d import (
    GemmChoices,
    Make,
    ThumbProduct,
    thumb_conv2d_call,
    thumb_dense_call,
    thumb_product,
)
from utvm_deploy.kernels.native.thumb.depthwise import thumb_depthwise_call, thumb_row_product
from utvm_deploy.kernels.native.thumb.estimate import is_plain_faster
from utvm_deploy.kernels.native.thumb.gemm import TILES
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D, DepthwiseConv2D
from utvm_deploy.kernels.portable.integers.fully_connected import Dense
from utvm_deploy.targets.arm_m.cores import has_thumb2

#: Pixels whose windows are gathered at a time: whole tiles of every kind.
_PIXELS = (6, 12, 24)


def build_convolution(layer: Layer, wish: Wish) -> KernelCall | str:
    """CONV_2D and DEPTHWISE_CONV_2D. A depthwise layer of one channel is built as CONV_2D."""
    call, core = layer.portable, layer.core
    kernel = call.kernel
    assert isinstance(kernel, Conv2D | DepthwiseConv2D)
    is_depthwise = isinstance(kernel, DepthwiseConv2D) and kernel.channels > 1
    tables = convolution_tables(layer)
    is_thumb2 = has_thumb2(core)
    scaling = tables.short_scaling(REACH_LIMIT if is_thumb2 or not is_depthwise else SUM_LIMIT)
    if isinstance(scaling, str):
        return scaling
    if is_depthwise:
        if isinstance(refused := NoChoices.read(wish.candidate), str):
            return refused
        if wish.candidate is None and is_thumb2 and tables.window.output_width == 1:
            return "rows of one output, which plain C does faster"
        make = thumb_row_product if is_thumb2 else armv6m_row_product
        product: RowProduct = make(tables.window)
        return thumb_depthwise_call(call, tables, scaling, product)
    choices = _choices(wish, core)
    if isinstance(choices, str):
        return choices
    made = thumb_conv2d_call(call, tables, scaling, choices, _product_of(core))
    return _if_faster(layer, wish, made)


def build_dense(layer: Layer, wish: Wish) -> KernelCall | str:
    """FULLY_CONNECTED."""
    tables, choices = dense_tables(layer), _choices(wish, layer.core)
    if isinstance(tables, str):
        return tables
    if isinstance(choices, str):
        return choices
    made = thumb_dense_call(layer.portable, tables, choices, _product_of(layer.core))
    return _if_faster(layer, wish, made)


def _choices(wish: Wish, core: str) -> GemmChoices | str:
    """What the candidate chooses; the kernels of a core without Thumb-2 have nothing to choose."""
    if not has_thumb2(core) and isinstance(refused := NoChoices.read(wish.candidate), str):
        return refused
    return GemmChoices() if wish.is_open else GemmChoices.read(wish.candidate)


def _if_faster(layer: Layer, wish: Wish, made: KernelCall) -> KernelCall | str:
    """``made``, unless it is the default's turn and plain C is estimated to be faster."""
    kernel, own = layer.portable.kernel, made.kernel
    assert isinstance(kernel, Conv2D | DepthwiseConv2D | Dense)
    assert isinstance(own, GatheredConv2D)
    is_thumb2 = has_thumb2(layer.core)
    if wish.candidate is None and is_plain_faster(kernel, own, has_thumb2=is_thumb2):
        return "plain C promises to take less"
    return made


def _product_of(core: str) -> Make:
    return thumb_product if has_thumb2(core) else armv6m_product


def gemm_choices(kernel: object) -> Iterator[Choices]:
    """The choices of the layer whose default kernel is ``kernel``; the default chooses nothing."""
    if not isinstance(kernel, GatheredConv2D) or type(kernel.product) is not ThumbProduct:
        return
    yield GemmChoices()
    for tile in TILES:
        is_default = replace(tile, rounding=kernel.product.tile.rounding) == kernel.product.tile
        for pixels in _PIXELS if kernel.is_gathered else (None,):
            if not is_default or pixels not in (None, kernel.pixels):
                yield GemmChoices(pixels, tile.step, tile.label)


FAMILY = "thumb"
THUMB_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        build_convolution,
        candidates_of(FAMILY, build_convolution, gemm_choices),
    ),
    Strategy(("FULLY_CONNECTED",), build_dense, candidates_of(FAMILY, build_dense, gemm_choices)),
)
