"""Which candidate a layer is compiled with: its record's, a similar kernel's, or the default.

The layers share candidates as far as their records allow that at a small loss. The loss is limited
for each layer, and at level time also for the whole model. At level size, every layer has the
default, and all its kernels share one code. Another candidate replaces it only if it was measured
at that level and is smaller in every layer of the operator. At levels balanced and size, kernels
then take their smaller form, if they have one.

A stack must hold the scratch of the layer that has the most. So no layer takes more than the
minimum that all layers need, if the loss by their records is small.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.compiler.options import (
    COMPACT_OF_LEVEL,
    MAX_LEVELLING_LOSS,
    MAX_SHARING_LOSS,
    MAX_SHARING_LOSS_OF_MODEL,
    Objective,
)
from utvm_deploy.compiler.picks import Pick, Picks
from utvm_deploy.compiler.planning.rare_layers import is_rare, rare_kinds
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.records import (
    RECORD,
    KernelIdentity,
    Record,
    Records,
    Scale,
    Setting,
    frugal,
)
from utvm_deploy.records.candidate import COMPACT_LITTLE, GENERIC, SPARSE, Candidate

_log = logging.getLogger(__name__)

#: Why a layer has plain C at level size where its core has better kernels.
WHY_RARE = "at level size: its plain C is smaller, and such layers are little of the model's work"

Choose = Callable[[Operator], KernelCall]
# Below this share nothing is shared any more.
_LEAST_SHARING_LOSS = 0.002


def picked(
    graph: Graph,
    records: Records,
    near: Setting,
    objective: Objective,
    most_scratch: int | None = None,
) -> dict[str, Pick]:
    """What ``records`` say of each kernel; for an objective.

    No layer takes more than ``most_scratch`` bytes of scratch where its records know another way.
    """
    layers = _layers(graph)
    if near.core == GENERIC or not len(records):
        return dict.fromkeys(layers, Pick())
    if objective == Objective.SIZE:
        shared = _smallest(graph, records, near)
    else:
        most_loss = MAX_SHARING_LOSS_OF_MODEL[objective]
        shared = _shared(graph, records, near, most_scratch, most_loss)
    found = {}
    for key, (kernel, operators) in layers.items():
        pick = shared.get(key)
        if pick is not None and is_possible(graph, operators, near.core, pick):
            found[key] = pick
        elif objective == Objective.SIZE:
            found[key] = Pick()
        else:
            choices = records.choices(kernel, near.core, near, most_scratch)
            known = (Pick(candidate, origin) for candidate, origin in choices)
            fitting = (one for one in known if is_possible(graph, operators, near.core, one))
            found[key] = next(fitting, Pick())
    return found


def calls_of(graph: Graph, core: str, picks: Picks, objective: Objective) -> Choose:
    """The function that gives an operator's call."""
    rare = rare_kinds(graph) if objective == Objective.SIZE else frozenset()

    def choose(operator: Operator) -> KernelCall:
        pick = picks.get(identity_of(graph, operator).key, Pick())
        candidate = pick.candidate
        is_sparse = lower(graph, operator, core).family == SPARSE
        if candidate is None and not is_sparse and is_rare(graph, operator, rare):
            found = lower(graph, operator, core, Candidate(GENERIC))
            return replace(found, candidate=Candidate(GENERIC), why_not=WHY_RARE)
        call = _call_of(graph, operator, core, candidate)
        if call is None:
            candidate, call = None, lower(graph, operator, core)
        origin = pick.origin if candidate is not None else call.origin
        call = replace(call, origin=origin, candidate=candidate or Candidate(call.family))
        compact = COMPACT_OF_LEVEL[objective]
        if candidate is not None:
            # Its choices are kept; the most compact kernels make theirs again.
            compact = min(compact, COMPACT_LITTLE)
        if not 0 < call.heeds_compact <= compact:
            return call
        kept = candidate if candidate is not None else Candidate(call.family)
        return replace(lower(graph, operator, core, kept, compact=compact), origin=call.origin)

    return choose


def is_possible(graph: Graph, operators: Iterable[Operator], core: str, pick: Pick) -> bool:
    """Whether one of a kernel's operators can be compiled so."""
    return any(
        _call_of(graph, operator, core, pick.candidate) is not None for operator in operators
    )


def operators_by_kernel(graph: Graph) -> dict[str, list[Operator]]:
    """Kernel's key -> the operators that need it."""
    return {key: operators for key, (_, operators) in _layers(graph).items()}


def _call_of(
    graph: Graph, operator: Operator, core: str, candidate: Candidate | None
) -> KernelCall | None:
    """The operator's call; None if the candidate does not fit it.

    Records may name any candidate. What suits one operator may not suit the weights and scales of
    another one of the same shape.
    """
    try:
        return lower(graph, operator, core, candidate)
    except (UnsupportedOperator, ValueError) as error:  # ValueError: text where a number belongs
        if candidate is None:
            raise
        _log.debug("%s does not fit: %s", candidate.label, error)
        return None


def _layers(graph: Graph) -> dict[str, tuple[KernelIdentity, list[Operator]]]:
    """Kernel's key -> what it is, and the operators that need it."""
    found: dict[str, tuple[KernelIdentity, list[Operator]]] = {}
    for operator in graph.operators:
        kernel = identity_of(graph, operator)
        found.setdefault(kernel.key, (kernel, []))[1].append(operator)
    return found


def _shared(
    graph: Graph, records: Records, near: Setting, most_scratch: int | None, most_loss: float
) -> dict[str, Pick]:
    """Kernel -> a candidate that is nearly its fastest; all kernels share a few candidates.

    Each layer may lose MAX_SHARING_LOSS, or half of that and so on, until the model loses at most
    ``most_loss`` by the records. Both are shares.
    """
    layers: dict[str, _Layer] = {}
    for key, (_, operators) in _layers(graph).items():
        ranked, origin = records.ranked(near.core, key, near)
        if most_scratch is not None:
            ranked = [r for r in ranked if r.scratch_bytes <= most_scratch] or ranked
        if ranked:
            ticks: dict[Candidate, int] = {}
            for record in frugal(ranked):
                ticks.setdefault(record.candidate, record.measurement.ticks_min)
            layers[key] = _Layer(
                operators[0].kind, ticks, origin, len(operators), ranked[0].setting.scale
            )
    least = {key: next(iter(one.ticks.values())) for key, one in layers.items()}
    loss = MAX_SHARING_LOSS
    while True:
        chosen = _few(layers, loss)
        taken = {key: one.ticks[chosen[key]] for key, one in layers.items()}
        # Ticks of different scales cannot be added.
        by_scale = {one.scale for one in layers.values()}
        if all(
            _sum(taken, layers, scale) <= _sum(least, layers, scale) * (1 + most_loss)
            for scale in by_scale
        ):
            return {key: Pick(one, layers[key].origin) for key, one in chosen.items()}
        loss = loss / 2 if loss > _LEAST_SHARING_LOSS else 0.0


@dataclass(frozen=True)
class _Layer:
    """What records know of a kernel."""

    kind: str  # of the operator
    ticks: Mapping[Candidate, int]  # what it would take by itself first
    origin: str
    times: int  # how many layers need it
    scale: Scale  # of the ticks


def _sum(ticks: Mapping[str, int], layers: Mapping[str, _Layer], scale: Scale) -> int:
    return sum(one.times * ticks[key] for key, one in layers.items() if one.scale == scale)


def _few(layers: Mapping[str, _Layer], loss: float) -> dict[str, Candidate]:
    """Kernel -> a candidate; all kernels share a few, and no layer loses more than ``loss``."""
    # Candidates of different operators have no code in common.
    open_kernels: dict[str, dict[str, list[Candidate]]] = {}
    for key, one in layers.items():
        first, most = next(iter(one.ticks)), min(one.ticks.values()) * (1 + loss)
        near_best = [c for c, ticks in one.ticks.items() if ticks <= most or c == first]
        open_kernels.setdefault(one.kind, {})[key] = near_best
    chosen: dict[str, Candidate] = {}
    for kernels in open_kernels.values():
        while kernels:
            # Of equally good candidates, the first one counts, in the order of layers and of their
            # lists.
            counts = Counter(candidate for found in kernels.values() for candidate in found)
            shared, _ = counts.most_common(1)[0]
            for key in [key for key, found in kernels.items() if shared in found]:
                chosen[key] = shared
                del kernels[key]
    return chosen


def _smallest(graph: Graph, records: Records, near: Setting) -> dict[str, Pick]:
    """Kernel -> the candidate with the least code, one for all of an operator's kernels."""
    kinds: dict[str, dict[str, dict[Candidate, int]]] = {}
    defaults: dict[str, int] = {}
    for operator in graph.operators:
        key = identity_of(graph, operator).key
        ranked, origin = records.ranked(near.core, key, near)
        is_measured = origin == RECORD and all(
            r.setting.optimization_flag == near.optimization_flag for r in ranked
        )
        sizes = {r.candidate: r.code_bytes for r in ranked if is_measured and r.code_bytes}
        defaults[key] = next((r.code_bytes for r in ranked if r.is_default), 0)
        kinds.setdefault(operator.kind, {})[key] = sizes
    chosen: dict[str, Pick] = {}
    for kernels in kinds.values():
        common = set.intersection(*(set(sizes) for sizes in kernels.values()))
        fewer = {
            candidate: sum(sizes[candidate] for sizes in kernels.values())
            for candidate in common
            if all(sizes[candidate] < defaults.get(key, 0) for key, sizes in kernels.items())
        }
        if fewer:
            best = min(fewer, key=lambda candidate: (fewer[candidate], candidate.label))
            chosen.update(dict.fromkeys(kernels, Pick(best, RECORD)))
    return chosen


def level_of(graph: Graph, near: Setting, records: Records) -> int | None:
    """The least scratch with which, by the records, no layer makes the model much slower.

    None where records know too little.
    """
    layers = [
        records.ranked(near.core, identity_of(graph, o).key, near)[0] for o in graph.operators
    ]
    known = [ranked for ranked in layers if ranked]
    if not known or not all(record.code_bytes for ranked in known for record in ranked):
        return None  # sizes are known of what was measured since they are kept
    by_scale: dict[Scale, list[list[Record]]] = {}
    for ranked in known:
        by_scale.setdefault(ranked[0].setting.scale, []).append(ranked)

    def is_fast(most_bytes: int) -> bool:
        return all(_are_fast(kernels, most_bytes) for kernels in by_scale.values())

    levels = sorted({record.scratch_bytes for ranked in known for record in ranked})
    return next(filter(is_fast, levels))


def _are_fast(kernels: Sequence[Sequence[Record]], most_bytes: int) -> bool:
    """Whether kernels lose little with no more scratch than ``most_bytes``."""
    total = sum(ranked[0].measurement.ticks_min for ranked in kernels)
    fitting = [[r for r in ranked if r.scratch_bytes <= most_bytes] for ranked in kernels]
    ticks = [ranked[0].measurement.ticks_min for ranked in fitting if ranked]
    return all(fitting) and sum(ticks) <= total * (1 + MAX_LEVELLING_LOSS)
