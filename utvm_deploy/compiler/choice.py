"""Which candidate a layer is compiled with: its record's, a similar kernel's, or the default.

Balanced, the layers have as few different candidates between them as their records allow at a small
loss. For size every layer has the default, for whose kernels there is one code, unless a candidate
measured at that level is smaller in every layer of the operator.

A stack must hold the scratch of the layer that has the most. There no layer takes more than all can
do with at a small loss by their records.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from utvm_deploy import __version__
from utvm_deploy.candidate import GENERIC, Candidate
from utvm_deploy.compiler.options import (
    BALANCED,
    CMSIS_NN,
    LEVELS,
    MAX_LEVELLING_LOSS,
    MAX_SHARING_LOSS,
    SIZE,
)
from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.code_version import code_versions
from utvm_deploy.kernels.identity import identity_of
from utvm_deploy.kernels.lowering import lower
from utvm_deploy.paths import records_file
from utvm_deploy.records import RECORD, Records, Setting, read_records

_log = logging.getLogger(__name__)

Choose = Callable[[Operator], KernelCall]
# A candidate and its origin.
_Chosen = tuple[Candidate, str]


@cache
def shipped_records(core: str) -> Records:
    """What comes with the package for a core; none for most."""
    path = records_file(core)
    return read_records(path) if path.is_file() else Records()


def records_for(core: str, own: Records | None) -> Records:
    """The user's records of our own kernels, if there are any, and the shipped ones."""
    shipped = shipped_records(core)
    if own is not None and not any(record.setting.core == core for record in own):
        cores = ", ".join(sorted({record.setting.core for record in own})) or "no core at all"
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
    if is_known and optimize == BALANCED:
        shared = _shared(graph, records, near, most_scratch)
    elif is_known and optimize == SIZE:
        shared = _smallest(graph, records, near)

    def choose(operator: Operator) -> KernelCall:
        chosen = shared.get(identity_of(graph, operator).key) if shared else None
        if chosen is not None:
            try:
                return replace(lower(graph, operator, core, chosen[0]), origin=chosen[1])
            except UnsupportedOperator as error:
                _log.debug("%s does not fit: %s", chosen[0].label, error)
        if not is_known or optimize == SIZE:
            return lower(graph, operator, core)
        return best_call(graph, operator, near, records, most_scratch)

    return choose


def _shared(
    graph: Graph, records: Records, near: Setting, most_scratch: int | None
) -> dict[str, _Chosen]:
    """Kernel -> a candidate that is nearly its fastest, few different ones over all kernels."""
    # Candidates of different operators have no code in common.
    open_kernels: dict[str, dict[str, tuple[_Chosen, ...]]] = {}
    for operator in graph.operators:
        key = identity_of(graph, operator).key
        ranked, origin = records.ranked(near.core, key, near)
        if most_scratch is not None:
            ranked = [r for r in ranked if r.scratch_bytes <= most_scratch] or ranked
        if ranked:
            most = ranked[0].measurement.ticks_min * (1 + MAX_SHARING_LOSS)
            near_best = [r.candidate for r in ranked if r.measurement.ticks_min <= most]
            open_kernels.setdefault(operator.kind, {})[key] = tuple(
                (candidate, origin) for candidate in dict.fromkeys(near_best)
            )
    chosen: dict[str, _Chosen] = {}
    for kernels in open_kernels.values():
        while kernels:
            # Ties go to what comes first in the order of layers and, of a layer, of speed.
            counts = Counter(candidate for found in kernels.values() for candidate, _ in found)
            shared, _ = counts.most_common(1)[0]
            for key, found in list(kernels.items()):
                fitting = [one for one in found if one[0] == shared]
                if fitting:
                    chosen[key] = fitting[0]
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
    graph: Graph,
    operator: Operator,
    near: Setting,
    records: Records,
    most_scratch: int | None = None,
) -> KernelCall:
    """The call of the best candidate that fits; it says where that came from."""
    identity = identity_of(graph, operator)
    for candidate, origin in records.choices(identity, near.core, near, most_scratch):
        try:
            call = lower(graph, operator, near.core, candidate)
        except UnsupportedOperator as error:
            _log.debug("%s from a %s does not fit: %s", candidate.label, origin, error)
            continue
        return replace(call, origin=origin)
    return lower(graph, operator, near.core)
