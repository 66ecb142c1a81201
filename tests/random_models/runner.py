"""Runs models on a board and in the oracle, and says what came of each.

A ``Rig`` holds a connected device and an oracle for many models: each is compiled, loaded into RAM
beside the running image, run, compared byte for byte and layer for layer, and unloaded.
"""

from __future__ import annotations

import enum
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from unittest.mock import patch

import numpy as np
from fence import Fence
from fenced import crossings_of, hides_accesses, planned_apart
from guarded import built_with, faults_of, is_possible, plan_of, program_of
from tflite_writer import ModelWriter

from random_models.oracle import Oracle, OracleDies, OracleRefuses
from random_models.recipe import Recipe, write
from utvm_deploy.base.errors import CompileError, ModelError, VerifyError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import EXACT, CompileOptions, Objective
from utvm_deploy.compiler.stages.search import KernelPlan
from utvm_deploy.device import INSTRUCTIONS, Device, connect
from utvm_deploy.frontend.files.given_shapes import with_chosen
from utvm_deploy.frontend.tflite import tflite_bytes
from utvm_deploy.frontend.tflite_tables import read_file
from utvm_deploy.kernels.native.sparse import packing
from utvm_deploy.oracle.reference import ReferenceRun
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.results.verifying.on_board import Verification, verify

#: How each model is tried: random bytes, and only the ends of the range.
SAMPLE_SEED = 5
_ORIGIN = "random bytes, and extreme ones"

Compile = Callable[[Path], CompiledModel]


class Verdict(enum.Enum):
    """What came of a model."""

    EQUAL = "equal"
    WRONG = "wrong bytes"
    FAILED = "failed: a fault, or an error that is not an answer"
    OUT_OF_BOUNDS = "out of bounds: a layer touched what is not its own"
    REFUSED = "refused by us, run by the oracle"
    BOTH_REFUSED = "refused by us and by the oracle"
    ORACLE_REFUSED = "refused by the oracle"
    ORACLE_DIED = "the oracle died or hung"

    @property
    def is_fault(self) -> bool:
        """Whether it is a bug of ours."""
        return self in (Verdict.WRONG, Verdict.FAILED, Verdict.OUT_OF_BOUNDS)


@dataclass(frozen=True)
class Outcome:
    """One model's."""

    name: str
    verdict: Verdict
    detail: str = ""
    output_bytes: int = 0  # compared
    layer_bytes: int = 0
    # The operator whose output is the first that is wrong.
    wrong_kind: str = ""


def samples_for(model: ModelWriter) -> tuple[tuple[np.ndarray, ...], ...]:
    """Two samples for the model's inputs, always the same for the same shapes."""
    rng = np.random.default_rng(SAMPLE_SEED)
    specs = [model.tensors[number] for number in model.inputs]
    shapes = [(spec.shape, spec.dtype) for spec in specs]
    return samples_of_shapes(rng, shapes)


def samples_of_shapes(
    rng: np.random.Generator, shapes: Sequence[tuple[tuple[int, ...], str]]
) -> tuple[tuple[np.ndarray, ...], ...]:
    """One sample of any values, one of extreme ones only."""
    samples = []
    for is_extreme in (False, True):
        sample = []
        for shape, dtype in shapes:
            if dtype == "float32":
                spread = 100.0 if is_extreme else 1.0
                sample.append(rng.normal(0, spread, shape).astype(np.float32))
                continue
            if dtype == "bool":
                sample.append(rng.integers(0, 2, shape).astype(bool))
                continue
            info = np.iinfo(dtype)
            values = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            if is_extreme:
                values = rng.choice(np.array([info.min, info.max, 0], dtype), shape)
            sample.append(values)
        samples.append(tuple(sample))
    return tuple(samples)


class Rig:
    """A device and an oracle; a context manager.

    ``compile_file`` stands in for the compiler, for tests that want a wrong one; ``level`` is
    one of ``compiler.options.LEVELS``; ``flash_rate`` and ``float_math`` are as those options. With
    a ``fence`` every access of every layer must be to memory of that layer's own. ``core``: models
    get the kernels of this core, whose C a process runs if the board is the host. Models in a
    ``number_format`` that computes are compared with NumPy. If it ``is_quick``, models are built
    by -O0, and guard pages are at one side of each buffer.
    """

    def __init__(
        self,
        board: str,
        compile_file: Compile | None = None,
        *,
        fence: bool = False,
        level: str = Objective.TIME,
        core: str = "",
        flash_rate: float | None = None,
        float_math: str = EXACT,
        number_format: str | None = None,
        is_quick: bool = False,
    ) -> None:
        self.board = load_board(board)
        self._compiled_for = self.board
        if core:
            cpu = replace(self.board.cpu, core=core)
            self._compiled_for = replace(self.board, cpu=cpu)
        self._number_format = number_format
        self._is_fenced = fence
        self._fence: Fence | None = None
        if fence and self.board.emulator is None and not is_possible():
            raise ValueError(f"there are no guard pages on {self.board.name} of this system")
        self._is_quick = is_quick
        self._options = CompileOptions(
            objective=Objective(level), flash_rate=flash_rate, float_math=float_math
        )
        self._compile_file = compile_file
        self._resources = ExitStack()

    def __enter__(self) -> Rig:
        with ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="utvm-random-")
            self.folder = Path(stack.enter_context(folder))
            self._oracle = stack.enter_context(Oracle())
            board = self.board
            if self._is_fenced and board.emulator is not None:
                self._fence = stack.enter_context(Fence(board))
                board = self._fence.board
            device = connect(board, timing=INSTRUCTIONS)
            stack.callback(device.close)
            self._device: Device = device
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._resources.close()

    def check(self, recipe: Recipe, name: str = "model") -> Outcome:
        """What comes of a recipe; Unfit if it is none."""
        model = write(recipe)
        path = model.save(self.folder / f"{name}.tflite")
        try:
            if not recipe.is_sparse:
                return self.check_file(path, samples_for(model))
            with patch.object(packing, "LEAST_SAVED", 1):
                return self._check_sparse(path, recipe, samples_for(model))
        finally:
            path.unlink()

    def _check_sparse(
        self, path: Path, recipe: Recipe, samples: Sequence[Sequence[np.ndarray]]
    ) -> Outcome:
        """What comes of a model without zeros: the oracle runs it with them."""
        dense = path.with_suffix(".dense")
        dense.write_bytes(tflite_bytes(path))
        whole = write(replace(recipe, stores_zeros=True)).to_bytes()
        expected, found = (
            {t.name: t.data for t in read_file(d).tensors} for d in (whole, dense.read_bytes())
        )
        for name, data in expected.items():
            if data is not None and not np.array_equal(data, found[name]):
                return Outcome(path.stem, Verdict.WRONG, f"the constant {name} was read wrongly")
        return self.check_file(path, samples, dense)

    def check_file(
        self, path: Path, samples: Sequence[Sequence[np.ndarray]], asked: Path | None = None
    ) -> Outcome:
        """What comes of a model file; ``asked``: what the oracle runs instead."""
        with with_chosen(number_format=self._number_format):
            return self._checked(path, samples, asked or path)

    def _asked(self, path: Path, inputs: Sequence[Sequence[np.ndarray]]) -> ReferenceRun:
        if self._number_format is None:
            return self._oracle.run(path, inputs)
        try:
            return run_oracle(path, inputs)
        except (ModelError, CompileError, VerifyError) as exc:
            raise OracleRefuses(str(exc)) from exc

    def _planned(self, path: Path) -> KernelPlan:
        return plan_of(path, self._compiled_for, self._options)

    def _compile(self, path: Path) -> tuple[CompiledModel, KernelPlan | None]:
        """A model, and the kernels that it was made of, if we know them."""
        if self._compile_file is not None:
            return self._compile_file(path), None
        plan = self._planned(path)
        return program_of(plan), plan

    def _checked(self, path: Path, samples: Sequence[Sequence[np.ndarray]], asked: Path) -> Outcome:
        name = path.stem
        inputs = tuple(tuple(sample) for sample in samples)
        try:
            reference = self._asked(asked, inputs)
        except OracleDies as exc:
            return Outcome(name, Verdict.ORACLE_DIED, str(exc))
        except OracleRefuses as exc:
            verdict, why = Verdict.ORACLE_REFUSED, str(exc)
            try:
                self._compile(path)
            except (ModelError, CompileError):
                verdict = Verdict.BOTH_REFUSED
            except Exception:
                return Outcome(name, Verdict.FAILED, _last_line(traceback.format_exc()))
            return Outcome(name, verdict, why)
        try:
            compiled, plan = self._compile(path)
        except (ModelError, CompileError) as exc:
            return Outcome(name, Verdict.REFUSED, str(exc).removeprefix(f"{path}: "))
        except Exception:
            return Outcome(name, Verdict.FAILED, _last_line(traceback.format_exc()))
        try:
            with built_with("-O0") if self._is_quick else nullcontext():
                loaded = self._device.load(compiled, into="ram")
            try:
                run = Samples(inputs, None, _ORIGIN)
                found = verify(loaded, path, run, reference=reference)
                self._device.sync()
                is_seen = not hides_accesses(compiled)
                crossings = []
                if self._fence and is_seen:
                    crossings = crossings_of(self._fence, loaded, inputs[0])
            finally:
                loaded.unload()
            if self._fence and not is_seen:
                crossings = self._crossings_apart(
                    self._fence, plan or self._planned(path), inputs[0]
                )
            if self._is_fenced and not self._fence:
                crossings = faults_of(
                    self._device,
                    plan or self._planned(path),
                    inputs[0],
                    is_quick=self._is_quick,
                )
        except Exception:
            return Outcome(name, Verdict.FAILED, _last_line(traceback.format_exc()))
        if crossings:
            return Outcome(name, Verdict.OUT_OF_BOUNDS, crossings[0])
        return _outcome(name, found)

    def _crossings_apart(
        self, fence: Fence, plan: KernelPlan, inputs: Sequence[np.ndarray]
    ) -> list[str]:
        """What layers touch that is not their own, were no output on its input."""
        with planned_apart():
            compiled = program_of(plan)
        loaded = self._device.load(compiled, into="ram")
        try:
            return crossings_of(fence, loaded, inputs)
        finally:
            loaded.unload()


def _outcome(name: str, found: Verification) -> Outcome:
    sizes = (found.output_bytes, found.layer_bytes)
    if found.ok:
        return Outcome(name, Verdict.EQUAL, "", *sizes)
    wrong = [check for check in found.layers if check.mismatch]
    if wrong:
        first, mismatch = wrong[0].layer.kind, wrong[0].mismatch
    else:
        first, mismatch = "the model's output", found.mismatches[0]
    assert mismatch is not None
    detail = (
        f"{first} {mismatch.tensor}: {mismatch.wrong_elements} of {mismatch.elements} elements, "
        f"{list(mismatch.element)} is {mismatch.got:g} instead of {mismatch.expected:g} "
        f"(sample {mismatch.sample})"
    )
    return Outcome(name, Verdict.WRONG, detail, *sizes, wrong_kind=first)


def _last_line(said: str) -> str:
    """Where an error comes from, and what it says."""
    lines = said.strip().splitlines()
    places = [line.strip() for line in lines if line.startswith("  File ")]
    return f"{lines[-1]} ({places[-1]})" if places else lines[-1]
