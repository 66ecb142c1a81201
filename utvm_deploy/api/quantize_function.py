"""``utvm_deploy.quantize``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from utvm_deploy.boards.board import Board
    from utvm_deploy.precision.steps import MixedModel
    from utvm_deploy.quantizing.facts import QuantizedModel
    from utvm_deploy.quantizing.torch_module import QuantizedModule


def quantize(
    model: str | Path | Any,
    data: Any,
    *,
    scheme: str = "int8",
    float_ends: bool = False,
    input_range: tuple[float, float] | None = None,
    clipping: str = "min-max",
    max_loss: float | None = None,
    board: Board | str | None = None,
    ram_budget: int | None = None,
    flash_budget: int | None = None,
    cycle_budget: int | None = None,
    example_inputs: Any = None,
) -> QuantizedModel | MixedModel | QuantizedModule:
    """Quantize a float model; ``save`` of the result writes the .tflite file.

    - ``model`` is the path of a float model (.tflite, .onnx, .pt2), or a PyTorch module.
    - ``data`` are typical inputs: the path of a dataset, a dataset, an array whose first axis
      counts the samples, or a mapping of the names of inputs to such arrays. For a PyTorch module,
      it may also be a tensor, a list of inputs or a ``DataLoader``.
    - ``scheme`` is "int8", "int16x8" (int16 activations and int8 weights), or "mixed": one of both
      for each layer.
    - ``float_ends`` leaves the model's inputs and outputs float. Those of a PyTorch module are
      float always.
    - ``input_range`` is the smallest and the largest value that float inputs can have; by default
      the samples say it.
    - ``clipping`` says how ranges follow from the samples: "min-max", "percentile", "mse" or
      "auto".
    - ``max_loss`` is what "mixed" may lose (0.5): percentage points of accuracy if the data have
      labels, else dB of SQNR below the int16x8 model. On ``board`` it takes at most ``ram_budget``
      and ``flash_budget`` (bytes), and ``cycle_budget`` (cycles).
    - ``example_inputs`` has the shapes of a PyTorch module's inputs; by default, that is one
      sample. "mixed" takes integers that follow the inputs, as those of a ``DataLoader``, as
      labels.

    Raises ModelError for a model that cannot be quantized, and DataError for data that do not fit
    it. Raises UsageError for arguments that do not go together, and UtvmError if even the int8
    model takes more than a budget.
    """
    from pathlib import Path

    from utvm_deploy.base.errors import UsageError
    from utvm_deploy.precision.steps import name_costly_layers
    from utvm_deploy.quantizing.model_steps import quantize_model
    from utvm_deploy.torch.in_memory import is_module, is_program

    chosen_by = {
        "max_loss": max_loss,
        "ram_budget": ram_budget,
        "flash_budget": flash_budget,
        "cycle_budget": cycle_budget,
    }
    for option, value in chosen_by.items():
        if value is not None and scheme != "mixed":
            raise UsageError(f"{option} goes with scheme='mixed', and the scheme is {scheme!r}")
    if board is not None and scheme != "mixed":
        raise UsageError(
            f"a file of scheme {scheme!r} is the same for all boards; leave out board, or give "
            "scheme='mixed'"
        )
    if is_program(model):
        raise UsageError("an ExportedProgram cannot be quantized; give program.module()")
    if is_module(model) and (scheme == "mixed" or clipping != "min-max"):
        from utvm_deploy.quantizing.torch_files import file_of_module

        with file_of_module(model, data, example_inputs) as (file, samples):
            return quantize(
                file,
                samples,
                scheme=scheme,
                float_ends=True,
                input_range=input_range,
                clipping=clipping,
                max_loss=max_loss,
                board=board,
                ram_budget=ram_budget,
                flash_budget=flash_budget,
                cycle_budget=cycle_budget,
            )
    if is_module(model):
        from utvm_deploy.quantizing.torch_module import quantize_module

        return quantize_module(
            model, data, scheme=scheme, input_range=input_range, example_inputs=example_inputs
        )
    if not isinstance(model, str | Path):
        raise UsageError(
            f"an object of type {type(model).__name__} cannot be quantized; give the path of a "
            "float model, or an nn.Module"
        )
    path = Path(model)
    ends: Any = {"float_ends": float_ends, "input_range": input_range}
    if scheme == "mixed":
        from utvm_deploy.boards.board import load_board
        from utvm_deploy.precision.facts import Budgets
        from utvm_deploy.precision.steps import DEFAULT_MAX_LOSS, quantize_mixed

        return quantize_mixed(
            path,
            data,
            max_loss=DEFAULT_MAX_LOSS if max_loss is None else max_loss,
            board=load_board(board) if isinstance(board, str) else board,
            budgets=Budgets(ram_budget, flash_budget, cycle_budget),
            **ends,
        )
    made = quantize_model(path, data, scheme=scheme, clipping=clipping, **ends)
    return name_costly_layers(made, path, data)
