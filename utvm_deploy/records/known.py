"""What records say about compiling a kernel: its candidates, best first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.emitted_code import EmittedCode
from utvm_deploy.records.model_record import ModelRecord
from utvm_deploy.records.record import (
    UNITS,
    KernelIdentity,
    Measurement,
    Record,
    Scale,
    Setting,
    is_modelled,
)

#: Where a compiled layer's candidate came from.
RECORD, NEAREST, DEFAULT = ORIGINS = ("record", "nearest record", "default")

#: Shapes this far apart (the sum of the ratios of their extents, in powers of two) say nothing
#: about each other.
FARTHEST = 8.0
#: This many of the nearest shapes say together what to take, nearer ones with more weight, if it
#: beats their defaults by NEIGHBOUR_GAIN. Of each shape only what is within NEIGHBOUR_LOSS of its
#: best counts. A gain of 1 % was noise: of 164 kernels of a Cortex-M7, each compiled by the others'
#: records, 32 became faster and 16 slower, the worst by 22.8 %. With 3 % one of each is left
#: (benchmarks/tune/leave_one_out.py).
NEIGHBOURS = 3
DISTANCE_OF_HALF = 0.5
NEIGHBOUR_GAIN = 0.03
NEIGHBOUR_LOSS = 0.03
#: What a candidate may be slower by for the sake of less scratch.
SCRATCH_LOSS = 0.01


class _Alike:
    """Kernels that differ in their extents only."""

    def __init__(self, kernels: list[KernelIdentity]) -> None:
        self._kernels = kernels
        self._logs = np.log2([kernel.extents for kernel in kernels])

    def near(self, kernel: KernelIdentity) -> list[KernelIdentity]:
        """Those that are about ``FARTHEST`` or less away."""
        if kernel.likeness != self._kernels[0].likeness:
            return []
        distances = np.abs(self._logs - np.log2(kernel.extents)).sum(axis=1)
        return [self._kernels[one] for one in np.flatnonzero(distances < FARTHEST + 0.001)]


class Records:
    """Records in memory, by kernel; what they say about compiling.

    ``emitted`` has the digests of C that is known to be emitted today, and ``models`` the digests
    of today's cycle models. Records of other code are of older kernels, modelled ticks of other
    models were counted by older ones. What is not given is not looked at.
    """

    def __init__(
        self,
        records: Iterable[Record | ModelRecord] = (),
        emitted: EmittedCode | None = None,
        models: Collection[str] | None = None,
    ) -> None:
        self._emitted = emitted
        self._models = models
        self._all: list[Record] = []
        self._by_kernel: dict[tuple[str, str], list[Record]] = {}
        self.model_records: list[ModelRecord] = []
        self._tables: dict[str, list[_Alike]] = {}
        for record in records:
            self.add(record)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._all)

    def add(self, record: Record | ModelRecord) -> None:
        """One more."""
        if isinstance(record, ModelRecord):
            self.model_records.append(record)
            return
        self._all.append(record)
        self._tables.clear()
        key = record.setting.core, record.kernel.key
        self._by_kernel.setdefault(key, []).append(record)

    def of(self, kernel: KernelIdentity, setting: Setting) -> list[Record]:
        """Of just this kernel as it is now, measured under just these circumstances."""
        found = self._by_kernel.get((setting.core, kernel.key), [])
        return [r for r in found if r.setting == setting and self.is_current(r)]

    def choices(
        self,
        kernel: KernelIdentity,
        core: str,
        near: Setting | None = None,
        most_scratch: int | None = None,
    ) -> Iterator[tuple[Candidate, str]]:
        """Candidates to compile ``kernel`` with, best first, each with its origin.

        Records of the kernel itself come first, those of the optimization flag in ``near`` before
        others. Then come the best candidates of the nearest shapes. Records of older kernels of the
        same shape, and those of an older cycle model, are called near. They count if there are no
        current records. Among the kernel's records, those with more than ``most_scratch`` bytes of
        scratch come last.
        """
        ranked, origin = self.ranked(core, kernel.key, near)
        most = math.inf if most_scratch is None else most_scratch
        fitting = [record for record in ranked if record.scratch_bytes <= most]
        others = [record for record in ranked if record.scratch_bytes > most]
        for record in (*frugal(fitting), *others):
            yield record.candidate, origin
        for candidate in self._of_neighbours(kernel, core, near):
            yield candidate, NEAREST

    def _of_neighbours(
        self, kernel: KernelIdentity, core: str, near: Setting | None
    ) -> list[Candidate]:
        """What gains most over the default in the nearest shapes together, best first."""
        others = [
            (kernel.distance(other), other.key)
            for table in self._alike(core)
            for other in table.near(kernel)
            if other.key != kernel.key
        ]
        gains: dict[Candidate, float] = {}
        weights: list[float] = []
        for distance, key in sorted(one for one in others if one[0] <= FARTHEST):
            ranked, _ = self.ranked(core, key, near)
            default = next((r.measurement.ticks_min for r in ranked if r.is_default), 0)
            if not default:
                continue
            weights.append(1 / (DISTANCE_OF_HALF + distance))
            # What was not measured there, or not kept, counts as no better than the default.
            most = ranked[0].measurement.ticks_min * (1 + NEIGHBOUR_LOSS)
            for candidate, ticks in {r.candidate: r.measurement.ticks_min for r in ranked}.items():
                gain = math.log(default / max(ticks, 1))
                gain = gain if ticks <= most else min(gain, 0.0)
                gains[candidate] = gains.get(candidate, 0.0) + weights[-1] * gain
            if len(weights) == NEIGHBOURS:
                break
        least = NEIGHBOUR_GAIN * sum(weights)
        found = [(-gain, one.label, one) for one, gain in gains.items() if gain >= least]
        return [candidate for _, _, candidate in sorted(found, key=lambda one: one[:2])]

    def _alike(self, core: str) -> list[_Alike]:
        """The kernels of a core that have records, those of one operator together."""
        if core not in self._tables:
            groups: dict[tuple[object, ...], list[KernelIdentity]] = {}
            for (other_core, _), some in self._by_kernel.items():
                if other_core == core:
                    groups.setdefault(some[0].kernel.likeness, []).append(some[0].kernel)
            self._tables[core] = [_Alike(some) for some in groups.values()]
        return self._tables[core]

    def ranked(self, core: str, key: str, near: Setting | None = None) -> tuple[list[Record], str]:
        """A kernel's own on the most telling scale, fastest first, and their origin."""
        return next(self.tables(core, key, near), ([], RECORD))

    def tables(
        self, core: str, key: str, near: Setting | None = None
    ) -> Iterator[tuple[list[Record], str]]:
        """A kernel's own by scale, the most telling first, and each with its origin.

        Each candidate is in a table once, the fastest first.
        """
        groups: dict[tuple[Scale, bool], list[Record]] = {}
        for record in self._by_kernel.get((core, key), ()):
            if record.measurement.is_ok:
                groups.setdefault((record.setting.scale, False), []).append(record)
        for (scale, _), some in list(groups.items()):
            current = [record for record in some if self.is_current(record)]
            # Candidates compare where the default is among them, which is measured early.
            if len(current) == len(some) or any(record.is_default for record in current):
                groups[scale, True] = current

        def rank(group: tuple[Scale, bool]) -> tuple[bool, bool, int, bool, int]:
            scale, is_current = group
            return (
                not is_current,
                near is None or scale.optimization_flag != near.optimization_flag,
                UNITS.index(scale.unit) if scale.unit in UNITS else len(UNITS),
                near is None or scale.model != near.model,
                -len(groups[group]),
            )

        for group in sorted(groups, key=rank):
            table = self._on_one_scale(groups[group], near)
            table.sort(key=lambda record: record.measurement.ticks_min)
            yield table, RECORD if group[1] else NEAREST

    def _on_one_scale(self, records: Sequence[Record], near: Setting | None) -> list[Record]:
        """Each candidate once; of several records of one, the latest of ``near``'s compiler.

        Another compiler or board may make all candidates slower by the same factor. Its ticks are
        scaled by those of a candidate that both have measured: the default, or else the fastest.
        """
        sources: dict[tuple[bool, str, str, str], dict[Candidate, Record]] = {}
        for record in records:
            one = record.setting
            is_near = near is not None and one.compiler == near.compiler
            # What was measured last is put last, and stands for its candidate.
            source = (is_near, one.compiler, one.flags, record.board)
            of_source = sources.pop(source, {})
            known = of_source.get(record.candidate)
            if known is None or self.is_current(record) >= self.is_current(known):
                of_source[record.candidate] = record
            sources[source] = of_source
        ordered = sorted(reversed(list(sources)), key=lambda source: not source[0])
        found = dict(sources[ordered[0]])
        for source in ordered[1:]:
            others = sources[source]
            factor = _factor(found, others)
            for candidate, record in others.items():
                found.setdefault(candidate, _scaled(record, factor))
        return list(found.values())

    def is_current(self, record: Record) -> bool:
        """Whether it was measured with today's code, and today's cycle model if with one."""
        is_of_code = self._emitted is None or self._emitted.agrees(
            record.kernel.key, record.candidate, record.code
        )
        return is_of_code and self.is_of_today(record.setting)

    def is_current_model(self, record: ModelRecord) -> bool:
        """The same for a record of a whole model."""
        return (
            self._is_of_code(record)
            and record.measurement.is_ok
            and self.is_of_today(record.setting)
        )

    def _is_of_code(self, record: ModelRecord) -> bool:
        if self._emitted is None:
            return True
        candidates = dict(record.candidates)
        # Version 0.2.0 wrote codes by family.
        return all(
            key in candidates and self._emitted.agrees(key, candidates[key], code)
            for key, code in record.codes
        )

    def has_any_of(self, core: str, key: str) -> bool:
        """Whether there is a record of this kernel, or of a whole model."""
        return (core, key) in self._by_kernel or bool(self.model_records)

    def contradicts(self, core: str, key: str, candidate: Candidate, codes: frozenset[str]) -> bool:
        """Whether a current record says that a kernel's candidate has another code than these."""
        return any(
            record.candidate == candidate
            and record.measurement.is_ok
            and record.code not in codes
            and self.is_current(record)
            for record in self._by_kernel.get((core, key), ())
        ) or any(
            model_record.setting.core == core
            and (key, candidate) in model_record.candidates
            and not codes >= {code for other, code in model_record.codes if other == key}
            and self.is_current_model(model_record)
            for model_record in self.model_records
        )

    def is_of_today(self, setting: Setting) -> bool:
        """Whether ticks were not modelled, or modelled by one of today's cycle models."""
        is_known = self._models is None or setting.model in self._models
        return is_known or not is_modelled(setting.unit)


def _factor(ours: Mapping[Candidate, Record], theirs: Mapping[Candidate, Record]) -> float:
    """The factor from the ticks of the others to ours, by a candidate that both have measured."""
    both = [record for candidate, record in theirs.items() if candidate in ours]
    both = [record for record in both if record.measurement.ticks_min]
    if not both:
        return 1.0
    one = min(both, key=lambda record: (not record.is_default, record.measurement.ticks_min))
    return ours[one.candidate].measurement.ticks_min / one.measurement.ticks_min


def _scaled(record: Record, factor: float) -> Record:
    if factor == 1:
        return record
    one = record.measurement
    ticks = Measurement(round(one.ticks_min * factor), one.ticks_median * factor)
    return replace(record, measurement=ticks)


def frugal(ranked: Sequence[Record]) -> list[Record]:
    """The same, but of those about as fast as the fastest the one with the least scratch first."""
    if not ranked:
        return []
    most = ranked[0].measurement.ticks_min * (1 + SCRATCH_LOSS)
    alike = [record for record in ranked if record.measurement.ticks_min <= most]
    # Sizes are known of what was measured since they are kept.
    if all(record.code_bytes for record in alike):
        alike.sort(key=lambda record: record.scratch_bytes)
    return [*alike, *ranked[len(alike) :]]
