"""Tensor intrinsics of int8 for Cortex-M: TVM schedules PrimFuncs with them.

``Dot`` and ``Taps`` say what each computes. ``tensorize`` schedules a block with them. ``conv2d``
and the others are plain PrimFuncs that they fit.
"""

from utvm_deploy.intrinsics.operators import (
    HWOI,
    OHWI,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
)
from utvm_deploy.intrinsics.space import intrinsics_in, sketched, space
from utvm_deploy.kernels.intrinsics.facts import DSP, MVE, Dot, Intrinsic, Taps, family_of, register
from utvm_deploy.kernels.intrinsics.schedules import tensorize

__all__ = [
    "DSP",
    "HWOI",
    "MVE",
    "OHWI",
    "Dot",
    "Intrinsic",
    "Taps",
    "batch_matmul",
    "conv2d",
    "dense",
    "depthwise_conv2d",
    "family_of",
    "intrinsics_in",
    "register",
    "sketched",
    "space",
    "tensorize",
]
