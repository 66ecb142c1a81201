"""What the family for floating-point units can do: its strategies by operator."""

from __future__ import annotations

from utvm_deploy.kernels.contract.strategy import Strategy, candidates_of
from utvm_deploy.kernels.native.fpu.convolution import build_product, product_choices

FAMILY = "fpu"
FPU_STRATEGIES = (
    Strategy(
        ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
        build_product,
        candidates_of(FAMILY, build_product, product_choices),
        dtype="float32",
    ),
)
