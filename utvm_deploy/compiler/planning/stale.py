"""Records that were measured with another C than is emitted today are stale.

Layers are compiled as records say. Then the C of their kernels is compared with the records'
digests. A record of other C is dropped, and its kernel is chosen again. Records are measured with
exact sums, and ``--float-math fast`` follows them, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from utvm_deploy.compiler.arena.overlap import may_share
from utvm_deploy.compiler.lowering.kernel_function import record_code
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.compiler.lowering.program import ScheduledStep
from utvm_deploy.compiler.planning.decision import Decision, Known, Sequenced
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.records import EmittedCode
from utvm_deploy.records.candidate import Candidate

_log = logging.getLogger(__name__)

#: A kernel is chosen by its current records so often; then all of its records count as stale.
MOST_CHOICES = 3


@dataclass(frozen=True)
class Chosen:
    """A model's layers as records chose them, and their C."""

    wanted: Sequenced  # before memory was looked at
    sequence: Sequenced
    decision: Decision
    layers: tuple[ScheduledStep, ...]


def by_current_records(
    choose: Callable[[Known], Chosen], known: Known, core: str, *, all_codes: bool
) -> Chosen:
    """What ``choose`` makes of the records whose C is emitted today.

    Where all records of a kernel are stale, the fastest is taken all the same, as that of a similar
    kernel would be. With ``all_codes`` the decision has the codes of kernels without records, too.
    """
    found = EmittedCode()
    for choice in range(MOST_CHOICES + 1):
        chosen = choose(known)
        codes = _codes(chosen, None if all_codes else known, core)
        stale = {
            (key, candidate): some
            for (key, candidate), some in codes.items()
            if known.all.contradicts(core, key, candidate, some)
        }
        for key, candidate in stale:
            _log.info("%s: the record of %s is stale", key, candidate.label)
        if not stale:
            break
        changed = {key for key, _ in stale} if choice == MOST_CHOICES - 1 else set()
        found = EmittedCode({**found.codes, **stale}, found.changed | changed)
        known = known.given(found)
    picks = chosen.decision.picks
    by_key = {
        key: min(some)
        for (key, candidate), some in codes.items()
        if picks[key].candidate in (None, candidate)
    }
    decision = replace(chosen.decision, codes=by_key)
    return replace(chosen, decision=decision, layers=_told(chosen, found))


def _codes(
    chosen: Chosen, known: Known | None, core: str
) -> dict[tuple[str, Candidate], frozenset[str]]:
    """Key and candidate of each layer's kernel -> digests; of kernels that ``known`` knows."""
    by_function: dict[str, str] = {}
    codes: dict[tuple[str, Candidate], frozenset[str]] = {}
    for key, layer in zip(chosen.decision.layers, chosen.layers, strict=True):
        candidate, function = layer.step.call.candidate, layer.kernel.function
        if candidate is None or not (known is None or known.all.has_any_of(core, key)):
            continue
        if function.name not in by_function:
            by_function[function.name] = record_code(_measured(layer, core))
        pair = key, candidate
        codes[pair] = codes.get(pair, frozenset()) | {by_function[function.name]}
    return codes


def _measured(layer: ScheduledStep, core: str) -> CFunction:
    """The C that records are of. ``utvm tune`` measures kernels with exact sums."""
    call, function = layer.step.call, layer.kernel.function
    if call.exact is None:
        return function
    outputs = len(layer.step.operator.outputs)
    made = lower_kernel(call.exact, function.name, core, outputs=outputs, may_alias=may_share(call))
    return made.function


def _told(chosen: Chosen, found: EmittedCode) -> tuple[ScheduledStep, ...]:
    """The layers, whose ``why_not`` names the stale records of their kernels."""
    stale: dict[str, list[str]] = {}
    for key, candidate in found.codes:
        stale.setdefault(key, []).append(candidate.label)
    told = []
    for key, layer in zip(chosen.decision.layers, chosen.layers, strict=True):
        if key in stale:
            call = layer.step.call
            why = f"stale, because its code has changed: the record of {', '.join(stale[key])}"
            call = replace(call, why_not="; ".join(filter(None, (call.why_not, why))))
            layer = replace(layer, step=replace(layer.step, call=call))
        told.append(layer)
    return tuple(told)
