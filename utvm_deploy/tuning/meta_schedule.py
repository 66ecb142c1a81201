"""For people who tune PrimFuncs with TVM's meta_schedule: measure them on a device.

    tuning = DeviceTuning(device, mod)
    ms.tune_tir(mod, target, ..., builder=tuning.builder, runner=tuning.runner)

The builder makes C and objects. The runner loads a whole round in one module and runs it as one
batch. It compares every output with that of ``mod`` as it was written. Nothing here is used by
``utvm tune``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import tirx
from tvm.ir.utils import derived_object

from utvm_deploy.base.errors import TuneError, UtvmError
from utvm_deploy.compiler.lower_c import lower_to_c
from utvm_deploy.compiler.options import TIME
from utvm_deploy.device import Device
from utvm_deploy.graph.attributes import Reshape
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.project.link_module import compile_module
from utvm_deploy.records import KernelIdentity, Measurement
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.build import Built, flags_for, kernel_text, wrapper_text
from utvm_deploy.tuning.inputs import Job
from utvm_deploy.tuning.measure import Measurer
from utvm_deploy.tuning.place import check_tunable
from utvm_deploy.tuning.workload import Work

# The first use of meta_schedule imports TVM's tensor intrinsics for GPUs and servers, which takes
# 13 seconds of parsing. To use them, import them before this module.
sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))

from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder  # noqa: E402
from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult  # noqa: E402

REFERENCE = Candidate(GENERIC)


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
    """A builder and a runner for ``ms.tune_tir`` that measure ``mod`` on ``device``.

    ``mod`` is tuned: a module with one PrimFunc, or that PrimFunc, whose last buffer is its output.
    Outputs are compared byte for byte. For floating point, where the order of additions counts,
    pass ``is_exact=False``.
    """

    def __init__(self, device: Device, mod: Any, *, is_exact: bool = True) -> None:
        check_tunable(device.board)
        self.device = device
        self.is_exact = is_exact
        func = _only_function(mod)
        self._work = _work_of(func)
        self._measurer = Measurer(device)
        self._built: dict[str, Built] = {}
        self._reference: Built | None = self._compiled(_named(func), func, REFERENCE)
        self.builder = _Builder(self)
        self.runner = _Runner(self)

    # The rest is the builder's and the runner's.

    def build(self, modules: Sequence[Any]) -> list[tuple[str | None, str | None]]:
        """Key or error of each."""
        functions = [_only_function(mod) for mod in modules]
        lowered: list[tuple[str, Any]] = [(_named(func), func) for func in functions]
        found: list[tuple[str | None, str | None]] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            futures = [pool.submit(self._build_one, name, func) for name, func in lowered]
            for (name, _), future in zip(lowered, futures, strict=True):
                error = future.result()
                found.append((None, error) if error else (name, None))
        return found

    def run(self, keys: Sequence[str]) -> list[Measurement]:
        """What each took."""
        jobs = [Job(self._work, self._built[key]) for key in keys]
        first = self._reference
        if first is not None:
            jobs.insert(0, Job(self._work, first))
        measured = self._measurer.measure(jobs, is_compared=self.is_exact)
        if first is not None:
            self._reference = None
            if not measured[0].is_ok:
                raise TuneError(
                    f"{self._work.kernel.name} as it was given does not run on "
                    f"{self.device.board.name}: {measured[0].error} {measured[0].detail}"
                )
            measured = measured[1:]
        return measured

    def _build_one(self, name: str, func: Any) -> str | None:
        """The error, if there is one."""
        try:
            self._built[name] = self._compiled(name, func, Candidate.of("prim_func", name=name))
        except (UtvmError, RuntimeError) as error:
            return str(error).strip().partition("\n")[0]
        return None

    def _compiled(self, name: str, func: Any, candidate: Candidate) -> Built:
        board = self.device.board
        function = lower_to_c(func, name, board.cpu.kernel_core)
        arguments = tuple(TensorArgument(i) for i in range(len(self._work.graph.tensors)))
        call = KernelCall(_PrimFunc(name, func), arguments)
        text = kernel_text([function]) + wrapper_text(call, function, has_stack_scratch=False)
        module = compile_module({"candidate.c": text}, board, name=name, flags=flags_for(TIME))
        return Built(candidate, call, function, module, has_stack_scratch=False)


def _only_function(mod: Any) -> Any:
    if isinstance(mod, tirx.PrimFunc):
        return mod
    functions = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    if len(functions) != 1:
        raise TuneError(f"the module has {len(functions)} PrimFuncs; tune one at a time")
    return functions[0]


def _named(func: Any) -> str:
    digest = hashlib.sha256(str(func.script()).encode()).hexdigest()[:12]
    return f"prim_func_{digest}"


def _work_of(func: Any) -> Work:
    """The PrimFunc as a kernel to tune: each parameter a tensor, the last one its output."""
    tensors = []
    for index, parameter in enumerate(func.params):
        extents = getattr(parameter, "shape", None)
        if not extents or not all(isinstance(extent, tirx.IntImm) for extent in extents):
            raise TuneError(
                f"parameter {parameter.name} of the PrimFunc is not a buffer of a constant shape; "
                f"only such can be given values here"
            )
        shape = tuple(int(extent) for extent in extents)
        tensors.append(Tensor(f"{index} {parameter.name}", shape, str(parameter.dtype)))
    if len(tensors) < 2:
        raise TuneError("the PrimFunc has no input and no output buffer")
    last = len(tensors) - 1
    operator = Operator("PRIM_FUNC", tuple(range(last)), (last,), Reshape(), ())
    graph = Graph("prim_func", tuple(tensors), (operator,), tuple(range(last)), (last,), "")
    kernel = KernelIdentity(_named(func), tensors[0].dtype, operator.kind, ())
    return Work(kernel, graph, operator, (REFERENCE,), 1)


@derived_object
class _Builder(PyBuilder):  # type: ignore[misc]
    def __init__(self, tuning: DeviceTuning) -> None:
        super().__init__()
        self.tuning = tuning

    def build(self, build_inputs: list[Any]) -> list[Any]:
        found = self.tuning.build([one.mod for one in build_inputs])
        # meta_schedule removes the folder of each artifact; ours is empty.
        return [BuilderResult(key and f"{tempfile.mkdtemp()}/{key}", e) for key, e in found]


@derived_object
class _Runner(PyRunner):  # type: ignore[misc]
    def __init__(self, tuning: DeviceTuning) -> None:
        super().__init__()
        self.tuning = tuning

    def run(self, runner_inputs: list[Any]) -> list[Any]:
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
