"""PyTorch in memory: modules on a board, and the backend "utvm" of ``torch.compile``.

    compiled = torch.compile(model, backend="utvm", options={"board": "mps2_an500"})
    with torch.no_grad():
        y = compiled(x)

``explain`` shows which operators would run on the board. PyTorch is imported on first use.
"""

from __future__ import annotations

from typing import Any

from utvm_deploy.frontend.torch.export import load_torch
from utvm_deploy.torch.in_memory import check_module_and_example, exported
from utvm_deploy.torch.options import check_scheme
from utvm_deploy.torch.partitions import Explanation, explanation

__all__ = ["explain"]


def explain(model: Any, example: Any = None, *, scheme: str = "float") -> Explanation:
    """Which operators of a module would run on a board, as text by ``print``.

    ``example`` holds inputs of the module, or is its only one. ``scheme`` is "float", "int8" or
    "int16x8". Raises ModelError if PyTorch cannot export the module, and UsageError for other
    arguments.
    """
    load_torch()
    check_module_and_example(model, example)
    check_scheme(scheme)
    inputs = example if isinstance(example, tuple | list) else (example,)
    return explanation(exported(model, inputs).module(check_guards=False), scheme)
