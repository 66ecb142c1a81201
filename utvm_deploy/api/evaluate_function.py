"""``utvm_deploy.evaluate``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from utvm_deploy.base.progress import Progress
    from utvm_deploy.boards.board import Board
    from utvm_deploy.device import Device, DeviceModel
    from utvm_deploy.evaluating.evaluation import Data
    from utvm_deploy.evaluating.facts import Evaluation


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
    - ``progress(what, done, total)`` is called on the way.
    - ``options`` are those of ``compile``; without a board, ``inputs`` alone has a meaning.

    Accuracies are from 0 to 1. Raises DataError for data that do not fit the model, ModelError for
    a file that cannot be imported, and UsageError for arguments that are not of these kinds.
    """
    import contextlib
    from pathlib import Path

    from utvm_deploy.api.compile_function import compile
    from utvm_deploy.api.connect_function import connect
    from utvm_deploy.api.steps import is_quantized, model_file
    from utvm_deploy.backends.custom import CustomOperators
    from utvm_deploy.base.errors import UsageError
    from utvm_deploy.base.progress import no_progress
    from utvm_deploy.device import INSTRUCTIONS, Device
    from utvm_deploy.evaluating.evaluation import checked_data, evaluated, make_plan
    from utvm_deploy.evaluating.facts import Settings
    from utvm_deploy.frontend.given_shapes import given_shapes, shapes_of_inputs
    from utvm_deploy.project import load_backend
    from utvm_deploy.torch.in_memory import is_module

    if reference is not None and not isinstance(reference, str | Path):
        raise UsageError(
            f"reference is an object of type {type(reference).__name__}; give the path of the "
            "float model's file, such as a .pt2 that torch.export.save writes"
        )
    if is_module(model):
        from utvm_deploy.quantizing.torch_files import file_of_module

        with file_of_module(model, data, options.pop("inputs", None)) as (file, given):
            return evaluate(
                file,
                given,
                board,
                reference=reference,
                samples=samples,
                labels=labels,
                raw_type=raw_type,
                task=task,
                output=output,
                top_k=top_k,
                threshold=threshold,
                progress=progress,
                **options,
            )
    if is_quantized(model):
        with model_file(model, options.get("name")) as file:
            return evaluate(
                file,
                data,
                board,
                reference=reference,
                samples=samples,
                labels=labels,
                raw_type=raw_type,
                task=task,
                output=output,
                top_k=top_k,
                threshold=threshold,
                progress=progress,
                **options,
            )
    told = progress or no_progress
    data = checked_data(model, data, samples)
    if board is None or isinstance(board, Device):
        device = board
    else:
        device = connect(board, timing=INSTRUCTIONS)
    unused = [name for name in options if name != "inputs"]
    if device is None and unused:
        raise UsageError(
            f"{', '.join(unused)}: this says how a model is compiled, and that needs a board; give "
            "a board, or leave it out"
        )
    plugin = options.get("plugin")
    if device is not None and isinstance(plugin, str | Path):
        options["plugin"] = plugin = load_backend(plugin, device.board)
    shapes = shapes_of_inputs(options.get("inputs") or {})
    with given_shapes(shapes) if shapes else contextlib.nullcontext():
        plan = make_plan(
            Path(model),
            data,
            Settings(task, output, top_k, threshold),
            reference=None if reference is None else Path(reference),
            samples=samples,
            labels=labels,
            raw_type=raw_type,
            custom=None if plugin is None else CustomOperators(plugin),
        )
        if device is None:
            return evaluated(plan, None, told)
        used = device
        compiled = compile(model, used.board, progress=told, **options)

        @contextlib.contextmanager
        def loaded() -> Iterator[DeviceModel]:
            # An open device stays open.
            with contextlib.nullcontext() if used is board else used:
                yield used.load(compiled)

        return evaluated(plan, loaded(), told)
