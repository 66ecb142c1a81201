"""The tuning loop: search, build, measure, record, until trials or time run out.

``Places`` build and measure. While one batch runs on a device, the next one is compiled.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

from utvm_deploy.backends.choice import code_of_backend
from utvm_deploy.backends.interface import Backend
from utvm_deploy.base.results import Tabled
from utvm_deploy.compiler.options import Objective
from utvm_deploy.compiler.planning.decision import models_of_today, shipped_records
from utvm_deploy.device import Device
from utvm_deploy.records import Record, Records, Setting
from utvm_deploy.records.candidate import Candidate, is_of_backend
from utvm_deploy.results.pages.bars_picture import bars_svg
from utvm_deploy.tuning.measuring.current import current
from utvm_deploy.tuning.measuring.interrupts import Interrupts
from utvm_deploy.tuning.measuring.model_runs import first_candidates
from utvm_deploy.tuning.measuring.place import Place
from utvm_deploy.tuning.measuring.places import Outcomes, Places, Trial, recorded
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.searching.search import KernelState, Search
from utvm_deploy.tuning.searching.sketches import Sketches

log = logging.getLogger(__name__)

#: Candidates that are compiled and run together.
BATCH = 16
#: The first batch has one candidate; each following batch is larger by this factor.
BATCH_GROWTH = 4
#: The same for a line on which loading takes most of the time. There, candidates in a row are of
#: one kernel, so that its tables are sent once.
SLOW_BATCH = 32
SLOW_IN_A_ROW = 8
SLOW_SHARE = 0.6
#: Batches for each slot: one is measured, and the next one is built or on its way.
BATCHES_EACH = 2
#: How often the loop looks whether the places are still there, at least.
CHECK_S = 0.5
#: Winners of similar shapes that are tried early.
HINTS = 3


@dataclass(frozen=True, repr=False)
class Tuning(Tabled):
    """The state of a tuning, or its result."""

    setting: Setting
    states: tuple[KernelState, ...]
    trials: int  # with those that were in the records before
    trials_before: int
    trials_wanted: int
    seconds: float
    seconds_left: float | None  # as far as it is known
    # Where this process' and the device's time went; they overlap.
    lower_s: float
    load_s: float
    run_s: float
    # Bytes of scratch, by kernel's key and candidate.
    scratch_bytes: Mapping[tuple[str, Candidate], int]

    @property
    def headline(self) -> str:
        """Kernels, trials and the gain."""
        before, best = self.total(tuned=False), self.total(tuned=True)
        gain = f", {before / best:.2f} times as fast alone" if before and best else ""
        return (
            f"{self.setting.core}: {len(self.states)} kernels, {self.trials} of "
            f"{self.trials_wanted} trials{gain}"
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each kernel; times are in the unit of the board."""
        return [
            {
                "kernel": state.work.kernel.key,
                "layers": state.work.layers,
                "macs": state.work.kernel.macs,
                "unit": self.setting.unit,
                "before": state.before_ticks,
                "best": state.best[1] if state.best else None,
                "gain": state.gain,
                "trials": len(state.measured),
                "candidate": state.best[0].label if state.best else None,
            }
            for state in self.states
        ]

    @property
    def svg(self) -> str | None:
        """Bars of each kernel, before and with its best candidate."""
        rows = [(str(row["kernel"]), [row["before"], row["best"]]) for row in self.table]
        title = f"kernels alone, in {self.setting.unit}"
        return bars_svg(title, rows, ["before", "best"])

    def scratch(self, key: str, candidate: Candidate) -> int:
        """Bytes of scratch that a kernel's candidate wants; 0 if they are not known."""
        return self.scratch_bytes.get((key, candidate), 0)

    @property
    def per_second(self) -> float:
        """Candidates of this run in a second."""
        return (self.trials - self.trials_before) / self.seconds if self.seconds else 0.0

    @property
    def errors(self) -> int:
        """Candidates without ticks."""
        return sum(not m.is_ok for state in self.states for m in state.measured.values())

    def total(self, *, tuned: bool) -> int | None:
        """Ticks of all layers, each alone, with the best candidates or as without the records.

        None if one is unknown.
        """
        ticks = 0
        for state in self.states:
            best = state.best
            one = (best[1] if best else None) if tuned else state.before_ticks
            if one is None:
                return None
            ticks += one * state.work.layers
        return ticks


Watch = Callable[[Tuning], None]
_Results = list[tuple[KernelState, Record]]


def tune(
    works: Sequence[Work],
    device: Device,
    file: RecordsFile,
    *,
    level: str = Objective.TIME,
    backends: Sequence[Backend] = (),
    **search: Any,
) -> Tuning:
    """``tune_on`` a device of this computer, which compiles with all of its cores."""
    with Place(device, jobs=os.cpu_count() or 1, level=level, backends=backends) as place:
        return tune_on(works, place, file, level=level, backends=backends, **search)


def tune_on(
    works: Sequence[Work],
    places: Places,
    file: RecordsFile,
    *,
    trials: int,
    minutes: float | None = None,
    seed: int = 0,
    level: str = Objective.TIME,
    watch: Watch = lambda tuning: None,
    backends: Sequence[Backend] = (),
) -> Tuning:
    """Tune until ``trials`` candidates are in the records, or ``minutes`` have passed.

    Trials of these kernels that the records have already count, and are not repeated. Kernels are
    compiled as for ``level``, one of ``options.LEVELS``. ``watch`` is called after each batch.
    ``works`` were made with ``backends``, and ``places`` measure with them.
    """
    codes = {one.family: code_of_backend(one) for one in backends}
    first = first_candidates(works, places.board, level, backends)
    return _Loop(works, places, file, codes, first, trials, minutes, seed, watch).run()


class _Loop:
    def __init__(
        self,
        works: Sequence[Work],
        places: Places,
        file: RecordsFile,
        codes: Mapping[str, str],
        first: Mapping[str, Candidate],
        trials: int,
        minutes: float | None,
        seed: int,
        watch: Watch,
    ) -> None:
        self._places = places
        self._file = file
        self._setting = places.setting
        self._where = (places.setting, places.board.name)
        self._codes = codes
        self._first = first
        self._batches = 0
        self._wanted = trials
        self._begin = time.monotonic()
        self._until = None if minutes is None else self._begin + 60 * minutes
        self._watch = watch
        # Also those of outdated code: their candidates are worth a try.
        known = [*shipped_records(self._setting.core), *file.records]
        self._scratch_bytes = {
            (one.kernel.key, one.candidate): one.scratch_bytes for one in file.records
        }
        self._known = Records(known, models=models_of_today(places.board, known))
        self._states = tuple(self._state(work, seed) for work in works)
        self._search = Search(self._states, seed)
        self._trials_before = self._trials
        self._started = self._trials

    def _state(self, work: Work, seed: int) -> KernelState:
        free = None if work.free is None else Sketches(work.free, work.intrinsics, seed)
        first = self._first[work.kernel.key]
        state = KernelState(work, free=free, first=first if work.admits(first) else None)
        measured = self._file.records.of(work.kernel, self._setting)
        for record in current(work, measured, self._setting.core, self._codes):
            # Records of a library count only where its call may be taken.
            if not is_of_backend(record.candidate.family) or record.candidate in work.candidates:
                state.add(record.candidate, record.measurement)
        # Winners of other compilers and versions, of the shipped records, and of similar shapes.
        chosen = self._known.choices(work.kernel, self._setting.core, self._setting)
        hints = dict.fromkeys(c for c, _ in chosen if c not in state.measured)
        state.hints = list(islice((c for c in hints if work.admits(c)), HINTS))
        return state

    @property
    def _trials(self) -> int:
        return sum(len(state.measured) for state in self._states)

    def tuning(self) -> Tuning:
        """How far it is."""
        seconds = time.monotonic() - self._begin
        done = self._trials
        new = done - self._trials_before
        left = max(self._wanted - done, 0)
        if all(state.free is None for state in self._states):
            left = min(left, sum(s.untried_count + len(s.pending) for s in self._states))
        ahead = left * seconds / new if new else None
        if self._until is not None:
            limit = max(self._until - time.monotonic(), 0.0)
            ahead = limit if ahead is None else min(ahead, limit)
        spent = self._places.spent
        return Tuning(
            self._setting,
            self._states,
            done,
            self._trials_before,
            self._wanted,
            seconds,
            ahead,
            spent.lower_s,
            spent.load_s,
            spent.run_s,
            self._scratch_bytes,
        )

    def run(self) -> Tuning:
        """Search, measure and record, until trials or time run out."""
        self._watch(self.tuning())
        places = self._places
        under_way: list[Future[_Results]] = []
        with Interrupts(places.stop) as interrupts:
            try:
                while True:
                    while len(under_way) < BATCHES_EACH * places.slots:
                        batch = self._next_batch()
                        if not batch:
                            break
                        under_way.append(self._start(batch, interrupts))
                        interrupts.check()
                    if under_way:
                        self._learn_some(under_way)
                    elif not self._may_go_on():
                        break
                    places.check()
                    interrupts.check()
            except BaseException:
                places.stop()
                raise
            finally:
                # What runs on the devices is worth recording, even after Ctrl-C.
                for future in under_way:
                    self._learn(future.result())
        return self.tuning()

    def _start(
        self, batch: Sequence[tuple[KernelState, Candidate]], interrupts: Interrupts
    ) -> Future[_Results]:
        def then(outcomes: Outcomes) -> _Results:
            return self._written(batch, outcomes)

        trials = [Trial(state.work, candidate) for state, candidate in batch]
        return self._places.start(trials, then, interrupts.check)

    def _learn_some(self, under_way: list[Future[_Results]]) -> None:
        """Wait a while for batches, and learn from those that are done."""
        # With one slot in the order in which they began, so that equal seeds give equal searches.
        waited_for = under_way if self._places.slots > 1 else under_way[:1]
        done, _ = wait(waited_for, CHECK_S, FIRST_COMPLETED)
        for future in [one for one in under_way if one in done]:
            under_way.remove(future)
            self._learn(future.result())

    def _learn(self, results: _Results) -> None:
        for state, record in results:
            state.add(record.candidate, record.measurement)
            self._scratch_bytes[record.kernel.key, record.candidate] = record.scratch_bytes
        self._watch(self.tuning())

    def _may_go_on(self) -> bool:
        is_late = self._until is not None and time.monotonic() >= self._until
        return (
            not is_late
            and self._started < self._wanted
            and any(state.is_open for state in self._states)
        )

    def _next_batch(self) -> list[tuple[KernelState, Candidate]]:
        if not self._may_go_on():
            return []
        places = self._places
        elapsed = (time.monotonic() - self._begin) * places.slots
        is_slow = places.flashes or places.spent.load_s > SLOW_SHARE * elapsed
        size, in_a_row = (SLOW_BATCH, SLOW_IN_A_ROW) if is_slow else (BATCH, 1)
        # The first batches are small, so that the user soon sees something. If each batch is
        # flashed, only the first is small.
        if not self._batches or not places.flashes:
            size = min(size, BATCH_GROWTH**self._batches)
        self._batches += 1
        left = self._wanted - self._started
        if places.slots > 1:
            # Small batches at the end, so that all slots end at about the same time.
            untried = left
            if all(state.free is None for state in self._states):
                untried = min(left, sum(state.untried_count for state in self._states))
            size = min(size, max(1, -(-untried // (BATCHES_EACH * places.slots))))
        batch = self._search.next_batch(min(size, left), in_a_row)
        self._started += len(batch)
        return batch

    def _written(
        self, batch: Sequence[tuple[KernelState, Candidate]], outcomes: Outcomes
    ) -> _Results:
        """Write down what was measured; in whichever thread got it."""
        done = [
            (state, recorded(Trial(state.work, candidate), outcome, *self._where))
            for (state, candidate), outcome in zip(batch, outcomes, strict=True)
            if outcome is not None
        ]
        if done:
            self._file.extend([record for _, record in done])
        return done
