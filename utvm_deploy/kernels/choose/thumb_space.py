"""What can be chosen in the Thumb-2 kernels: the register tile, its loop's length, the pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.native.gathered_gemm import GatheredConv2D
from utvm_deploy.kernels.native.thumb.conv2d import ThumbProduct
from utvm_deploy.kernels.native.thumb.gemm import TILES
from utvm_deploy.records.candidate import Candidate

#: Pixels whose windows are gathered at a time: whole tiles of every kind.
_PIXELS = (6, 12, 24)


def products(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Candidates for a convolution or a fully connected layer, the default first."""
    default = Candidate("thumb")
    try:
        kernel = lower(graph, operator, core, default).kernel
    except UnsupportedOperator:
        return ()
    if not isinstance(kernel, GatheredConv2D) or type(kernel.product) is not ThumbProduct:
        return (default,)
    found = [default]
    for tile in TILES:
        is_default = replace(tile, rounding=kernel.product.tile.rounding) == kernel.product.tile
        knobs: dict[str, int | str] = {"tile": tile.label, "step": tile.step}
        if kernel.is_gathered:
            found += [
                Candidate.of("thumb", **knobs, pixels=pixels)
                for pixels in _PIXELS
                if not (is_default and pixels == kernel.pixels)
            ]
        elif not is_default:
            found.append(Candidate.of("thumb", **knobs))
    return tuple(found)


THUMB_SPACES: Mapping[str, Callable[[Graph, Operator, str], tuple[Candidate, ...]]] = {
    "CONV_2D": products,
    "DEPTHWISE_CONV_2D": products,
    "FULLY_CONNECTED": products,
}
