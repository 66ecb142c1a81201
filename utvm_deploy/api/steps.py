"""What several functions have in common: the file of a model, the device, and the compile."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from pathlib import Path
from typing import Any, TypedDict

from utvm_deploy.api.compile_function import compile
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.errors import CompileError, UsageError
from utvm_deploy.base.progress import Progress
from utvm_deploy.base.toml_table import did_you_mean
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.memory_needs import MemoryNeeds
from utvm_deploy.device import Device, connect
from utvm_deploy.frontend.files.given_shapes import given, with_chosen
from utvm_deploy.frontend.training.model import Trainable
from utvm_deploy.frontend.training.stored import TrainedWeights
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.project import check_fits, load_backends
from utvm_deploy.torch.in_memory import is_quantized_model

_log = logging.getLogger(__name__)

#: Raises CompileError for a model that does not fit a board.
CheckFits = Callable[[CompiledModel | MemoryNeeds, Board], None]
#: The name of a model that has none: what `quantize` gave, and no file.
UNNAMED = "model"


class Chosen(TypedDict, total=False):
    """The keywords of what is chosen of a model; ``compile`` says what they mean."""

    inputs: Any
    signature: str | None
    states: Mapping[str, str] | None
    stream: int | Mapping[str, int | bool] | None
    image_input: str | None
    number_format: str | Path | NumberFormat | None
    weights: str | Path | TrainedWeights | None


class Connected(TypedDict, total=False):
    """The keywords of ``connect`` that say where a board is, and what it counts."""

    port: str | None
    probe: str | None
    serial: str | None
    link: str | None
    server: str | None
    timing: str


class ChosenConnected(Chosen, Connected):
    """Both."""


def take(keywords: type, options: dict[str, Any]) -> Any:
    """Those of ``options`` that a class of keywords has; they are removed there."""
    return {name: options.pop(name) for name in keywords.__annotations__ if name in options}


def chosen_of(
    options: dict[str, Any], function: Callable[..., Any] | None = None
) -> AbstractContextManager[None]:
    """Within the block, models are imported with what was chosen; it is removed from ``options``.

    The rest are keywords of ``function``. Raises UsageError for others.
    """
    chosen = take(Chosen, options)
    known = () if function is None else tuple(signature(function).parameters)
    for name in options:
        if name not in known:
            near = did_you_mean(name, [*known, *Chosen.__annotations__])
            raise UsageError(f"there is no keyword {name!r}{near or '; leave it out'}")
    return with_chosen(**chosen)


@contextmanager
def whole_window_if_it_fits() -> Iterator[None]:
    """In the block, models take whole windows; a warning says that one cannot be compiled."""
    try:
        with given(stream=None):
            yield
    except CompileError as error:  # a hop takes less memory
        _log.warning("figures of the whole window are left out: %s", error)


def is_quantized(model: Any) -> bool:
    """Whether it is what ``quantize`` gave."""
    return is_quantized_model(model)


@contextmanager
def model_file(model: Any, name: str | None = None) -> Iterator[Path]:
    """The file of a model; what ``quantize`` made is a temporary file until the block ends.

    Raises UsageError for other objects.
    """
    if isinstance(model, str | Path):
        yield Path(model)
        return
    if isinstance(model, Trainable):
        raise UsageError(
            f"the train step of {model.name} cannot be taken here; compile it, load it on a "
            "device, and call run_timed(inputs), which gives the ticks of each layer"
        )
    if not is_quantized(model):
        raise UsageError(
            f"an object of type {type(model).__name__} is not a model here; give the path of a "
            "model file, or what quantize() gave"
        )
    with tempfile.TemporaryDirectory(prefix="utvm-") as folder:
        path = Path(folder, f"{name or UNNAMED}.tflite")
        model.save(path)
        yield path


@contextmanager
def device_of(board: Board | str | Path | Device, timing: str) -> Iterator[Device]:
    """A device on a board. One that the caller opened stays open, and is checked like the others.

    Raises UtvmError if the board cannot be reached.
    """
    opened = nullcontext(board) if isinstance(board, Device) else connect(board, timing=timing)
    with opened as device:
        device.check_ready()
        yield device


def board_of(board: Board | str | Path | Device) -> Board:
    """The board that is meant."""
    if isinstance(board, Device):
        return board.board
    # Nothing is started; an address of a server's board is understood.
    return board if isinstance(board, Board) else connect(board).board


def with_backend(
    options: dict[str, Any], board: Board
) -> tuple[dict[str, Any], CustomOperators | None]:
    """The options with the plug-ins loaded once, and the custom operators that they bring."""
    backends = load_backends(options.get("plugin"), board)
    if not backends:
        return options, None
    return options | {"plugin": backends}, CustomOperators(*backends)


def compile_fitting(
    model: Path | Trainable,
    board: Board,
    progress: Progress,
    *,
    fits: CheckFits = check_fits,
    **options: Any,
) -> CompiledModel:
    """Compile; refuse a model that does not fit the board as early as possible.

    ``fits`` is for a whole image with the runtime, or for the model alone. Raises CompileError.
    """
    progress(f"compiling {model.name} for {board.name}", 0, 1)
    compiled = compile(
        model, board, check_needs=lambda needs: fits(needs, board), progress=progress, **options
    )
    fits(compiled, board)
    return compiled
