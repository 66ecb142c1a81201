"""What TVM's own search found for a model's kernels, as records that ``compile`` follows.

TVM's database has the fastest schedules alone. They are measured again here as ``utvm tune``
measures: next to what is compiled without them, and in the whole model. So the records never make a
model slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import tirx

from utvm_deploy.base.errors import TuneError
from utvm_deploy.base.progress import Progress, no_progress
from utvm_deploy.compiler.options import Objective
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import LibraryKernel, OwnKernel
from utvm_deploy.kernels.portable.schedules.given_trace import candidate_with
from utvm_deploy.kernels.portable.schedules.template_free import candidate_of, loops_of
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.model_runs import ModelRun, first_candidates, run_model
from utvm_deploy.tuning.measuring.place import Place
from utvm_deploy.tuning.measuring.places import Trial, recorded
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile

#: How many of each kernel's fastest schedules are measured again.
MOST = 4
# Of a schedule that failed, TVM writes 1e10 seconds.
_FAILED_S = 1e9


@dataclass(frozen=True)
class Found:
    """The candidates of a kernel that a database has, the fastest first."""

    work: Work
    candidates: tuple[Candidate, ...]


def save_records(
    database: Any,
    graph: Graph,
    device: Device,
    path: str | Path,
    *,
    most: int = MOST,
    progress: Progress = no_progress,
) -> ModelRun:
    """Add records of the best schedules in TVM's ``database`` to the file ``path``.

    Each is measured on ``device``, alone and in the whole model. Returns what the model takes
    without the records and with them.
    """
    found = found_in(database, graph, device.board.cpu.kernel_core, most)
    if not found:
        raise TuneError(
            f"TVM's database has no schedule of a kernel of {graph.name}; tune the tasks of "
            f"DeviceTuning(device, graph)"
        )
    works = [one.work for one in found]
    first = first_candidates(works, device.board, Objective.TIME, ())
    trials = [
        Trial(one.work, candidate)
        for one in found
        for candidate in dict.fromkeys(
            (one.work.default, first[one.work.kernel.key], *one.candidates)
        )
    ]
    with RecordsFile(Path(path)) as file:
        with Place(device, jobs=1) as place:
            progress("measuring schedules again", 0, len(trials))
            outcomes = place.start(trials, list, lambda: None).result()
            setting = place.setting
        file.extend(
            recorded(trial, outcome, setting, device.board.name)
            for trial, outcome in zip(trials, outcomes, strict=True)
            if outcome is not None
        )
        return run_model(graph, device, file, setting, level=Objective.TIME)


def found_in(database: Any, graph: Graph, core: str, most: int = MOST) -> tuple[Found, ...]:
    """The kernels of ``graph`` that the database has schedules for."""
    known = [(float(min(one.run_secs)), one) for one in _right(database)]
    known.sort(key=lambda pair: pair[0])
    found = []
    for work in workload([graph], core):
        kernel = lower(work.graph, work.operator).kernel
        loops = None if isinstance(kernel, LibraryKernel) else loops_of(kernel)
        if loops is None or isinstance(kernel, LibraryKernel):
            continue
        func = _bare(loops)
        traces = (one.trace for _, one in known if _is_equal(_bare(one.workload.mod["main"]), func))
        candidates = tuple(dict.fromkeys(_candidate(kernel, trace) for trace in traces))[:most]
        if candidates:
            found.append(Found(work, candidates))
    return tuple(found)


def _right(database: Any) -> Iterator[Any]:
    """The records of a database that have a time."""
    for one in database.get_all_tuning_records():
        seconds = [float(value) for value in one.run_secs or ()]
        if seconds and min(seconds) < _FAILED_S:
            yield one


def _candidate(kernel: OwnKernel, trace: Any) -> Candidate:
    """A short candidate if the schedule is of our space; else the whole trace."""
    return candidate_of(kernel, trace) or candidate_with(trace)


def _bare(func: Any) -> Any:
    """A PrimFunc without its attributes, which say nothing of what it computes."""
    return tirx.PrimFunc(func.params, func.body, func.ret_type)


def _is_equal(one: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one, other, map_free_vars=True))
