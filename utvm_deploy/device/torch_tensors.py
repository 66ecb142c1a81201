"""PyTorch tensors as inputs and outputs of loaded models; numpy arrays stay as they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.model import Array


def has_tensors(values: Sequence[Any]) -> bool:
    """Whether any of the values is a ``torch.Tensor``; it does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(value, torch.Tensor) for value in values)


def arrays_of(values: Sequence[Any]) -> list[Array]:
    """Tensors and arrays as arrays. Raises ModelError for a tensor that wants a gradient."""
    torch = sys.modules["torch"]
    found = []
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            found.append(value)
            continue
        if value.requires_grad and torch.is_grad_enabled():
            raise ModelError(
                f"input {position} requires a gradient, and a board computes none; call the model "
                "under torch.no_grad()"
            )
        found.append(value.detach().cpu().numpy())
    return found


def tensors_of(arrays: Sequence[Array]) -> list[Any]:
    """Arrays as tensors that own their memory."""
    torch = sys.modules["torch"]
    return [torch.from_numpy(array.copy()) for array in arrays]
