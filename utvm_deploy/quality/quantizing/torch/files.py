"""A PyTorch module in memory as the file and the samples that the steps for files take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import DataError, ModelError, UtvmError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.torch.export import load_torch
from utvm_deploy.frontend.torch.modules import check_module, export_error, quiet_torch
from utvm_deploy.quality.datasets import Dataset
from utvm_deploy.quality.quantizing.facts import PT2E_SAMPLES
from utvm_deploy.quality.quantizing.torch.calibration import (
    entry_hint,
    example_of,
    labelled_samples,
)


@contextmanager
def file_of_module(module: Any, data: Any, example_inputs: Any) -> Iterator[tuple[Path, Any]]:
    """A temporary .pt2 file of an ``nn.Module``, and its data as a dataset, a path or arrays.

    Labels behind the inputs are kept if they are integers, one for each sample. Raises ModelError
    for data that do not fit, and for what PyTorch cannot export; messages say "the module".
    """
    torch = load_torch()
    if isinstance(data, Iterator):
        data = list(islice(data, PT2E_SAMPLES))
    is_ready = isinstance(data, str | Path | Dataset | Mapping)
    with TemporaryFolder("utvm-module") as folder:
        path = folder / "module.pt2"
        was_training = module.training
        try:
            if was_training:
                module.eval()
            seen = _first(data) if is_ready and example_inputs is None else data
            example = example_of(module, seen, example_inputs)
            arrays = data if is_ready else _arrays(module, data, example)
            is_list = isinstance(data, list) and example_inputs is None
            check_module(torch, module, example, hint=entry_hint(module, data) if is_list else "")
            with torch.no_grad(), quiet_torch():
                torch.export.save(torch.export.export(module, example), path)
        except UtvmError:
            raise
        except Exception as exc:  # of many classes
            raise ModelError(f"PyTorch cannot export the module: {export_error(exc)}") from exc
        finally:
            if was_training:
                module.train()
        try:
            yield path, arrays
        except UtvmError as error:
            raise type(error)(str(error).replace(str(path), "the module")) from error


def _first(data: Any) -> Any:
    """What says the shape of one sample: the array ``inputs`` of a mapping."""
    if isinstance(data, Mapping) and "inputs" in data:
        return np.asarray(data["inputs"])
    if isinstance(data, str | Path) and not Path(data).exists():
        raise DataError(f"there are no data {data}; give a file or a folder that you may read")
    raise ModelError(
        "these data do not say the shapes that the module takes; give example_inputs, too"
    )


def _arrays(module: Any, data: Any, example: tuple[Any, ...]) -> dict[str, Any]:
    """An array for each input, and the labels if there are any, named as in an .npz file."""
    samples, labels = labelled_samples(module, data, example)
    parts = [np.stack([one.numpy() for one in column]) for column in zip(*samples, strict=True)]
    names = ["inputs"] if len(parts) == 1 else [f"inputs_{i}" for i in range(len(parts))]
    arrays = dict(zip(names, parts, strict=True))
    return arrays if labels is None else {**arrays, "labels": labels}
