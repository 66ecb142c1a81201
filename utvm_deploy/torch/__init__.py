"""PyTorch in memory: modules on a board, and the backend "utvm" of ``torch.compile``.

    compiled = torch.compile(model, backend="utvm", options={"board": "mps2_an500"})
    with torch.no_grad():
        y = compiled(x)

``explain`` shows which operators would run on the board. ``quantizer`` is for PT2E of torchao, by
hand or with training. PyTorch is imported on first use.
"""

from __future__ import annotations

from typing import Any

from utvm_deploy.frontend.torch.export import load_torch
from utvm_deploy.quality.quantizing.torch.quantizer import pt2e_quantizer
from utvm_deploy.torch.in_memory import check_module_and_example, exported
from utvm_deploy.torch.options import check_scheme
from utvm_deploy.torch.partitions import Explanation, explanation

__all__ = ["explain", "quantizer"]


def quantizer(example: Any, *, scheme: str = "int8", is_qat: bool = False) -> Any:
    """Our quantizer for torchao's ``prepare_pt2e``, or with ``is_qat`` for ``prepare_qat_pt2e``.

    It quantizes what our kernels compute in integers: activations to int8 (or int16, with
    ``scheme="int16x8"``), and weights to int8 with a scale for each channel. ``example`` has inputs
    of the module. What ``convert_pt2e`` makes is exported by ``torch.export.export`` and then a
    model for ``compile``, or saved as a ``.pt2`` file.

    Raises UsageError for another scheme, and ModelError if torchao is missing.
    """
    load_torch()
    inputs = example if isinstance(example, tuple | list) else (example,)
    return pt2e_quantizer(scheme, tuple(inputs), is_qat=is_qat)


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
