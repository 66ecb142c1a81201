"""``utvm_deploy.compile`` and ``from_relax``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.base.errors import CompileError, UsageError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.budgets import Budget, check_size
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.memory_needs import CheckNeeds
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.compiler.stages.request import Watch
from utvm_deploy.frontend.files.given_shapes import chosen_now, shapes_for, with_chosen
from utvm_deploy.frontend.number_format import in_format
from utvm_deploy.frontend.relax.facts import loaded
from utvm_deploy.frontend.relax.road import relax_graph, relax_model
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.frontend.training.model import Trainable
from utvm_deploy.frontend.training.stored import TrainedWeights
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.number_formats import NumberFormat
from utvm_deploy.project import Plugins, load_backends
from utvm_deploy.project.model_code import model_code
from utvm_deploy.records import read_records
from utvm_deploy.torch import in_memory


def within_flash(
    budget: int, level: str, board: Board, compiled_for: Callable[[str], CompiledModel]
) -> CompiledModel:
    """The model at its level, or else at the fastest one that fits; ``budget`` is in bytes.

    Raises CompileError with the least bytes that are possible, and MissingTool without a compiler.
    """
    check_size("the flash budget", budget)
    taken = {}
    order = (Objective.TIME, Objective.BALANCED, Objective.SIZE)
    rest = order[order.index(level) + 1 :] if level in order else (Objective.SIZE,)
    for one in (level, *rest):
        compiled = compiled_for(one)
        code = model_code(compiled, board)
        taken[one] = compiled.weights_bytes + code.code_bytes + code.table_bytes
        if taken[one] <= budget:
            told = f"the flash budget takes level {one}" if one != level else ""
            return replace(compiled, hint="; ".join(filter(None, (told, compiled.hint))))
    least = min(taken, key=lambda one: taken[one])
    raise CompileError(
        f"the flash budget is {budget:,} bytes, and the least that is possible is "
        f"{taken[least]:,} (--optimize {least}, without the runtime); give a budget of at least "
        "that"
    )


def compile(
    model: str | Path | Any,
    board: Board | str,
    *,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    signature: str | None = None,
    states: Mapping[str, str] | None = None,
    stream: int | Mapping[str, int | bool] | None = None,
    image_input: str | None = None,
    number_format: str | Path | NumberFormat | None = None,
    weights: str | Path | TrainedWeights | None = None,
    name: str | None = None,
    dump: Callable[[str, str], None] | None = None,
    kernels: str = "best",
    cmsis_nn: CmsisNn | None = None,
    plugin: Plugins = None,
    scratch: str = "auto",
    records: str | Path | None = None,
    optimize: str = "time",
    float_math: str = "exact",
    ram_budget: int | None = None,
    flash_budget: int | None = None,
    cycle_budget: int | None = None,
    flash_rate: float | None = None,
    check_needs: CheckNeeds | None = None,
    allow_float: bool = True,
    input_rows: bool = False,
    pools: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model to C for a board; the result knows its layers, its arena and its sources.

    - ``model`` is a file (.tflite, .onnx, .pt2, .relax), a Relax module (``tvm.IRModule``) with a
      function ``main``, a PyTorch module, or what ``torch.export.export``, ``quantize`` or
      ``trainable`` made.
    - ``board`` is a name, a board file's path, or what ``load_board`` gave.
    - ``inputs`` maps names of inputs to shapes or to example arrays, for models whose shapes are
      symbolic; a symbolic batch that is not given is 1. It may also be the shape of the only input,
      or, for a PyTorch module, a tuple of example tensors.
    - ``signature`` is the name of one of the signatures of a .tflite file that has several.
    - ``states`` maps names of inputs to names of outputs: the model keeps the output, and reads it
      as the input in the next run. Zeros come first. It is for quantized files and .tflite files.
    - ``stream`` is a hop, such as 2, or ``{"hop": 2, "axis": 1}``: a run takes that many columns
      along the time axis of the input, and keeps what it needs of earlier ones. With
      ``"end_input": True``, a second input says how many of them are behind a recording's end.
    - ``image_input`` says what image the caller gives, in the words of ``--input``, such as
      "uint8" or "rgb565 160x120 crop" (``utvm docs images``). It is for the same files.
    - ``number_format`` is the format that float32 weights are kept in: "bfloat16", "float16",
      "float16_arithmetic" (activations, too), or what ``number_formats.register`` gave. It may also
      be a Python file that registers one, whose code runs with your rights.
    - ``weights`` is a file that ``train`` wrote: the model has what it learned. It is float32 from
      the first layer on that trained.
    - ``name`` is the prefix of every C symbol; by default it follows from the file's name.
    - ``optimize`` is "time", "size", "balanced" or "ram": the smallest arena, at most 20 % slower.
    - ``ram_budget`` (bytes) asks for the fastest plan whose arena fits. ``flash_budget`` (bytes)
      asks for the fastest level whose code and weights fit. ``cycle_budget`` asks for the smallest
      arena within that many cycles, by the records.
    - ``flash_rate`` is the cycles of a run that each byte of flash has to save: a larger number
      means less flash and a slower model. The default is 4; levels "balanced" and "size" have
      their own rules.
    - ``records`` is a file that ``tune`` wrote; each layer is compiled with its best record.
    - ``kernels`` is "best", "generic" (plain C) or "cmsis-nn": where ``cmsis_nn``, which
      ``project.find_cmsis_nn`` gave, has a function.
    - ``plugin`` is a Python file with a backend of yours, the name of an installed one, or what
      ``project.load_backend`` gave. It may be a list of them. Their code runs with your rights.
    - ``scratch`` says where layers have their scratch: "arena", "stack" (that of the caller), or
      "auto". This is a separate buffer in tightly coupled RAM if the board has that, else the
      arena.
    - ``pools`` maps names of memory regions of the board to bytes that the model may use there
      (``{"dtcm": 49152}``).
    - ``float_math`` is "exact" or "fast": then a product and a sum of float32 may be rounded at
      once. Without ``allow_float``, a model that computes in float32 is refused.
    - With ``input_rows``, the model takes its input row by row (``NAME_push_rows``), and the arena
      never has the whole input.
    - ``dump(stage, text)`` is called with the result of each stage of the pipeline.
      ``check_needs`` is called early with the memory that the model needs;
      ``project.check_fits`` refuses there what does not fit the board. ``progress(what, done,
      total)`` is called for each plan where several are weighed: with budgets, and at level "ram".

    Raises ModelError if the model cannot be imported, BoardError for an unknown board, and
    CompileError if the model cannot be compiled, or not within a budget.
    """
    is_file = isinstance(model, str | Path)
    if not is_file:
        if not isinstance(model, Trainable):
            in_memory.check_object(model)
        of_files: dict[str, Any] = {"states": states or None, "stream": stream}
        of_files |= {"image_input": image_input, "weights": weights}
        for what, given_now in of_files.items():
            if given_now is not None:
                raise UsageError(f"{what} is for files; save the model, and compile its file")
        chosen = with_chosen(number_format=number_format)
    else:  # the command line gives this around the call
        own = image_input, number_format, weights
        chosen = with_chosen(inputs, signature, states, stream, *own)
    given = Path(model) if isinstance(model, str | Path) else None
    target = board if isinstance(board, Board) else load_board(board)
    backends = load_backends(plugin, target)

    def compiled_for(level: str) -> CompiledModel:
        return compile_model(
            source,
            target,
            CompileOptions(
                name=name,
                kernels=kernels,
                cmsis_nn=cmsis_nn,
                backends=backends,
                scratch=scratch,
                records=None if records is None else read_records(Path(records)),
                objective=Objective.of(level),
                float_math=float_math,
                allow_float=allow_float,
                budget=Budget(ram_budget, cycle_budget),
                flash_rate=flash_rate,
                input_rows=input_rows,
                pools=pools or {},
            ),
            Watch(dump=dump, check_needs=check_needs, progress=progress or no_progress),
        )

    with chosen:
        source = _graph(model, inputs, name or "model") if given is None else given
        if flash_budget is None:
            return compiled_for(optimize)
        return within_flash(flash_budget, optimize, target, compiled_for)


def from_relax(
    module: Any, *, inputs: Mapping[str, Any] | None = None, name: str = "model"
) -> Graph:
    """The graph that ``compile`` makes of a Relax module, for a look at it.

    ``module`` is a ``tvm.IRModule`` with a function ``main``. ``inputs`` maps names of inputs to
    shapes or to example arrays, for a module whose shapes are symbolic. ``name`` is the graph's.
    Raises ModelError if ``main`` is missing or shapes are not known, and UnsupportedOperator for
    what has no kernel.
    """
    return _graph(module, inputs, name)


def _graph(module: Any, inputs: Any, name: str) -> Graph:
    own = chosen_now().number_format
    if isinstance(module, Trainable) and own is None:
        return module.graph
    is_other = in_memory.is_quantized_model(module) or in_memory.is_module(module)
    is_other |= isinstance(module, Trainable)
    if own is not None and (is_other or in_memory.is_program(module)):
        raise UsageError("number_format is for files and Relax modules; save the model to a file")
    if in_memory.is_quantized_model(module):
        return load_bytes(module.data, name)
    if in_memory.is_module(module) or in_memory.is_program(module):
        return in_memory.graph_of_torch(module, inputs, name)
    with with_chosen(inputs):
        model = relax_model(module, shapes_for)
    for note in model.notes:
        logging.getLogger(__name__).warning("%s: %s", name, note)
    if own is not None:
        model = loaded(in_format(model.dumped(), own, Path(name)))
    return relax_graph(model, name).replaced(number_format=own)
