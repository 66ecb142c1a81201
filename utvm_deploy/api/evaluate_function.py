"""``utvm_deploy.evaluate``: how good a model is on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from utvm_deploy.api import steps
from utvm_deploy.api.compile_function import compile
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import INSTRUCTIONS, Device, DeviceModel, connect
from utvm_deploy.quality.evaluating.engines import Plan
from utvm_deploy.quality.evaluating.evaluation import Data, checked_data, evaluated, make_plan
from utvm_deploy.quality.evaluating.facts import Evaluation, Settings
from utvm_deploy.quality.quantizing.torch.files import file_of_module
from utvm_deploy.torch.in_memory import is_module


def evaluate(
    model: str | Path | Any,
    data: Data | None = None,
    board: Board | str | Path | Device | None = None,
    *,
    reference: str | Path | None = None,
    samples: int | None = None,
    labels: str | Path | None = None,
    raw_type: str | None = None,
    task: str | None = None,
    output: int = 0,
    top_k: int = 5,
    threshold: float = 0.5,
    check_plan: Callable[[Plan], None] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """Accuracy, or what fits the data: by the reference kernels, on a board and as float.

    - ``model`` is the path of a model's file, what ``quantize`` gave, or an ``nn.Module``, which is
      computed in float32 with the shapes of the data.
    - ``data`` are labelled samples: a path as for ``utvm eval``, a mapping of arrays as in an .npz
      file, or a ``datasets.Dataset``. The first axis of arrays counts the samples.
    - ``board`` is as for ``connect``, or a device: this stays open. Without a board nothing is
      compiled.
    - ``reference`` is the float model to compare with.
    - ``samples`` is how many are run, at equal distances.
    - ``labels`` is an .npy file with the labels or targets, and ``raw_type`` what .bin files hold.
    - ``task`` is "classification", "anomaly" or "regression", by default what the data and the
      shape of the output number ``output`` say.
    - ``top_k`` and ``threshold`` are for classification: how many of the best classes count, and
      which single score is class 1.
    - ``check_plan`` is called when the data are read, and before anything is compiled or run. It
      raises an error for what it does not want, as ``utvm eval`` does for limits that do not fit.
    - ``progress(what, done, total)`` is called on the way.
    - ``options`` are those of ``compile``, which ``profile`` lists; without a board, only
      ``inputs``, ``signature``, ``states``, ``stream`` and ``image_input`` have a meaning.

    Accuracies are from 0 to 1. Raises DataError for data that do not fit the model, ModelError for
    a file that cannot be imported, and UsageError for arguments that are not of these kinds.
    """
    if reference is not None and not isinstance(reference, str | Path):
        raise UsageError(
            f"reference is an object of type {type(reference).__name__}; give the path of the "
            "float model's file, such as a .pt2 that torch.export.save writes"
        )
    told = progress or no_progress
    with _file_and_data(model, data, options) as (file, given):
        checked = checked_data(file, given, samples)
        chosen = steps.chosen_of(options, compile)
        if board is None and options:
            raise UsageError(
                f"{', '.join(options)}: this says how a model is compiled, and that needs a board; "
                "give a board, or leave it out"
            )
        with chosen:
            device, custom = _device(board), None
            if device is not None:
                options, custom = steps.with_backend(options, device.board)
            plan = make_plan(
                Path(file),
                checked,
                Settings(task, output, top_k, threshold),
                reference=None if reference is None else Path(reference),
                samples=samples,
                labels=labels,
                raw_type=raw_type,
                custom=custom,
            )
            if check_plan is not None:
                check_plan(plan)
            if device is None:
                return evaluated(plan, None, told)
            compiled = steps.compile_fitting(plan.path, device.board, told, **options)
            loaded = _loaded(device, compiled, told, stays_open=device is board)
            return evaluated(plan, loaded, told)


def _device(board: Board | str | Path | Device | None) -> Device | None:
    """A device that can be reached; nothing is started yet."""
    # Nobody looks at ticks here.
    if board is None:
        return None
    device = board if isinstance(board, Device) else connect(board, timing=INSTRUCTIONS)
    device.check_ready()
    return device


@contextmanager
def _loaded(
    device: Device, compiled: CompiledModel, told: Progress, *, stays_open: bool
) -> Iterator[DeviceModel]:
    """The model on the device."""
    told(f"building the image and starting {device.board.name}", 0, 1)
    with nullcontext() if stays_open else device:
        yield device.load(compiled)


@contextmanager
def _file_and_data(model: Any, data: Any, options: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The file of what is in memory, and the data for it; other models and data as they are."""
    if is_module(model):
        with file_of_module(model, data, options.pop("inputs", None)) as found:
            yield found
    elif steps.is_quantized(model):
        with steps.model_file(model, options.get("name")) as file:
            yield file, data
    else:
        yield model, data
