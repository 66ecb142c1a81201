"""Which candidate a layer is compiled with: its record's, a similar kernel's, or the default.

Optimizing for size every layer has the default, for whose kernels there is one code; balanced, the
layers have as few different candidates between them as their records allow at a small loss.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from utvm_deploy import __version__
from utvm_deploy.candidate import GENERIC, Candidate
from utvm_deploy.compiler.options import BALANCED, MAX_SHARING_LOSS, SIZE
from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.identity import identity_of
from utvm_deploy.kernels.lowering import lower
from utvm_deploy.paths import records_file
from utvm_deploy.records import RECORD, Records, Setting, read_records

_log = logging.getLogger(__name__)

Choose = Callable[[Operator], KernelCall]


@cache
def shipped_records(core: str) -> Records:
    """What comes with the package for a core; none for most."""
    path = records_file(core)
    return read_records(path) if path.is_file() else Records()


def records_for(core: str, own: Records | None) -> Records:
    """The user's records, if there are any, and the shipped ones."""
    shipped = shipped_records(core)
    if own is not None and not any(record.setting.core == core for record in own):
        cores = ", ".join(sorted({record.setting.core for record in own})) or "no core at all"
        _log.warning("the records are of %s; there is nothing for %s in them", cores, core)
    return Records([*own, *shipped]) if own is not None else shipped


def chooser(graph: Graph, core: str, records: Records, optimize: str) -> Choose:
    """The function that gives an operator's call; ``optimize`` is one of ``options.OPTIMIZE``."""
    if optimize == SIZE:
        return lambda operator: lower(graph, operator, core)
    shared = _shared(graph, core, records) if optimize == BALANCED else {}

    def choose(operator: Operator) -> KernelCall:
        candidate = shared.get(identity_of(graph, operator).key) if shared else None
        if candidate is not None:
            try:
                return replace(lower(graph, operator, core, candidate), origin=RECORD)
            except UnsupportedOperator as error:
                _log.debug("%s does not fit: %s", candidate.label, error)
        return best_call(graph, operator, core, records)

    return choose


def _shared(graph: Graph, core: str, records: Records) -> dict[str, Candidate]:
    """Kernel -> a candidate that is nearly its fastest, few different ones over all kernels."""
    if core == GENERIC or not len(records):
        return {}
    near = Setting(core, "", "", __version__, "")
    # Candidates of different operators have no code in common.
    open_kernels: dict[str, dict[str, tuple[Candidate, ...]]] = {}
    for operator in graph.operators:
        identity = identity_of(graph, operator)
        found = records.nearly_best(identity, core, MAX_SHARING_LOSS, near)
        if found:
            open_kernels.setdefault(operator.kind, {})[identity.key] = found
    chosen: dict[str, Candidate] = {}
    for kernels in open_kernels.values():
        while kernels:
            # Ties go to what comes first in the order of layers and, of a layer, of speed.
            counts = Counter(candidate for found in kernels.values() for candidate in found)
            most, _ = counts.most_common(1)[0]
            served = [key for key, found in kernels.items() if most in found]
            for key in served:
                chosen[key] = most
                del kernels[key]
    return chosen


def best_call(graph: Graph, operator: Operator, core: str, records: Records) -> KernelCall:
    """The call of the best candidate that fits; it says where that came from."""
    if core != GENERIC and len(records):
        near = Setting(core, "", "", __version__, "")
        for candidate, origin in records.choices(identity_of(graph, operator), core, near):
            try:
                call = lower(graph, operator, core, candidate)
            except UnsupportedOperator as error:
                _log.debug("%s from a %s does not fit: %s", candidate.label, origin, error)
                continue
            return replace(call, origin=origin)
    return lower(graph, operator, core)
