"""Which candidate a layer is compiled with: its record's, a similar kernel's, or the default.

The layers have as few different candidates between them as their records allow at a small loss: of
each layer, and for time of the whole model. For size every layer has the default, for whose kernels
there is one code, unless a candidate measured at that level is smaller in every layer of the
operator. Balanced and for size, kernels then take their form of fewer bytes, if they have one.

A stack must hold the scratch of the layer that has the most. There no layer takes more than all can
do with at a small loss by their records.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from utvm_deploy import __version__
from utvm_deploy.candidate import COMPACT, COMPACT_LITTLE, GENERIC, Candidate
from utvm_deploy.compiler.options import (
    CMSIS_NN,
    COMPACTNESS,
    LEVELS,
    MAX_LEVELLING_LOSS,
    MAX_SHARING_LOSS,
    MAX_SHARING_LOSS_OF_MODEL,
    SIZE,
)
from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.code_version import code_versions
from utvm_deploy.kernels.identity import identity_of
from utvm_deploy.kernels.lowering import lower
from utvm_deploy.paths import records_file
from utvm_deploy.records import RECORD, Records, Setting, frugal, read_records

_log = logging.getLogger(__name__)

Choose = Callable[[Operator], KernelCall]
# A candidate and its origin.
_Chosen = tuple[Candidate, str]
# A call and its candidate; None if that is the family's own choice.
_Called = tuple[KernelCall, Candidate | None]
# Below this share nothing is shared any more.
_LEAST_SHARING_LOSS = 0.002


@cache
def shipped_records(core: str) -> Records:
    """What comes with the package for a core; none for most."""
    path = records_file(core)
    return read_records(path) if path.is_file() else Records()


def records_for(core: str, own: Records | None) -> Records:
    """The user's records of our own kernels, if there are any, and the shipped ones."""
    shipped = shipped_records(core)
    if own is not None and not len(own):
        _log.warning("there are no records in the file; kernels are chosen as if without it")
    elif own is not None and not any(record.setting.core == core for record in own):
        cores = ", ".join(sorted({record.setting.core for record in own}))
        _log.warning("the records are of %s; there is nothing for %s in them", cores, core)
    ours = [record for record in own or () if record.candidate.family != CMSIS_NN]
    return Records([*ours, *shipped], code_versions())


def chooser(
    graph: Graph, core: str, records: Records, optimize: str, *, on_stack: bool = False
) -> Choose:
    """The function that gives an operator's call; ``optimize`` is one of ``options.OPTIMIZE``.

    ``on_stack``: scratch lies there, and that of one layer costs RAM that others do not use.
    """
    near = Setting(core, "", LEVELS[optimize], __version__, "")
    is_known = core != GENERIC and len(records) > 0
    most_scratch = level_of(graph, near, records) if is_known and on_stack else None
    shared: dict[str, _Chosen] = {}
    if is_known and optimize == SIZE:
        shared = _smallest(graph, records, near)
    elif is_known:
        shared = _shared(graph, records, near, most_scratch, MAX_SHARING_LOSS_OF_MODEL[optimize])

    def choose(operator: Operator) -> KernelCall:
        call, candidate = best(operator)
        level = COMPACTNESS[optimize]
        if candidate is not None:
            # Its own choices are kept, which the most compact kernels make anew.
            level = min(level, COMPACT_LITTLE)
        if not 0 < call.heeds_compact <= level:
            return call
        choices = dict(candidate.choices) if candidate is not None else {}
        compact = Candidate.of(call.family, **{**choices, COMPACT: level})
        return replace(lower(graph, operator, core, compact), origin=call.origin)

    def best(operator: Operator) -> _Called:
        chosen = shared.get(identity_of(graph, operator).key) if shared else None
        if chosen is not None:
            try:
                call = lower(graph, operator, core, chosen[0])
                return replace(call, origin=chosen[1]), chosen[0]
            except UnsupportedOperator as error:
                _log.debug("%s does not fit: %s", chosen[0].label, error)
        if not is_known or optimize == SIZE:
            return lower(graph, operator, core), None
        return best_call(graph, operator, near, records, most_scratch)

    return choose


def _shared(
    graph: Graph, records: Records, near: Setting, most_scratch: int | None, most_loss: float
) -> dict[str, _Chosen]:
    """Kernel -> a candidate that is nearly its fastest, few different ones over all kernels.

    Each layer may lose MAX_SHARING_LOSS, or half of that and so on, until the model, as far as
    records know it, loses no more than ``most_loss``; both as shares.
    """
    layers: dict[str, _Layer] = {}
    for operator in graph.operators:
        key = identity_of(graph, operator).key
        ranked, origin = records.ranked(near.core, key, near)
        if most_scratch is not None:
            ranked = [r for r in ranked if r.scratch_bytes <= most_scratch] or ranked
        if ranked:
            ticks: dict[Candidate, int] = {}
            for record in frugal(ranked):
                ticks.setdefault(record.candidate, record.measurement.ticks_min)
            times = layers[key].times + 1 if key in layers else 1
            layers[key] = _Layer(operator.kind, ticks, origin, times)
    least = sum(one.times * next(iter(one.ticks.values())) for one in layers.values())
    loss = MAX_SHARING_LOSS
    while True:
        chosen = _few(layers, loss)
        spent = sum(one.times * one.ticks[chosen[key]] for key, one in layers.items())
        if spent <= least * (1 + most_loss):
            return {key: (candidate, layers[key].origin) for key, candidate in chosen.items()}
        loss = loss / 2 if loss > _LEAST_SHARING_LOSS else 0.0


@dataclass(frozen=True)
class _Layer:
    """What records know of a kernel."""

    kind: str  # of the operator
    ticks: Mapping[Candidate, int]  # what it would take by itself first
    origin: str
    times: int  # how many layers need it


def _few(layers: Mapping[str, _Layer], loss: float) -> dict[str, Candidate]:
    """Kernel -> a candidate; few different ones, where each layer loses no more than ``loss``."""
    # Candidates of different operators have no code in common.
    open_kernels: dict[str, dict[str, list[Candidate]]] = {}
    for key, one in layers.items():
        first, most = next(iter(one.ticks)), min(one.ticks.values()) * (1 + loss)
        near_best = [c for c, ticks in one.ticks.items() if ticks <= most or c == first]
        open_kernels.setdefault(one.kind, {})[key] = near_best
    chosen: dict[str, Candidate] = {}
    for kernels in open_kernels.values():
        while kernels:
            # Ties go to what comes first in the order of layers and, of a layer, by itself.
            counts = Counter(candidate for found in kernels.values() for candidate in found)
            shared, _ = counts.most_common(1)[0]
            for key in [key for key, found in kernels.items() if shared in found]:
                chosen[key] = shared
                del kernels[key]
    return chosen


def _smallest(graph: Graph, records: Records, near: Setting) -> dict[str, _Chosen]:
    """Kernel -> the candidate with the least code, one for all of an operator's kernels."""
    kinds: dict[str, dict[str, dict[Candidate, int]]] = {}
    defaults: dict[str, int] = {}
    for operator in graph.operators:
        key = identity_of(graph, operator).key
        ranked, origin = records.ranked(near.core, key, near)
        is_measured = origin == RECORD and all(r.setting.level == near.level for r in ranked)
        sizes = {r.candidate: r.code_bytes for r in ranked if is_measured and r.code_bytes}
        defaults[key] = next((r.code_bytes for r in ranked if r.is_default), 0)
        kinds.setdefault(operator.kind, {})[key] = sizes
    chosen: dict[str, _Chosen] = {}
    for kernels in kinds.values():
        common = set.intersection(*(set(sizes) for sizes in kernels.values()))
        fewer = {
            candidate: sum(sizes[candidate] for sizes in kernels.values())
            for candidate in common
            if all(sizes[candidate] < defaults.get(key, 0) for key, sizes in kernels.items())
        }
        if fewer:
            best = min(fewer, key=lambda candidate: (fewer[candidate], candidate.label))
            chosen.update(dict.fromkeys(kernels, (best, RECORD)))
    return chosen


def level_of(graph: Graph, near: Setting, records: Records) -> int | None:
    """The least scratch with which no layer, by its records, makes the model much slower.

    None where records know too little.
    """
    layers = [
        records.ranked(near.core, identity_of(graph, o).key, near)[0] for o in graph.operators
    ]
    known = [ranked for ranked in layers if ranked]
    if not known or not all(record.code_bytes for ranked in known for record in ranked):
        return None  # sizes are known of what was measured since they are kept
    total = sum(ranked[0].measurement.ticks_min for ranked in known)

    def is_fast(level: int) -> bool:
        fitting = [[r for r in ranked if r.scratch_bytes <= level] for ranked in known]
        ticks = [ranked[0].measurement.ticks_min for ranked in fitting if ranked]
        return all(fitting) and sum(ticks) <= total * (1 + MAX_LEVELLING_LOSS)

    levels = sorted({record.scratch_bytes for ranked in known for record in ranked})
    return next(filter(is_fast, levels))


def best_call(
    graph: Graph, operator: Operator, near: Setting, records: Records, most_scratch: int | None
) -> _Called:
    """The call of the best candidate that fits; it says where that came from."""
    identity = identity_of(graph, operator)
    for candidate, origin in records.choices(identity, near.core, near, most_scratch):
        try:
            call = lower(graph, operator, near.core, candidate)
        except UnsupportedOperator as error:
            _log.debug("%s from a %s does not fit: %s", candidate.label, origin, error)
            continue
        return replace(call, origin=origin), candidate
    return lower(graph, operator, near.core), None
