"""int8 neural networks on microcontrollers: a model and a board in, bit-exact firmware out.

    import utvm_deploy

    with utvm_deploy.connect("mps2_an500") as device:
        model = device.load(utvm_deploy.compile("digits.tflite", board="mps2_an500"))
        y = model(x)

Importing this package is cheap: TVM and the other heavy dependencies load on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from utvm_deploy.base.errors import UtvmError
    from utvm_deploy.boards.board import Board, board_names, load_board
    from utvm_deploy.cmsis_nn import CmsisNn
    from utvm_deploy.compiler.memory_needs import CheckNeeds
    from utvm_deploy.compiler.model import CompiledModel
    from utvm_deploy.device import Device

__version__ = "0.2.0"

__all__ = [
    "Board",
    "UtvmError",
    "board_names",
    "compile",
    "connect",
    "load_board",
]


def __getattr__(name: str) -> object:
    # Loaded on first use: almost nothing is loaded until the command has its handler for Ctrl-C.
    if name in ("Board", "board_names", "load_board"):
        from utvm_deploy.boards import board

        return getattr(board, name)
    if name == "UtvmError":
        from utvm_deploy.base.errors import UtvmError

        return UtvmError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def compile(
    model: str | Path,
    board: Board | str,
    *,
    name: str | None = None,
    dump: Callable[[str, str], None] | None = None,
    kernels: str = "best",
    cmsis_nn: CmsisNn | None = None,
    scratch: str = "arena",
    records: str | Path | None = None,
    optimize: str = "time",
    check_needs: CheckNeeds | None = None,
) -> CompiledModel:
    """Compile a model file (.tflite, .onnx, .pt2) for a board; ``name`` prefixes every C symbol.

    ``dump(stage, text)`` is called with the result of each stage of the pipeline. ``kernels`` is
    "best", "generic" (plain C) or "cmsis-nn": the user's CMSIS-NN (``project.find_cmsis_nn``) where
    it has a function. ``scratch`` says where layers have their scratch: "arena", "stack" (that of
    the caller), or "auto": the faster of the two on the board. ``optimize`` is "time", "size" or
    "balanced". ``records`` is a file that ``utvm tune`` wrote; each layer is compiled with its best
    record. ``check_needs`` is called early with the memory that the model needs.
    ``project.check_fits`` refuses there what does not fit the board. Raises ModelError if the file
    cannot be imported and CompileError if it cannot be compiled.
    """
    from pathlib import Path

    from utvm_deploy.boards.board import Board, load_board
    from utvm_deploy.compiler.pipeline import compile_model
    from utvm_deploy.records import read_records

    target = board if isinstance(board, Board) else load_board(board)
    return compile_model(
        Path(model),
        target,
        name=name,
        dump=dump,
        kernels=kernels,
        cmsis_nn=cmsis_nn,
        scratch=scratch,
        records=None if records is None else read_records(Path(records)),
        level=optimize,
        check_needs=check_needs,
    )


def connect(
    board: Board | str | Path,
    *,
    port: str | None = None,
    probe: str | None = None,
    serial: str | None = None,
    link: str | None = None,
    strict: bool = False,
    timing: str = "cycles",
    server: str | None = None,
) -> Device:
    """A device on ``board``: a name, a board file, a ``Board`` or ``utvm://HOST[:PORT]/BOARD``.

    See ``device.connect``.
    """
    from utvm_deploy.device import connect as connect_device

    return connect_device(
        board,
        port=port,
        probe=probe,
        serial=serial,
        link=link,
        strict=strict,
        timing=timing,
        server=server,
    )
