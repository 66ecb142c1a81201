"""Measures a backend's regions in their model: each as one call, and its operators apart.

We have no kernel to compare a region with alone. So the whole model runs twice. The records get the
ticks of the layers concerned, and a compile with them takes what is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.interface import Backend
from utvm_deploy.backends.regions import is_region, partitioned, whole_and_apart
from utvm_deploy.base.errors import SystemRefused, UtvmError
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import check_fits
from utvm_deploy.records import Measurement, Record, Records, Setting, now
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.tuning.measuring.model_runs import Tell
from utvm_deploy.tuning.records_file import RecordsFile


@dataclass(frozen=True)
class _Run:
    """A run of the whole model, layer by layer."""

    compiled: CompiledModel
    ticks: tuple[int, ...]
    checksums: Sequence[tuple[int, ...]]

    def of(self, operator: Operator) -> tuple[int, dict[str, int]]:
        """The ticks of the layers that compute a region, and the checksums of what they make."""
        wanted = set(operator.sources)
        found = [one for one in self.compiled.layers if set(one.operators) <= wanted]
        made = (
            zip((buffer.name for buffer in one.outputs), self.checksums[one.index], strict=True)
            for one in found
        )
        return sum(self.ticks[one.index] for one in found), dict(
            pair for some in made for pair in some
        )


def measure_regions(
    graph: Graph,
    device: Device,
    file: RecordsFile,
    setting: Setting,
    *,
    level: str,
    backend: Backend,
    tell: Tell = lambda text: None,
) -> None:
    """Write down what the regions of a model take, as far as the records do not know it."""
    merged = partitioned(graph, (backend,), device.board.cpu.kernel_core)
    known = {
        (one.kernel.key, one.candidate)
        for one in file.records
        if one.setting == setting and one.code == code_of_backend(backend)
    }
    whole, apart = whole_and_apart(backend)
    regions = [
        one
        for one in merged.operators
        if is_region(one) and (identity_of(merged, one).key, whole) not in known
    ]
    if not regions:
        return
    tell(f"running {graph.name} without the regions of {backend.name}")
    plain = _run(graph, device, file, replace(backend, is_apart=True), level)
    tell(f"running {graph.name} with the regions of {backend.name}")
    error, made = "", None
    try:
        made = _run(graph, device, file, backend, level)
    except SystemRefused:
        raise
    except UtvmError as problem:
        error = str(problem)
    found: list[Record] = []
    for call in regions:
        ticks, right = plain.of(call)
        measurement = Measurement(error="crash", detail=error[:200])
        if made is not None:
            their_ticks, checksums = made.of(call)
            measurement = Measurement(their_ticks, float(their_ticks))
            if any(right.get(name) != checksum for name, checksum in checksums.items()):
                measurement = Measurement(error="wrong output")

        def record(candidate: Candidate, measured: Measurement, call: Operator = call) -> Record:
            return Record(
                identity_of(merged, call),
                setting,
                candidate,
                measured,
                device.board.name,
                candidate == apart,
                code_of_backend(backend),
                time=now(),
            )

        found += [record(whole, measurement), record(apart, Measurement(ticks, float(ticks)))]
    file.extend(found)


def _run(graph: Graph, device: Device, file: RecordsFile, backend: Backend, level: str) -> _Run:
    board = device.board
    compiled = compile_model(
        graph,
        board,
        CompileOptions(
            backends=(backend,), records=Records(file.records), objective=Objective(level)
        ),
    )
    check_fits(compiled, board)
    samples = random_samples(graph, 1)
    model = device.load(compiled)
    found = profile(model, samples)
    ticks = tuple(call.ticks for call in found.calls)
    return _Run(compiled, ticks, model.run_checked(samples.inputs[0]))
