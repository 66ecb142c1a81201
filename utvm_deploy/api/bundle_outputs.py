"""What a bundle's self-test expects where a model may rightly differ from the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.api.compile_function import compile
from utvm_deploy.base.errors import BundleError, CompileError, MissingTool
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import EXACT
from utvm_deploy.device import INSTRUCTIONS, DeviceModel
from utvm_deploy.graph.float_bounds import Bound
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.oracle.reference import ReferenceRun
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.verifying.bounds import integers_behind
from utvm_deploy.results.verifying.on_board import verify

#: Of every sample, every output.
Outputs = Sequence[Sequence[Array]]

#: A board of this computer. It computes the bytes of every other board, if float math is exact.
_HOST = "host"


@dataclass(frozen=True)
class Making:
    """A bundle on its way: what it is made of, how a model gets onto a board, and notes."""

    model: Path
    board: Board
    compiled: CompiledModel
    graph: Graph
    samples: Samples
    #: The model on a board of this computer, until the block ends; with the timing that is needed.
    loaded: Callable[[Board, CompiledModel, str], AbstractContextManager[DeviceModel]]
    notes: list[str]


def runs_here(made: Making) -> bool:
    """Whether this computer runs the model on the board, with the devices that it needs."""
    if any(one.has_device for one in made.compiled.externals):
        # A double of the driver may be linked.
        is_linked = all(one.is_linked for one in made.compiled.externals)
        return made.board.is_host and is_linked
    return made.board.runs_here


def as_library(made: Making, reference: ReferenceRun) -> tuple[Outputs, str]:
    """What the self-test is to expect of a library that may round otherwise, and who says so."""
    compiled, board = made.compiled, made.board
    name, oracle = " and ".join(one.name for one in compiled.externals), reference.reference
    expected: Outputs = reference.outputs
    found: Outputs | None = None
    if runs_here(made):
        # The bundle may fit a board that is too small for the runtime, which runs the model here.
        with suppress(CompileError), made.loaded(board, compiled, INSTRUCTIONS) as model:
            found = _run(model, made.samples)
    if found is None:
        made.notes.append(f"the self-test expects {oracle}'s bytes; {name} may round otherwise")
        return expected, oracle
    if _equal(found, expected, range(len(compiled.outputs))):
        return expected, oracle
    made.notes.append(
        f"{name} gave other bytes than {oracle}, which utvm verify lists; the self-test expects "
        f"those of {name}"
    )
    built = "; ".join(one.built_with for one in compiled.externals)
    return found, f"{name} ({built}) on {board.name}"


def with_steps(
    made: Making, reference: ReferenceRun, bounds: Mapping[int, Bound]
) -> tuple[Outputs, str]:
    """What the self-test is to expect of integers behind inexact float32, and who says so.

    Rounding turns the least difference of a float32 into a step of an integer, and later layers
    may enlarge it. So no bound of such outputs is both safe and narrow. The self-test expects the
    model's own bytes instead, after each layer was found to be right.
    """
    compiled, board = made.compiled, made.board
    behind = integers_behind(compiled, made.graph, bounds)
    if not behind:
        return reference.outputs, reference.reference
    for target in _targets(board, compiled):
        with suppress(CompileError, MissingTool):
            same = target.name == board.name
            here = compiled if same else compile(made.model, target, name=compiled.name)
            with made.loaded(target, here, INSTRUCTIONS) as model:
                return _checked(made, model, reference, behind)
    made.notes.append(
        f"the self-test expects {reference.reference}'s bytes of integers that float32 is rounded "
        f"to; {board.name} may round otherwise"
    )
    return reference.outputs, reference.reference


def _targets(board: Board, compiled: CompiledModel) -> list[Board]:
    """Boards of this computer that make the bytes of ``board``, the likeliest first."""
    own = [board] if board.runs_here else []
    return [*own, load_board(_HOST)] if compiled.float_math == EXACT else own


def _checked(
    made: Making, model: DeviceModel, reference: ReferenceRun, behind: Sequence[int]
) -> tuple[Outputs, str]:
    """The reference's outputs, and the model's own where those ``behind`` differ from them."""
    model.reset_state()
    found = _run(model, made.samples)
    expected = reference.outputs
    if _equal(found, expected, behind):
        return expected, reference.reference
    if not verify(model, made.model, made.samples, reference=reference).ok:
        raise BundleError(
            f"{made.model} does not compute what {reference.reference} does; see which layer is "
            f"wrong with: utvm verify {made.model} --board {model.compiled.board}"
        )
    mixed = [
        [ours if index in behind else theirs for index, (ours, theirs) in enumerate(pairs)]
        for pairs in (zip(*rows, strict=True) for rows in zip(found, expected, strict=True))
    ]
    names = ", ".join(model.compiled.outputs[index].name for index in behind)
    made.notes.append(
        f"float32 is rounded to other steps than {reference.reference}'s: the self-test expects "
        f"our bytes of {names}; every layer was verified"
    )
    return mixed, f"{reference.reference}, and of {names} utvm on {model.compiled.board}"


def _run(model: DeviceModel, samples: Samples) -> list[tuple[Array, ...]]:
    return [tuple(model.run(inputs)[0]) for inputs in samples.inputs]


def _equal(ours: Outputs, theirs: Outputs, positions: Sequence[int]) -> bool:
    return all(
        one[index].tobytes() == other[index].tobytes()
        for one, other in zip(ours, theirs, strict=True)
        for index in positions
    )
