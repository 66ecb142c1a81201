"""``utvm_deploy.quantize``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.progress import Progress, shown_progress
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.frontend.files.given_shapes import chosen_now, given, with_chosen
from utvm_deploy.quality.precision import steps
from utvm_deploy.quality.precision.facts import Budgets
from utvm_deploy.quality.quantizing.facts import QuantizedModel
from utvm_deploy.quality.quantizing.torch.files import file_of_module
from utvm_deploy.torch.in_memory import is_module, is_program

_log = logging.getLogger(__name__)


def quantize(
    model: str | Path | Any,
    data: Any,
    *,
    scheme: str = "int8",
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    clipping: str = "min-max",
    equalize: str | bool = "auto",
    sensitivity: bool = False,
    max_loss: float | None = None,
    board: Board | str | None = None,
    ram_budget: int | None = None,
    flash_budget: int | None = None,
    cycle_budget: int | None = None,
    timing: str = "cycles",
    example_inputs: Any = None,
    inputs: Any = None,
    signature: str | None = None,
    states: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> QuantizedModel | steps.MixedModel:
    """Quantize a float model; ``save`` of the result writes the .tflite file.

    - ``model`` is the path of a float model (.tflite, .onnx, .pt2), or a PyTorch module.
    - ``data`` are typical inputs: the path of a dataset, a dataset, an array whose first axis
      counts the samples, or a mapping of the names of inputs to such arrays. For a PyTorch module,
      it may also be a tensor, a list of inputs or of mappings of the names of inputs to them, a
      ``TensorDataset`` or a ``DataLoader``.
    - ``scheme`` is "int8", "int4" (int8 activations and int4 weights), "int16x8" (int16 activations
      and int8 weights), or "mixed": int4, int8 or int16x8 for each layer.
    - ``float_ends`` leaves the model's inputs and outputs float. Those of a PyTorch module are
      float always.
    - ``input_range`` is the smallest and the largest value that float inputs can have; by default
      the samples say it.
    - ``clipping`` says how ranges follow from the samples: "min-max", "percentile", "mse" or
      "auto". This takes "min-max" unless another is clearly better on samples that are held out.
      Of 64 or more samples, some are.
    - ``equalize`` says whether weights are equalized across layers. "yes" tries it, and keeps the
      better model. "auto" does so for .tflite files and PyTorch, by samples that are held out. "no"
      leaves them. ``equalizing`` of the result has the SQNR of the worst output of both, in dB.
    - ``sensitivity`` also quantizes each layer alone: ``layers`` of the result has the SQNR of the
      outputs in dB, and the percentage points of accuracy that are lost, with labels. With
      ``board``, it has each layer's ticks and bytes of weights there. "mixed" has this in ``rows``.
    - ``max_loss`` is what "mixed" may lose (0.5): percentage points of accuracy if the data have
      labels, else dB of SQNR below the int16x8 model. On ``board`` it takes at most ``ram_budget``
      and ``flash_budget`` (bytes), and ``cycle_budget`` (cycles). ``timing`` is as for ``connect``.
    - ``example_inputs`` has the shapes of a PyTorch module's inputs; by default, that is one
      sample. "mixed" takes integers that follow the inputs, as those of a ``DataLoader``, as
      labels.
    - ``inputs`` and ``signature`` are as for ``compile``, for a file.
    - ``states`` gives each of these inputs and its output one range, so that ``compile`` with
      ``states`` takes the file. In the file, they stay inputs and outputs.
    - ``progress(what, done, total)`` is called on the way; by default, a line on stderr shows it in
      terminals and notebooks.

    Each of the result's ``warnings`` is logged once.

    Raises ModelError for a model that cannot be quantized, and DataError for data that do not fit
    it. Raises UsageError for arguments that do not go together, and UtvmError if no mix that was
    measured is within the budgets.
    """
    chosen_by: dict[str, Any] = {
        "max_loss": max_loss,
        "ram_budget": ram_budget,
        "flash_budget": flash_budget,
        "cycle_budget": cycle_budget,
    }
    if isinstance(equalize, bool):
        equalize = "yes" if equalize else "no"
    as_observed = clipping == "min-max" and equalize != "yes"
    _check_options(scheme, chosen_by, board, as_observed=as_observed, sensitivity=sensitivity)
    if chosen_now().stream is not None:
        raise UsageError("quantize takes whole windows; give --stream with the file that it writes")
    if is_program(model):
        raise UsageError("an ExportedProgram cannot be quantized; give program.module()")
    if is_module(model) and states:
        raise UsageError(
            "states is for files: inputs and outputs of a quantized module stay float, so they "
            "need no common range"
        )
    if is_module(model):
        with file_of_module(model, data, example_inputs) as (file, samples):
            return quantize(
                file,
                samples,
                scheme=scheme,
                float_ends=True,
                input_range=input_range,
                clipping=clipping,
                equalize=equalize,
                sensitivity=sensitivity,
                board=board,
                timing=timing,
                progress=progress,
                **chosen_by,
            )
    if not isinstance(model, str | Path):
        raise UsageError(
            f"an object of type {type(model).__name__} cannot be quantized; give the path of a "
            "float model, or an nn.Module"
        )
    same: Any = {
        "board": load_board(board) if isinstance(board, str) else board,
        "timing": timing,
        "float_ends": float_ends,
        "input_range": input_range,
    }
    shown, chosen = shown_progress(progress), with_chosen(inputs, signature, states)
    with shown as told, chosen, given(states=(), tied=chosen_now().states):
        same["progress"] = told
        made: QuantizedModel | steps.MixedModel
        if scheme == "mixed":
            made = steps.quantize_mixed(
                Path(model),
                data,
                max_loss=steps.DEFAULT_MAX_LOSS if max_loss is None else max_loss,
                budgets=Budgets(ram_budget, flash_budget, cycle_budget),
                **same,
            )
        else:
            made = steps.quantize_uniform(
                Path(model),
                data,
                scheme=scheme,
                clipping=clipping,
                equalize=equalize,
                sensitivity=sensitivity,
                **same,
            )
    for warning in made.warnings:
        _log.warning("%s", warning)
    return made


def _check_options(
    scheme: str, chosen_by: dict[str, Any], board: Any, *, as_observed: bool, sensitivity: bool
) -> None:
    """Refuse arguments that do not go together, and what is not a number."""
    for option, value in chosen_by.items():
        # Numbers of numpy count, too.
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise UsageError(f"{option}={value!r} is not a number; give bytes, cycles or a loss")
    if scheme == "mixed":
        if not as_observed:
            raise UsageError(
                "scheme='mixed' takes ranges and weights as they are; leave clipping= and "
                "equalize= out"
            )
        return
    for option, value in chosen_by.items():
        if value is not None:
            raise UsageError(f"{option} goes with scheme='mixed', and the scheme is {scheme!r}")
    if board is not None and not sensitivity:
        raise UsageError(
            f"a file of scheme {scheme!r} is the same for all boards; leave out board=, or "
            "give sensitivity=True or scheme='mixed', which measure layers on it"
        )
