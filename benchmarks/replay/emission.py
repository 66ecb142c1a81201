"""The C of everything that replay compares, as this process's package emits it.

    python benchmarks/replay/emission.py CORE < selection.json > emitted.json

Two kinds: the kernel of each shipped record, and each model whole, through the compile pipeline.
As a program this serves ``replay_command.py``, which asks an older tree's copy of it for its C: the
selection is a list of names, or null for everything.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import float_layers

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("cmsis_nn", "tune")]

#: The prefix of every model's C symbols, so that they have the same names in all models.
PREFIX = "model"
#: How models are compiled: all for time, those of this repository for size, too, and one of
#: float32 with fused sums.
TIME, SIZE, FAST = "time", "size", "fast"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    TIME: {},
    SIZE: {"objective": "size"},
    FAST: {"float_math": FAST},
}
RECORD, MODEL = "record", "model"
#: Beside a model's kernels: its other C, which says how they are called and where memory lies, and
#: its constants. The constants count, because kernels decide in which order weights lie.
CALLS, WEIGHTS = "calls", "weights"


@dataclass(frozen=True)
class Emitted:
    """The C of one line of the table."""

    name: str
    # The pieces of a C file; many kernels share some of them.
    parts: tuple[str, ...]
    # The function that is compared, with what it reaches; empty: all of the text.
    function: str = ""

    def code(self) -> str:
        """What is compared, in its canonical form."""
        from utvm_deploy.compiler.lowering.code_digest import kernel_code, whole_code

        if self.function:
            return kernel_code(self.parts, self.function)
        if self.name.endswith(f" {WEIGHTS}"):
            return "".join(self.parts)
        return whole_code(self.parts)


def shared_models() -> Path:
    """The folder of models that do not belong to this repository; it may be missing."""
    return Path(os.environ.get("UTVM_SHARED", ROOT.parent / "shared")) / "models"


def model_files() -> list[Path]:
    """The models that records ship for, as far as they are on this computer."""
    folders = (ROOT / "models", shared_models())
    return [path for folder in folders for path in sorted(folder.glob("*.tflite"))]


@cache
def cores() -> tuple[str, ...]:
    """The host, whose kernels are portable, and each emulated board's core with native ones.

    Of the cores of one instruction set that have no records, the first stands for all.
    """
    from utvm_deploy.boards.board import board_names, load_board
    from utvm_deploy.compiler.planning.decision import shipped_records
    from utvm_deploy.kernels.choose.lowering import families_for
    from utvm_deploy.targets.table import CORES

    boards = [load_board(name) for name in board_names()]
    found = {board.cpu.kernel_core for board in boards if board.emulator is not None}
    firsts: dict[object, str] = {}
    for core, facts in CORES.items():
        families = families_for(core)
        if core in found and len(families) > 1:
            alike = core if shipped_records(core) else (facts.architecture, families)
            firsts.setdefault(alike, core)
    return "host", *sorted(firsts.values())


def board_of(core: str) -> Any:
    """A board whose kernels are this core's, one that counts with a cycle model if there is one."""
    from utvm_deploy.boards.board import board_names, load_board

    boards = [load_board(name) for name in board_names()]
    fitting = [board for board in boards if board.cpu.kernel_core == core]
    return max(fitting, key=lambda board: (board.emulator is not None, board.has_cycle_model))


def graphs_of(models: Sequence[Path]) -> list[Any]:
    """The models, with the channels that are dead and without them, and the zoo, simplified."""
    from zoo import zoo

    from utvm_deploy.frontend.tflite import load_model
    from utvm_deploy.graph.passes.dead_channels import drop_dead_channels
    from utvm_deploy.graph.passes.simplify import PASSES, simplify

    whole = tuple(entry for entry in PASSES if entry[1] is not drop_dead_channels)
    loaded = [load_model(path) for path in models]
    # Records ship for the layers of the files, too: other models have them with all channels.
    return [*(simplify(graph, passes) for graph in loaded for passes in (PASSES, whole)), *zoo()]


@cache
def operators_by_key(models: tuple[Path, ...]) -> Mapping[str, Sequence[tuple[Any, Any]]]:
    """Key of each kernel of the models and of the zoo -> graphs with operators that need it."""
    from utvm_deploy.compiler.arena.plan import is_view
    from utvm_deploy.kernels.choose.space import identity_of

    found: dict[str, list[tuple[Any, Any]]] = {}
    for graph in graphs_of(models):
        for operator in graph.operators:
            if not is_view(graph, operator):
                found.setdefault(identity_of(graph, operator).key, []).append((graph, operator))
    return found


def absent(names: Iterable[str]) -> set[str]:
    """Of a table's names those that need a model which is not on this computer."""
    if shared_models().is_dir():
        return set()
    from networks import NETWORKS

    models = {*NETWORKS, float_layers.NAME, *(path.stem for path in model_files())}
    known = {RECORD: operators_by_key(tuple(model_files())), MODEL: models}

    def is_absent(name: str) -> bool:
        kind, what, *_ = name.split(" ")
        return what not in known[kind]

    return set(filter(is_absent, names))


def emit(core: str, selection: Collection[str] | None = None) -> Iterator[Emitted]:
    """Everything, or what is selected."""
    yield from emit_records(core, selection)
    yield from emit_models(core, selection)


def emit_records(core: str, selection: Collection[str] | None = None) -> Iterator[Emitted]:
    """The kernel of each shipped record whose model is on this computer."""
    from utvm_deploy.base.errors import UnsupportedOperator
    from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_parts

    operators = operators_by_key(tuple(model_files()))
    wanted = record_names(core)
    for name in sorted(wanted if selection is None else wanted.keys() & set(selection)):
        key, candidate = wanted[name]
        for needs in operators.get(key, ()):
            # The numbers of a layer decide whether it can have some kernels.
            with suppress(UnsupportedOperator):
                _, function = candidate_function(*needs, core, candidate)
                yield Emitted(name, record_parts(function), function.name)
                break


def record_names(core: str) -> Mapping[str, tuple[str, Any]]:
    """Name of each shipped record -> its kernel's key and its candidate."""
    from utvm_deploy.compiler.planning.decision import shipped_records

    wanted = {(record.kernel.key, record.candidate) for record in shipped_records(core)}
    return {f"{RECORD} {key} {candidate.label}": (key, candidate) for key, candidate in wanted}


def emit_models(core: str, selection: Collection[str] | None = None) -> Iterator[Emitted]:
    """Each model's kernels, its other C and its weights."""
    from utvm_deploy.compiler.options import CompileOptions
    from utvm_deploy.compiler.stages.pipeline import compile_model

    for label, options, graph in _models():
        start = f"{MODEL} {label} {options} "
        if selection is None or any(name.startswith(start) for name in selection):
            given = CompileOptions(name=PREFIX, **OPTIONS[options])
            compiled = compile_model(graph(), board_of(core), given)
            yield from _of_model(start, compiled)


def _models() -> Iterator[tuple[str, str, Any]]:
    from networks import NETWORKS

    from utvm_deploy.frontend.tflite import load_model

    own = ROOT / "models"
    for path in model_files():
        for level in (TIME, SIZE) if path.parent == own else (TIME,):
            yield path.stem, level, partial(load_model, path)

    def loaded(name: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.tflite"
            path.write_bytes(NETWORKS[name]())
            return load_model(path)

    for name in NETWORKS:
        yield name, TIME, partial(loaded, name)
    for options in (TIME, FAST):
        yield float_layers.NAME, options, float_layers.float_layers


def _of_model(start: str, compiled: Any) -> Iterator[Emitted]:
    from utvm_deploy.compiler.c_text import placed
    from utvm_deploy.kernels.contract.c_texts import VECTORS_ON
    from utvm_deploy.kernels.contract.requantization import header

    interface, main, kernels, weights, private = (
        compiled.sources[f"{PREFIX}{end}"]
        for end in (".h", ".c", "_kernels.c", "_weights.c", "_private.h")
    )
    for function in sorted({layer.kernel for layer in compiled.layers}):
        short = function.removeprefix(f"{PREFIX}_")
        yield Emitted(f"{start}{short}", (header(), kernels), function)
    # Every release has another version.
    lines = [line for line in interface.splitlines() if "_GENERATOR " not in line]
    private = private.replace(placed(header()), "").replace(VECTORS_ON, "")
    parts = "\n".join(lines), main, private
    yield Emitted(f"{start}{CALLS}", parts)
    # Megabytes of numbers: their text counts as it is.
    yield Emitted(f"{start}{WEIGHTS}", ("\n".join(weights.split()),))


def main() -> None:
    import utvm_deploy

    where = Path(utvm_deploy.__file__).resolve().parents[1]
    if where != ROOT:
        raise SystemExit(f"imported the package of {where}, not of {ROOT}")
    # What the generators print is not an answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    selection = json.load(sys.stdin)
    numbers: dict[str, int] = {}
    entries = [
        [one.name, [numbers.setdefault(part, len(numbers)) for part in one.parts], one.function]
        for one in emit(sys.argv[1], selection)
    ]
    json.dump({"parts": list(numbers), "entries": entries}, answer)


if __name__ == "__main__":
    main()
