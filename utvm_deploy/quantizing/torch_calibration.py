"""Samples for the calibration of a PyTorch module, from what callers have."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from utvm_deploy.base.errors import ModelError

#: At most this many samples are taken.
MOST_SAMPLES = 512
_EMPTY = "the calibration data are empty; give at least one sample"


def example_of(module: Any, data: Any, given: Any) -> tuple[Any, ...]:
    """Inputs of one call of the module: those given, or the first sample of the data."""
    if given is not None:
        import torch

        several = given if isinstance(given, tuple | list) else (given,)
        return tuple(torch.as_tensor(one) for one in several)
    first = next(_groups(data, inputs_of(module)), None)
    if first is None or 0 in first[0].shape[:1]:
        raise ModelError(_EMPTY)
    return tuple(part[:1] for part in first)


def samples(data: Any, example: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The calibration data in groups of the example's size, at most ``MOST_SAMPLES``.

    Raises ModelError for shapes that do not fit, and for numbers that are not finite.
    """
    count = 0
    for group in _groups(data, len(example)):
        size = example[0].shape[0] if example[0].ndim else 1
        for start in range(0, group[0].shape[0] - size + 1, size):
            if count == MOST_SAMPLES:
                return
            parts = tuple(part[start : start + size] for part in group)
            _check(parts, example, count)
            count += 1
            yield tuple(p.to(e.dtype) for p, e in zip(parts, example, strict=True))
    if count == 0:
        raise ModelError(_EMPTY)


def _check(parts: tuple[Any, ...], example: tuple[Any, ...], number: int) -> None:
    import torch

    for position, (part, wanted) in enumerate(zip(parts, example, strict=True)):
        if part.shape != wanted.shape:
            raise ModelError(
                f"calibration sample {number} has {tuple(part.shape)} for input {position}, which "
                f"takes {tuple(wanted.shape)}; give samples of the module's shape (PyTorch has "
                "channels before height and width)"
            )
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise ModelError(
                f"calibration sample {number} has NaN or infinity in input {position}; "
                "remove such samples"
            )


def inputs_of(module: Any) -> int:
    """How many inputs the module must be given."""
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]
    return max(len(needed), 1)


def _groups(data: Any, inputs: int) -> Iterator[tuple[Any, ...]]:
    """Groups of samples, a tensor for each input; labels behind the inputs are dropped."""
    import torch

    if hasattr(data, "shape"):
        yield (torch.as_tensor(data),)
        return
    if isinstance(data, tuple) and len(data) == inputs and all(hasattr(d, "shape") for d in data):
        yield tuple(torch.as_tensor(part) for part in data)
        return
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise ModelError(
            f"calibration data of type {type(data).__name__} cannot be read; give a tensor, an "
            "array, a list of inputs, or a DataLoader"
        )
    for item in data:
        several = item if isinstance(item, tuple | list) else (item,)
        if len(several) < inputs:
            raise ModelError(
                f"the calibration data have {len(several)} tensors for {inputs} inputs; give a "
                "tensor for each input"
            )
        yield tuple(torch.as_tensor(part) for part in several[:inputs])
