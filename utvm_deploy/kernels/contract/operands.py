"""What kernels ask of an operator's tensors."""

from __future__ import annotations

import math

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.model import Quantization, Tensor


def quantization_of(tensor: Tensor) -> Quantization:
    """The quantization of a tensor that must have one."""
    if tensor.quantization is None:
        raise CompileError(f"tensor {tensor.name} has no quantization; convert the model to int8")
    return tensor.quantization


def stored(dtype: str) -> str:
    """The type that an element has in kernels: booleans are bytes of 0 or 1."""
    return "uint8" if dtype == "bool" else dtype


def element_count(tensor: Tensor) -> int:
    """How many elements a tensor has."""
    return math.prod(tensor.shape)
