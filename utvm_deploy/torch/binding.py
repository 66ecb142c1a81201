"""Graphs with their parameters bound, as functions of the caller's tensors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Module = Any
else:
    try:
        from torch.nn import Module as _Module
    except ImportError:  # the package can be imported without PyTorch
        _Module = object


class Bound(_Module):  # type: ignore[misc]
    """A module of which some arguments are constants, by their positions."""

    def __init__(self, inner: Any, constants: Mapping[int, Any], count: int) -> None:
        import torch

        super().__init__()
        # Exported graphs have no mode to set.
        self.training = False
        self.inner, self.count, self.numbers = inner, count, {}
        for position, value in constants.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                # PT2E folds batch norms into parameters only.
                kept = torch.nn.Parameter(value.detach(), requires_grad=False)
                self.register_parameter(f"constant_{position}", kept)
            elif isinstance(value, torch.Tensor):
                self.register_buffer(f"constant_{position}", value)
            else:
                self.numbers[position] = value
        self.tensors = {p for p in constants if p not in self.numbers}

    def forward(self, *given: Any) -> Any:
        """The inner module's results."""
        left = iter(given)
        arguments = []
        for position in range(self.count):
            if position in self.tensors:
                arguments.append(getattr(self, f"constant_{position}"))
            elif position in self.numbers:
                arguments.append(self.numbers[position])
            else:
                arguments.append(next(left))
        return self.inner(*arguments)


def bound(graph: Any, arguments: Sequence[Any]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """A graph of Dynamo's with its parameters bound, the tensors that remain, and what is bound.

    Dynamo gives parameters, buffers and sizes as arguments.
    """
    import torch

    constants = {
        position: value for position, value in enumerate(arguments) if not _is_user(torch, value)
    }
    users = tuple(value for value in arguments if _is_user(torch, value))
    return Bound(graph, constants, len(arguments)), users, tuple(constants.values())


def _is_user(torch: Any, value: Any) -> bool:
    is_static = isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")
    return isinstance(value, torch.Tensor) and not is_static
