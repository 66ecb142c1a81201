"""For people who tune with TVM's meta_schedule: measure PrimFuncs on a device.

    tuning = DeviceTuning(device, mod)
    ms.tune_tir(tuning.module, target, ..., builder=tuning.builder, runner=tuning.runner)

The builder makes C and objects. The runner loads a whole round, of whichever PrimFuncs, and runs it
as batches. It compares every output with that of the PrimFunc as it was written.
``DeviceTuning.tune`` calls TVM's search with settings for small devices.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.utils import derived_object

from utvm_deploy.base.errors import TuneError, UtvmError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.compiler.lowering.lower_c import lower_to_c
from utvm_deploy.compiler.options import Objective
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.intrinsics.facts import is_available
from utvm_deploy.kernels.portable.schedules.template_free import space_of_c
from utvm_deploy.project.link_module import compile_module
from utvm_deploy.records import Measurement
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.build import Built, flags_for, kernel_text, wrapper_text
from utvm_deploy.tuning.measuring.inputs import Job
from utvm_deploy.tuning.measuring.interrupts import Interrupts
from utvm_deploy.tuning.measuring.measure import Measurer
from utvm_deploy.tuning.measuring.place import check_tunable
from utvm_deploy.tuning.measuring.tolerance import TOLERANCE
from utvm_deploy.tuning.measuring.workload import workload
from utvm_deploy.tuning.searching import prim_funcs
from utvm_deploy.tuning.searching.evolution import GENERATIONS, POPULATION
from utvm_deploy.tuning.searching.speed_model import SpeedModel

# The first use of meta_schedule imports TVM's tensor intrinsics for GPUs and servers, which takes
# 13 seconds of parsing. To use them, import them before this module.
sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))

from tvm.s_tir import meta_schedule as ms  # noqa: E402
from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder  # noqa: E402
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult  # noqa: E402

__all__ = ["DeviceTuning", "SpeedModel", "search_strategy", "space_of_c"]

#: Candidates of a task that are measured in one round.
ROUND = 8


def search_strategy() -> Any:
    """TVM's evolutionary search with generations that take tenths of a second."""
    return ms.search_strategy.EvolutionarySearch(
        population_size=POPULATION,
        init_measured_ratio=0.5,
        init_min_unmeasured=ROUND,
        genetic_num_iters=GENERATIONS,
        genetic_max_fail_count=4,
    )


@dataclass(frozen=True)
class _PrimFunc:
    """A PrimFunc as a kernel; it is scheduled already."""

    name: str
    func: Any

    def prim_func(self) -> Any:
        return self.func

    def schedule(self, sch: Any, core: str) -> str:
        return "as it was given"


class DeviceTuning:
    """A builder and a runner for TVM's meta_schedule that measure on ``device``.

    ``source`` has what is tuned. It may be:

    - a PrimFunc, whose last buffer is its output;
    - a module of PrimFuncs. If its Relax functions call them, the constants of the calls are put
      where models have them: in flash;
    - a graph, such as ``utvm_deploy.from_relax(module)`` gives. Each kernel in plain C with a loop
      nest is tuned.

    Outputs of integers are compared byte by byte. Those of floating point may differ by
    ``tolerance``, a share of the largest magnitude in the tensor. If it is 0, all bytes count.
    """

    def __init__(self, device: Device, source: Any, *, tolerance: float = TOLERANCE) -> None:
        check_tunable(device.board)
        self.device = device
        self.tolerance = tolerance
        is_graph = isinstance(source, Graph)
        self.tasks: tuple[prim_funcs.Task, ...] = (
            prim_funcs.tasks_of_works(workload([source], device.board.cpu.kernel_core))
            if is_graph
            else prim_funcs.tasks_of_module(source)
        )
        #: The PrimFuncs with their tasks' names: what to give to ``tune_tir`` or ``tune_relax``.
        self.module = prim_funcs.marked_module(None if is_graph else source, self.tasks)
        self._named = {task.name: task for task in self.tasks}
        self._measurer = Measurer(device)
        self._built: dict[str, Built] = {}
        self._task_of_key: dict[str, prim_funcs.Task] = {}
        self._references: dict[str, Built] = {}
        self._failure: BaseException | None = None
        self._interrupts: Interrupts | None = None  # while ``tune`` runs
        self._folder = TemporaryFolder("utvm-tuning")
        self.builder = _Builder(self)
        self.runner = _Runner(self)

    def tune(self, work_dir: str | Path, trials: int, *, space: Any = None, seed: int = 0) -> Any:
        """Tune all tasks by TVM's evolutionary search; returns TVM's database.

        ``work_dir`` gets TVM's logs and the database. ``space`` is a space generator of TVM's, by
        default ``space_of_c()``. Each round goes to the task that promises most.
        """
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        _register_named(Path(work_dir) / "database_tuning_record.json")
        contexts = [
            ms.TuneContext(
                mod=tvm.IRModule({"main": task.func.with_attr("global_symbol", "main")}),
                target=tvm.target.Target("c"),
                space_generator=space or space_of_c(),
                search_strategy=search_strategy(),
                task_name=task.name,
                num_threads=1,
                rand_state=seed + 1 + number,
            )
            for number, task in enumerate(self.tasks)
        ]
        self._failure = None
        try:
            with Interrupts(lambda: None) as self._interrupts:
                return ms.tune.tune_tasks(
                    tasks=contexts,
                    task_weights=[float(task.times) for task in self.tasks],
                    work_dir=str(work_dir),
                    max_trials_global=trials,
                    num_trials_per_iter=ROUND,
                    builder=self.builder,
                    runner=self.runner,
                    cost_model=SpeedModel(seed),
                )
        except BaseException:
            # TVM makes a RuntimeError of most exceptions in the builder and the runner.
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self._interrupts = None
            for left in self._folder.path.iterdir():
                shutil.rmtree(left)

    # The rest is the builder's and the runner's.

    def artifact(self, key: str) -> str:
        """A path that ends in the key; meta_schedule removes its folder, which is empty."""
        return f"{tempfile.mkdtemp(dir=self._folder.path)}/{key}"

    @contextmanager
    def keeping_failure(self) -> Iterator[None]:
        """Keep what is raised, for ``tune``, which is interrupted here and nowhere else."""
        try:
            self._check_interrupts()
            yield
            self._check_interrupts()
        except BaseException as error:  # Ctrl-C, too
            self._failure = error
            raise

    def _check_interrupts(self) -> None:
        if self._interrupts is not None:
            self._interrupts.check()

    def build(self, modules: Sequence[Any]) -> list[tuple[str | None, str | None]]:
        """Key or error of each."""
        found: list[tuple[str | None, str | None]] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            # TVM lowers in this thread, and the C compilers run in others.
            started = [self._start(_only_function(mod), pool) for mod in modules]
            for name, future in started:
                error = self._finish(name, future)
                found.append((None, error) if error else (name, None))
        return found

    def run(self, keys: Sequence[str]) -> list[Measurement]:
        """What each took."""
        pairs = [(self._task_of_key[key], self._built[key]) for key in keys]
        tasks = dict.fromkeys(task for task, _ in pairs)
        new = [task for task in tasks if task.name not in self._references]
        for task in new:
            name = prim_funcs.name_of(task.func)
            self._references[task.name] = self._compiling(
                name, task.func, task, prim_funcs.REFERENCE
            )()
        jobs = [Job(task.work, self._references[task.name]) for task in new]
        jobs += [Job(task.work, built) for task, built in pairs]
        self._measurer.store_tables(jobs)
        measured = self._measurer.measure(jobs, tolerance=self.tolerance)
        for task, one in zip(new, measured, strict=False):
            if not one.is_ok:
                raise TuneError(
                    f"PrimFunc {task.name} as it was given does not run on "
                    f"{self.device.board.name}: {one.error} {one.detail}"
                )
        return measured[len(new) :]

    def _task_of(self, func: Any) -> prim_funcs.Task:
        """The task that a scheduled PrimFunc is a candidate of."""
        attributes: Mapping[str, Any] = func.attrs or {}
        if prim_funcs.TASK in attributes:
            name = str(attributes[prim_funcs.TASK])
            if name not in self._named:
                raise TuneError(
                    f"PrimFunc {name} is of another module; give its module to DeviceTuning"
                )
            return self._named[name]
        signature = prim_funcs.signature_of(func)
        alike = [task for task in self.tasks if task.signature == signature]
        if len(alike) == 1:
            return alike[0]
        raise TuneError(
            f"{len(alike)} PrimFuncs take these parameters: {', '.join(signature)}; tune the "
            f"``module`` of DeviceTuning, whose PrimFuncs have names"
        )

    def _start(self, func: Any, pool: ThreadPoolExecutor) -> tuple[str, Future[Built]]:
        """Compile a candidate; the future may hold its error."""
        name = prim_funcs.name_of(func)
        task = self._task_of(func)
        self._task_of_key[name] = task
        try:
            compiling = self._compiling(name, func, task, Candidate.of("prim_func", name=name))
        except (UtvmError, RuntimeError) as error:
            failed: Future[Built] = Future()
            failed.set_exception(error)
            return name, failed
        return name, pool.submit(compiling)

    def _finish(self, name: str, future: Future[Built]) -> str | None:
        """Keep what was compiled; the error, if there is one."""
        try:
            self._built[name] = future.result()
        except (UtvmError, RuntimeError) as error:
            return str(error).strip().partition("\n")[0]
        return None

    def _compiling(
        self, name: str, func: Any, task: prim_funcs.Task, candidate: Candidate
    ) -> Callable[[], Built]:
        """What runs the C compiler, after TVM has made the C."""
        board = self.device.board
        function = lower_to_c(func, name, board.cpu.kernel_core, outputs=task.outputs)
        call = KernelCall(_PrimFunc(name, func), task.arguments)
        text = kernel_text([function]) + wrapper_text(call, function, has_stack_scratch=False)

        def compiled() -> Built:
            module = compile_module(
                {"candidate.c": text}, board, name=name, flags=flags_for(Objective.TIME)
            )
            return Built(candidate, call, function, module, has_stack_scratch=False)

        return compiled


def _only_function(mod: Any) -> Any:
    """The PrimFunc of a scheduled module."""
    if isinstance(mod, tirx.PrimFunc):
        return mod
    functions = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    if len(functions) != 1:
        raise TuneError(f"a candidate has {len(functions)} PrimFuncs; it must have one")
    return functions[0]


@derived_object
class _Builder(PyBuilder):  # type: ignore[misc]
    def __init__(self, tuning: DeviceTuning) -> None:
        super().__init__()
        self.tuning = tuning

    def build(self, build_inputs: list[Any]) -> list[Any]:
        with self.tuning.keeping_failure():
            found = self.tuning.build([one.mod for one in build_inputs])
        return [BuilderResult(key and self.tuning.artifact(key), error) for key, error in found]


@derived_object
class _Runner(PyRunner):  # type: ignore[misc]
    def __init__(self, tuning: DeviceTuning) -> None:
        super().__init__()
        self.tuning = tuning

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        with self.tuning.keeping_failure():
            measured = self.tuning.run([Path(one.artifact_path).name for one in runner_inputs])
        per_second = self.tuning.device.hello.ticks_per_second
        return [_Done(one, per_second) for one in measured]


@derived_object
class _Done(PyRunnerFuture):  # type: ignore[misc]
    def __init__(self, measurement: Measurement, per_second: int) -> None:
        super().__init__()
        self.measurement = measurement
        self.per_second = per_second

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        one = self.measurement
        if not one.is_ok:
            return RunnerResult(None, f"{one.error}: {one.detail}")
        return RunnerResult([one.ticks_min / self.per_second], None)


def _register_named(records: Path) -> None:
    """Register our tensor intrinsics that a database names: TVM cannot load it without them."""
    if records.is_file():
        text = records.read_text(encoding="utf-8", errors="replace")
        for name in dict.fromkeys(re.findall(r'"(utvm_\w+)"', text)):
            is_available(name)
