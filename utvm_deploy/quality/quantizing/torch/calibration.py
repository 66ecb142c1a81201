"""Samples for the calibration of a PyTorch module, from what callers have."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing.facts import PT2E_SAMPLES

_EMPTY = "the calibration data are empty; give at least one sample"


def example_of(module: Any, data: Any, given: Any) -> tuple[Any, ...]:
    """Inputs of one call of the module: those given, or the first sample of the data.

    Floats of the data become float32: numpy's are float64 unless somebody says otherwise.
    """
    if given is not None:
        import torch

        several = given if isinstance(given, tuple | list) else (given,)
        return tuple(torch.as_tensor(one) for one in several)
    names = inputs_of(module)
    first = next(_groups(data, len(names), names), None)
    if first is None or 0 in first[0].shape[:1]:
        raise ModelError(_EMPTY)
    parts = first[:-1]
    if len({part.shape[:1] for part in parts}) == 1:
        parts = tuple(part[:1] for part in parts)
    # Else the first axis is not that of samples, as in the state of several recurrent layers.
    return tuple(part.float() if part.is_floating_point() else part for part in parts)


def entry_hint(module: Any, data: Any) -> str:
    """What to say of a list whose entries may lack the axis of samples."""
    names = inputs_of(module)
    shape = tuple(next(_groups(data, len(names), names))[0].shape)
    return (
        f"an entry of the list has the shape {shape}, whose first axis counts samples; give each "
        f"entry that axis, such as {(1, *shape)}, or one array of all"
    )


def labelled_samples(
    module: Any, data: Any, example: tuple[Any, ...]
) -> tuple[list[tuple[Any, ...]], Array | None]:
    """The calibration data in groups of the example's size, at most ``PT2E_SAMPLES``.

    Also an integer label for each if all of them have one. A label is what follows the inputs, as a
    ``DataLoader`` gives it. Samples of more than one row have none. Raises ModelError for shapes
    that do not fit, and for numbers that are not finite.
    """
    found = list(_samples(data, example, inputs_of(module)))
    rows = [rest for _, rest in found if rest is not None and rest.numel() == 1]
    is_labelled = len(rows) == len(found) and not any(
        one.is_floating_point() or one.is_complex() for one in rows
    )
    labels = np.array([int(one) for one in rows]) if is_labelled else None
    return [sample for sample, _ in found], labels


def _samples(
    data: Any, example: tuple[Any, ...], names: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each sample, with the part of what follows the inputs that belongs to it, or None."""
    count = 0
    for *group, rest in _groups(data, len(example), names):
        size = example[0].shape[0] if example[0].ndim else 1
        is_whole = all(a.shape == b.shape for a, b in zip(group, example, strict=True))
        rows = group[0].shape[0]
        for start in range(0, rows - size + 1, size):
            if count == PT2E_SAMPLES:
                return
            parts = tuple(group) if is_whole else tuple(_parts(group, example, start, size))
            _check(parts, example, count)
            count += 1
            is_for_rows = rest is not None and rest.ndim > 0 and rest.shape[0] == rows
            label = rest[start : start + size] if is_for_rows else rest
            yield tuple(p.to(e.dtype) for p, e in zip(parts, example, strict=True)), label
    if count == 0:
        raise ModelError(_EMPTY)


def _parts(group: Iterable[Any], example: tuple[Any, ...], start: int, size: int) -> Iterator[Any]:
    """The parts of a sample; the axis of samples is one more, where inputs have no batch first."""
    for part, wanted in zip(group, example, strict=True):
        is_apart = part.ndim == wanted.ndim + 1
        yield part[start // size] if is_apart else part[start : start + size]


def _check(parts: tuple[Any, ...], example: tuple[Any, ...], number: int) -> None:
    import torch

    for position, (part, wanted) in enumerate(zip(parts, example, strict=True)):
        if part.shape != wanted.shape:
            hint = ", one by one in a list if their first axis does not count samples"
            if wanted.ndim == 4:
                hint = " (PyTorch has channels before height and width)"
            raise ModelError(
                f"calibration sample {number} has {tuple(part.shape)} for input {position}, which "
                f"takes {tuple(wanted.shape)}; give samples of the module's shape{hint}"
            )
        if part.is_floating_point() and not bool(torch.isfinite(part).all()):
            raise ModelError(
                f"calibration sample {number} has NaN or infinity in input {position}; "
                "remove such samples"
            )


def inputs_of(module: Any) -> list[str]:
    """The names of the inputs that the module must be given; of one at least."""
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in kinds]
    needed = [p for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]
    return names[: max(len(needed), 1)] or ["x"]


def _groups(data: Any, inputs: int, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Groups of samples: a tensor for each input, and then what follows the inputs, or None.

    A group may map the names of inputs to them.
    """
    import torch

    if isinstance(data, torch.utils.data.Dataset):
        data = torch.utils.data.DataLoader(data, batch_size=1)  # which adds the axis of samples
    if hasattr(data, "shape"):
        yield torch.as_tensor(data), None
        return
    if isinstance(data, tuple) and len(data) == inputs and all(hasattr(d, "shape") for d in data):
        yield *(torch.as_tensor(part) for part in data), None
        return
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise ModelError(
            f"calibration data of type {type(data).__name__} cannot be read; give a tensor, an "
            "array, a list of inputs, or a DataLoader"
        )
    for item in data:
        several = item if isinstance(item, tuple | list) else (item,)
        if isinstance(item, Mapping):
            several = _by_name(item, names)
        if len(several) < inputs:
            raise ModelError(
                f"the calibration data have {len(several)} tensors for {inputs} inputs; give a "
                "tensor for each input"
            )
        rest = torch.as_tensor(several[inputs]) if len(several) == inputs + 1 else None
        yield *(torch.as_tensor(part) for part in several[:inputs]), rest


def _by_name(sample: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The inputs of a sample that maps names to values, and its label if it has one."""
    missing = [name for name in names if name not in sample]
    if missing:
        raise ModelError(
            f"a calibration sample has {', '.join(map(str, sample))}, but not '{missing[0]}'; "
            "name the values as the arguments of forward"
        )
    labels = [sample[name] for name in ("label", "labels") if name in sample]
    return *(sample[name] for name in names), *labels[:1]
