"""Neural networks on microcontrollers: a model and a board in, bit-exact firmware out.

    import utvm_deploy

    with utvm_deploy.connect("mps2_an500") as device:
        model = device.load(utvm_deploy.compile("digits.tflite", board="mps2_an500"))
        y = model(x)

Importing this package is cheap: TVM and the other heavy dependencies load on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from utvm_deploy.backends.interface import Backend
    from utvm_deploy.base.errors import UtvmError
    from utvm_deploy.base.progress import Progress
    from utvm_deploy.boards.board import Board, board_names, load_board
    from utvm_deploy.cmsis_nn import CmsisNn
    from utvm_deploy.compiler.memory_needs import CheckNeeds
    from utvm_deploy.compiler.model import CompiledModel
    from utvm_deploy.device import Device, DeviceModel
    from utvm_deploy.evaluating.evaluation import Data
    from utvm_deploy.evaluating.facts import Evaluation
    from utvm_deploy.graph.model import Graph
    from utvm_deploy.precision.steps import MixedModel
    from utvm_deploy.quantizing.facts import QuantizedModel
    from utvm_deploy.quantizing.torch_module import QuantizedModule

__version__ = "0.2.0"

__all__ = [
    "Board",
    "UtvmError",
    "board_names",
    "compile",
    "connect",
    "evaluate",
    "from_relax",
    "load_board",
    "quantize",
]


def __getattr__(name: str) -> object:
    # Loaded on first use: almost nothing is loaded until the command has its handler for Ctrl-C.
    if name in ("Board", "board_names", "load_board"):
        from utvm_deploy.boards import board

        return getattr(board, name)
    if name == "UtvmError":
        from utvm_deploy.base.errors import UtvmError

        return UtvmError
    if name in ("intrinsics", "models"):
        from importlib import import_module

        return import_module(f"utvm_deploy.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def compile(
    model: str | Path | Any,
    board: Board | str,
    *,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    name: str | None = None,
    dump: Callable[[str, str], None] | None = None,
    kernels: str = "best",
    cmsis_nn: CmsisNn | None = None,
    plugin: str | Path | Backend | None = None,
    scratch: str = "arena",
    records: str | Path | None = None,
    optimize: str = "time",
    float_math: str = "exact",
    ram_budget: int | None = None,
    cycle_budget: int | None = None,
    check_needs: CheckNeeds | None = None,
    allow_float: bool = True,
    input_rows: bool = False,
    pools: Mapping[str, int] | None = None,
) -> CompiledModel:
    """Compile a model for a board; ``name`` prefixes every C symbol.

    ``model`` is a file (.tflite, .onnx, .pt2, .relax), a Relax module (``tvm.IRModule``) with a
    function ``main``, a PyTorch module, or what ``torch.export.export`` or ``quantize`` made.
    ``inputs`` maps names of inputs to shapes or to example arrays, for models whose shapes are
    symbolic; a symbolic batch that is not given is 1. For a PyTorch module it may also be a tuple
    of example tensors.

    ``dump(stage, text)`` is called with the result of each stage of the pipeline. ``kernels`` is
    "best", "generic" (plain C) or "cmsis-nn": the user's CMSIS-NN (``project.find_cmsis_nn``) where
    it has a function. ``plugin`` is a Python file with a backend of yours, the name of an installed
    one, or what ``project.load_backend`` gave; its code runs with your rights. ``scratch`` says
    where layers have their scratch: "arena", "stack" (that of the caller), or "auto": the faster of
    the two on the board. ``optimize`` is "time", "size", "balanced" or "ram": the
    smallest arena, at most 20 % slower. ``ram_budget`` (bytes) asks for the fastest plan whose
    arena fits, and ``cycle_budget`` for the smallest arena within that many cycles, by the records.
    ``float_math`` is "exact" or "fast": then a product and a sum of float32 may be rounded at once.
    ``records`` is a file that ``utvm tune`` wrote; each layer is compiled with its best record.
    ``check_needs`` is called early with the memory that the model needs.
    ``project.check_fits`` refuses there what does not fit the board. Without ``allow_float``, a
    model that computes in float32 is refused. With ``input_rows``, the model takes its input row by
    row (``NAME_push_rows``), and the arena never has the whole input. ``pools`` maps names of
    memory regions of the board to bytes: copies of weights go there (``{"dtcm": 49152}``). Raises
    ModelError if the file cannot be imported and CompileError if it cannot be compiled.
    """
    import contextlib
    from pathlib import Path

    from utvm_deploy.boards.board import Board, load_board
    from utvm_deploy.compiler.budgets import Budget
    from utvm_deploy.compiler.pipeline import compile_model
    from utvm_deploy.frontend.given_shapes import given_shapes, shapes_of_inputs
    from utvm_deploy.precision.steps import MixedModel
    from utvm_deploy.project import load_backend
    from utvm_deploy.records import read_records
    from utvm_deploy.torch.in_memory import check_object

    is_file = isinstance(model, str | Path)
    if isinstance(model, MixedModel):
        model = model.quantized
    if not is_file:
        check_object(model)
    shapes = shapes_of_inputs(inputs or {}) if is_file else {}
    given = Path(model) if isinstance(model, str | Path) else None
    source = _graph(model, inputs, name or "model") if given is None else given
    target = board if isinstance(board, Board) else load_board(board)
    backend = load_backend(plugin, target) if isinstance(plugin, str | Path) else plugin
    # The command line gives shapes around this call.
    with given_shapes(shapes) if inputs and is_file else contextlib.nullcontext():
        return compile_model(
            source,
            target,
            name=name,
            dump=dump,
            kernels=kernels,
            cmsis_nn=cmsis_nn,
            backend=backend,
            scratch=scratch,
            records=None if records is None else read_records(Path(records)),
            level=optimize,
            float_math=float_math,
            check_needs=check_needs,
            allow_float=allow_float,
            budget=Budget(ram_budget, cycle_budget),
            input_rows=input_rows,
            pools=pools or {},
        )


def from_relax(
    module: Any, *, inputs: Mapping[str, Any] | None = None, name: str = "model"
) -> Graph:
    """The graph that ``compile`` makes of a Relax module (``tvm.IRModule``), for a look at it.

    ``inputs`` is as for ``compile``. ``name`` is the graph's. Raises ModelError if ``main`` is
    missing or shapes are not known, and UnsupportedOperator for what has no kernel.
    """
    return _graph(module, inputs, name)


def _graph(module: Any, inputs: Any, name: str) -> Graph:
    import logging

    from utvm_deploy.frontend.given_shapes import shapes_of_inputs
    from utvm_deploy.relax.road import relax_graph, relax_model
    from utvm_deploy.torch.in_memory import (
        graph_of_quantized,
        graph_of_torch,
        is_module,
        is_program,
        is_quantized_model,
    )

    if is_quantized_model(module):
        return graph_of_quantized(module, name)
    if is_module(module) or is_program(module):
        return graph_of_torch(module, inputs, name)
    model = relax_model(module, shapes_of_inputs(inputs or {}))
    for note in model.notes:
        logging.getLogger(__name__).warning("%s: %s", name, note)
    return relax_graph(model, name)


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
    """Quantize a float model file, or a PyTorch module; ``save`` of the result writes the .tflite.

    ``data`` are typical inputs: the path of a dataset, a dataset, an array whose first axis counts
    the samples, or a mapping of the names of inputs to arrays. ``scheme`` is "int8", or "int16x8"
    for int16 activations and int8 weights. ``float_ends`` leaves the model's inputs and outputs
    float. ``input_range`` is the smallest and the largest value that float inputs can have; by
    default the samples say it. ``clipping`` says how ranges follow from the samples: "min-max",
    "percentile", "mse" or "auto". Raises ModelError and DataError.

    The scheme "mixed" gives each layer one of both schemes. It loses at most
    ``max_loss`` (0.5): percentage points of accuracy if the data have labels, else dB of SQNR below
    the int16x8 model. On ``board`` it takes at most ``ram_budget`` and ``flash_budget`` (bytes) and
    ``cycle_budget``. Raises UtvmError if even the int8 model takes more.

    For a PyTorch module, ``data`` may also be a tensor, a list of inputs or a ``DataLoader``, and
    ``example_inputs`` may say the shapes. Its inputs and outputs stay float. "mixed" takes integers
    that follow the inputs, as those of a ``DataLoader``, as labels.
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


def evaluate(
    model: str | Path,
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
    """Accuracy, or what fits the data: by the reference kernels, on ``board`` and as float.

    ``data`` are labelled samples: a path as for ``utvm eval``, a mapping of arrays as in an .npz
    file, or a ``datasets.Dataset``. ``board`` may be a device; without a board nothing is compiled.
    ``reference`` is the float model to compare with. ``samples`` is how many are run, at equal
    distances. ``labels`` is an .npy file with the labels or targets, and ``raw_type`` what .bin
    files hold.

    ``task`` is "classification", "anomaly" or "regression", by default what the data and the shape
    of the output number ``output`` say. ``top_k`` and ``threshold`` are for classification: how
    many of the best classes count, and which single score is class 1. ``options`` are those of
    ``compile``; without a board, ``inputs`` alone has a meaning. Raises DataError for data that do
    not fit the model, and UsageError for arguments that are not of these kinds.
    """
    import contextlib
    from pathlib import Path

    from utvm_deploy.backends.custom import CustomOperators
    from utvm_deploy.base.errors import UsageError
    from utvm_deploy.base.progress import no_progress
    from utvm_deploy.device import INSTRUCTIONS, Device
    from utvm_deploy.evaluating.evaluation import checked_data, evaluated, make_plan
    from utvm_deploy.evaluating.facts import Settings
    from utvm_deploy.frontend.given_shapes import given_shapes, shapes_of_inputs
    from utvm_deploy.project import load_backend

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
        compiled = compile(model, used.board, **options)

        @contextlib.contextmanager
        def loaded() -> Iterator[DeviceModel]:
            # An open device stays open.
            with contextlib.nullcontext() if used is board else used:
                yield used.load(compiled)

        return evaluated(plan, loaded(), told)
