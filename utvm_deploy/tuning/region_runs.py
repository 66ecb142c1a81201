"""Weighs the backends of a model in the whole model: regions, calls of one operator, and ours.

We have no kernel to compare a region with alone. So the model runs by our kernels, with each
backend's regions, with all of them as a compile takes them, and with all operators apart. The
records get the ticks of the layers concerned. What takes longer than without it is out, and the
model runs again without that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.interface import Backend
from utvm_deploy.backends.regions import RegionRecords, is_region, partitioned, whole_and_apart
from utvm_deploy.base.errors import SystemRefused, UtvmError
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS, CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import check_fits
from utvm_deploy.records import SLOWER, Measurement, Record, Records, Setting, now
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.tuning.measuring.model_runs import ROUNDS, Tell
from utvm_deploy.tuning.records_file import RecordsFile

_Part = tuple[int, dict[str, int]]
_Region = tuple[Backend, Graph, Operator]


@dataclass(frozen=True, eq=False)
class _Run:
    """A run of the whole model, layer by layer."""

    compiled: CompiledModel
    ticks: tuple[int, ...]
    checksums: Sequence[tuple[int, ...]]

    def of(self, sources: Sequence[int]) -> _Part | None:
        """The ticks of the layers that compute operators, and the checksums of what they make.

        None if a layer computes others, too. Sums of float32 may have any order, so they count not.
        """
        wanted = set(sources)
        found = [one for one in self.compiled.layers if wanted.intersection(one.operators)]
        if not all(wanted.issuperset(one.operators) for one in found):
            return None
        made = {
            buffer.name: checksum
            for one in found
            for buffer, checksum in zip(one.outputs, self.checksums[one.index], strict=True)
            if buffer.dtype != "float32"
        }
        return sum(self.ticks[one.index] for one in found), made


def weigh_in_model(
    graph: Graph,
    device: Device,
    file: RecordsFile,
    setting: Setting,
    *,
    level: str,
    backends: Sequence[Backend],
    is_new: bool,
    tell: Tell = lambda text: None,
) -> int | None:
    """The ticks of a model by our kernels alone; the records get what backends take in it.

    None if it does not run so, or if the records have all regions and nothing else ``is_new``.
    """
    return _Weigher(graph, device, file, setting, level, tell).weighed(backends, is_new)


@dataclass(eq=False)
class _Weigher:
    _graph: Graph
    _device: Device
    _file: RecordsFile
    _setting: Setting
    _level: str
    _tell: Tell
    #: The runs that all others are compared with: by our kernels, and with all operators apart.
    _plain: list[_Run] = field(default_factory=list)

    def weighed(self, backends: Sequence[Backend], is_new: bool) -> int | None:
        # What was measured decides, so nobody estimates.
        free = [replace(one, estimate=None) for one in backends]
        if not is_new and all(self._is_known(*one) for one in self._regions(free)):
            return None
        apart = [replace(one, is_apart=True) for one in free]
        is_ours = not any(isinstance(one.attributes, External) for one in self._graph.operators)
        try:
            if is_ours:
                self._plain.append(self._run((), "by our kernels alone"))
            self._plain.append(self._run(apart, "with all operators apart"))
        except SystemRefused:
            raise
        except UtvmError:
            return None  # it says so where the whole model runs
        for position in range(len(free)) if len(free) > 1 else ():
            mix = [*apart[:position], free[position], *apart[position + 1 :]]
            if any(not self._is_known(*one) for one in self._regions(mix)):
                self._compare(mix, f"with the regions of {free[position].name}")
        for number in range(ROUNDS):
            if not self._compare(free, "with all backends", is_last=number == ROUNDS - 1):
                break
        return sum(self._plain[0].ticks) if is_ours else None

    def _regions(self, backends: Sequence[Backend]) -> list[_Region]:
        """The regions that a compile takes, by what the records say now."""
        flag = OPTIMIZATION_FLAGS[Objective(self._level)]
        core, records = self._device.board.cpu.kernel_core, Records(self._file.records)
        merged = partitioned(self._graph, backends, core, RegionRecords(core, records, flag))
        by_family = {one.family: one for one in backends}
        return [
            (by_family[one.attributes.family], merged, one)
            for one in merged.operators
            if is_region(one) and isinstance(one.attributes, External)
        ]

    def _is_known(self, backend: Backend, graph: Graph, operator: Operator) -> bool:
        wanted = identity_of(graph, operator), self._setting, code_of_backend(backend)
        candidate = whole_and_apart(backend)[0]
        return any(
            (one.kernel, one.setting, one.code, one.candidate) == (*wanted, candidate)
            for one in self._file.records
        )

    def _compare(self, backends: Sequence[Backend], what: str, *, is_last: bool = False) -> bool:
        """Run the model with backends; whether the records have something new.

        If the model is slower than by our kernels alone, or something is new in the last round, all
        calls of backends are out.
        """
        regions = self._regions(backends)
        made, error = None, ""
        try:
            made = self._run(backends, what)
        except SystemRefused:
            raise
        except UtvmError as problem:
            error = str(problem)
        new = self._new(made, error, backends, regions)
        is_slower = made is not None and sum(made.ticks) > sum(self._plain[0].ticks)
        if made is not None and (is_last if new else is_slower):
            new += self._new(made, error, backends, regions, are_out=True)
        self._file.extend(new)
        return bool(new) and made is not None

    def _new(
        self,
        made: _Run | None,
        error: str,
        backends: Sequence[Backend],
        regions: Sequence[_Region],
        *,
        are_out: bool = False,
    ) -> list[Record]:
        found = [one for region in regions for one in self._of_region(made, error, region, are_out)]
        return [*found, *(self._of_layers(made, backends, are_out) if made is not None else ())]

    def _of_region(
        self, made: _Run | None, error: str, region: _Region, is_out: bool
    ) -> Iterator[Record]:
        """What a region took, and its operators apart; or that it is out."""
        backend, graph, operator = region
        plain = [found for run in self._plain if (found := run.of(operator.sources))]
        theirs = made.of(operator.sources) if made is not None else None
        ticks, right = min(plain, key=lambda one: one[0], default=(0, {}))
        whole, apart = whole_and_apart(backend)
        if is_out or self._is_known(*region):
            if theirs is not None and plain and (is_out or theirs[0] > ticks):
                yield self._record(backend, graph, operator, whole, self._slower(theirs[0], ticks))
            return
        measured = Measurement(error="crash", detail=error[:200])
        if theirs is not None:
            measured = Measurement(theirs[0], float(theirs[0]))
            if any(right.get(name, checksum) != checksum for name, checksum in theirs[1].items()):
                measured = Measurement(error="wrong output")
        yield self._record(backend, graph, operator, whole, measured)
        if plain:
            yield self._record(backend, graph, operator, apart, Measurement(ticks, float(ticks)))

    def _of_layers(
        self, made: _Run, backends: Sequence[Backend], are_out: bool
    ) -> Iterator[Record]:
        """Calls of one operator that took longer than our kernel in the model."""
        named = {one.name: one for one in backends}
        of_source = {one.sources: one for one in self._graph.operators}
        ticks: dict[tuple[str, str], list[int]] = {}
        places: dict[tuple[str, str], Operator] = {}
        for layer in made.compiled.layers:
            operator, ours = of_source.get(layer.operators), self._plain[0].of(layer.operators)
            is_single = operator is not None and not isinstance(operator.attributes, External)
            if layer.is_external and is_single and operator is not None and ours is not None:
                key = layer.engine, identity_of(self._graph, operator).key
                places[key] = operator
                theirs, all_ours = ticks.get(key, (0, 0))
                ticks[key] = [theirs + made.ticks[layer.index], all_ours + ours[0]]
        for key, (theirs, all_ours) in ticks.items():
            if are_out or theirs > all_ours:
                backend, slower = named[key[0]], self._slower(theirs, all_ours)
                candidate = Candidate(backend.family)
                yield self._record(backend, self._graph, places[key], candidate, slower)

    def _slower(self, theirs: int, ours: int) -> Measurement:
        detail = f"{theirs:,} {self._setting.unit}, and without it {ours:,}"
        return Measurement(error=SLOWER, detail=detail)

    def _record(
        self,
        backend: Backend,
        graph: Graph,
        operator: Operator,
        candidate: Candidate,
        measured: Measurement,
    ) -> Record:
        return Record(
            identity_of(graph, operator),
            self._setting,
            candidate,
            measured,
            self._device.board.name,
            candidate == whole_and_apart(backend)[1],
            code_of_backend(backend),
            time=now(),
        )

    def _run(self, backends: Sequence[Backend], how: str) -> _Run:
        self._tell(f"running {self._graph.name} {how}")
        board = self._device.board
        options = CompileOptions(
            backends=tuple(backends),
            records=Records(self._file.records),
            objective=Objective(self._level),
        )
        compiled = compile_model(self._graph, board, options)
        check_fits(compiled, board)
        samples = random_samples(self._graph, 1)
        model = self._device.load(compiled)
        ticks = tuple(call.ticks for call in profile(model, samples).calls)
        return _Run(compiled, ticks, model.run_checked(samples.inputs[0]))
