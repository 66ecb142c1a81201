"""Finds out by running it what a graph does besides computing its results from its inputs.

Operators of PyTorch change tensors in ways that their schemas do not always say. So the graph runs
in eager, on copies, and its generator of random numbers is restored afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def changes_arguments(graph: Any, arguments: Sequence[Any]) -> bool:
    """Whether a graph writes into its inputs, parameters or buffers, as batch norm in training."""
    import torch

    copies = [_copy(one) for one in arguments]
    with torch.random.fork_rng(devices=[]):
        graph(*copies)
    pairs = zip(arguments, copies, strict=True)
    return any(_is_changed(one, copy) for one, copy in pairs if isinstance(one, torch.Tensor))


def is_by_row(whole: Any, single: Any, users: tuple[Any, ...]) -> bool:
    """Whether a module computes each row of its inputs by itself, as if it came alone.

    ``single`` is the module for inputs of one row. It is compared on these inputs, and on random
    floats instead: rows that are equal would hide that one depends on another.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = tuple(torch.randn_like(x) if x.is_floating_point() else x for x in users)
        return all(_are_rows_apart(whole, single, inputs) for inputs in (users, drawn))


def rows_of(users: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Inputs of one row each."""
    count = users[0].shape[0]
    return [tuple(one[number : number + 1] for one in users) for number in range(count)]


def _are_rows_apart(whole: Any, single: Any, users: tuple[Any, ...]) -> bool:
    import torch

    rows = rows_of(users)
    try:
        together = whole(*users)
        alone = [torch.cat(parts) for parts in zip(*(single(*row) for row in rows), strict=True)]
        return len(together) == len(alone) and all(
            one.shape == other.shape
            and torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)
            for one, other in zip(together, alone, strict=True)
        )
    except (RuntimeError, TypeError, AttributeError):  # such as a shape fixed in the graph
        return False


def state_of(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """What changes where a parameter or a buffer gets another value."""
    return tuple((one.data_ptr(), _version(one)) for one in tensors)


def _copy(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _is_changed(before: Any, after: Any) -> bool:
    """Batch norm writes its statistics without a new version; an addition of 0 has one."""
    import torch

    if _version(after) or before.shape != after.shape:
        return True
    return not torch.equal(torch.nan_to_num(before), torch.nan_to_num(after))


def _version(tensor: Any) -> int:
    # Tensors of the inference mode count no versions.
    return 0 if tensor.is_inference() else int(tensor._version)
