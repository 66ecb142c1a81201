"""What the family for floating-point units can do: its strategies by operator."""

from __future__ import annotations

from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.strategy import Layer, Strategy, Wish, candidates_of
from utvm_deploy.kernels.native.fpu.conversions import build_dequantize, build_quantize
from utvm_deploy.kernels.native.fpu.convolution import build_product, product_choices
from utvm_deploy.kernels.native.fpu.depthwise import build_depthwise


def build(layer: Layer, wish: Wish) -> KernelCall | str:
    """A depthwise layer of one channel is a matrix product."""
    if layer.input(1).data is None:
        return "its weights are computed"
    if layer.kind == "DEPTHWISE_CONV_2D" and layer.source.shape[3] > 1:
        return build_depthwise(layer, wish)
    return build_product(layer, wish)


FAMILY = "fpu"
FPU_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
        build,
        candidates_of(FAMILY, build, product_choices),
        dtype="float32",
    ),
    Strategy(("QUANTIZE",), build_quantize, dtype="float32"),
    Strategy(("DEQUANTIZE",), build_dequantize, result="float32"),
)
