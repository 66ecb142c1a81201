"""How a model's kernels are compiled with a user's records: never slower than without them.

The candidates without the records come first. Another candidate takes its place where records have
both on one scale and say that it is faster. Where ``tune`` has measured the whole model both ways,
that decides instead.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from utvm_deploy import __version__
from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.paths import records_file
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS, STACK, Objective
from utvm_deploy.compiler.picks import Pick, Picks
from utvm_deploy.compiler.planning.choice import is_possible, level_of, operators_by_kernel, picked
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.records import (
    DEFAULT,
    RECORD,
    UNITS,
    EmittedCode,
    ModelRecord,
    Record,
    Records,
    Setting,
    is_modelled,
    read_records,
)
from utvm_deploy.records.candidate import Candidate, is_of_backend
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0
from utvm_deploy.targets.emulator import cycle_model_digest

_log = logging.getLogger(__name__)

_DIGEST_DIGITS = 12
Sequenced = tuple[Step | View, ...]


@cache
def shipped_records(core: str) -> Records:
    """What comes with the package for a core; none for most."""
    path = records_file(core)
    return read_records(path) if path.is_file() else Records()


@dataclass(frozen=True)
class Known:
    """What there is to decide by."""

    shipped: Records
    # The shipped ones and the user's; None if the user gave none.
    merged: Records | None = None
    own: Records | None = None  # the user's, those of a library's calls among them
    models: frozenset[str] = frozenset()  # digests of the cycle models of today

    @property
    def all(self) -> Records:
        """Every record that may be followed."""
        return self.shipped if self.merged is None else self.merged

    def given(self, emitted: EmittedCode) -> Known:
        """The same records, where this is known of today's C."""

        def again(records: Records | None) -> Records | None:
            if records is None:
                return None
            return Records([*records, *records.model_records], emitted, self.models)

        shipped = Records(self.shipped, emitted, self.models)
        return Known(shipped, again(self.merged), again(self.own), self.models)


def known_records(board: Board, own: Records | None) -> Known:
    """The shipped records of the board's core, and the user's records of our kernels."""
    core = board.cpu.kernel_core
    shipped = shipped_records(core)
    if own is not None and not len(own):
        _log.warning("there are no records in the file; kernels are chosen as if without it")
    elif own is not None and not any(record.setting.core == core for record in own):
        cores = ", ".join(sorted({record.setting.core for record in own}))
        _log.warning("the records are of %s; there is nothing for %s in them", cores, core)
    old = sum(one.code in CODES_OF_0_2_0.values() for one in own or () if one.setting.core == core)
    if old:
        _log.warning(
            "records of version 0.2.0: %d; they count as stale until `utvm tune MODEL --board %s "
            "--records FILE` measures again",
            old,
            board.name,
        )
    ours = [record for record in own or () if not is_of_backend(record.candidate.family)]
    models = models_of_today(board, [*shipped, *(own or ())])
    # Of two records of a candidate the later one counts: the user's.
    merged = None if own is None else Records([*shipped, *ours, *own.model_records])
    return Known(shipped, merged, own, models).given(EmittedCode())


def models_of_today(board: Board, records: Iterable[Record | ModelRecord]) -> frozenset[str]:
    """Digests of the cycle models that count today: the board's, and those of the records' boards.

    Boards of one core share records, though each has its own caches.
    """
    modelled = (record.board for record in records if is_modelled(record.setting.unit))
    found = {_model_of(name) for name in dict.fromkeys(modelled)} | {model_of(board)}
    return frozenset(found - {""})


def model_of(board: Board) -> str:
    """Digest of the board's cycle model; empty if its core has none."""
    try:
        return cycle_model_digest(board)
    except BoardError:
        return ""


@cache
def _model_of(name: str) -> str:
    """Of a board that a record names; never of a path, as a record may come from anybody."""
    if name not in board_names():
        return ""
    try:
        return model_of(load_board(name))
    except BoardError:
        return ""  # a board of somebody else's


@dataclass(frozen=True)
class Decision:
    """How each kernel of a model is compiled, and how it is without the user's records."""

    picks: Picks
    without: Picks
    # The least scratch with which all layers are fast, where scratch is on the stack.
    most_scratch: int | None = None
    # What was wanted before memory was looked at, and the kernel of each layer that has code.
    wanted: Picks = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    # Kernel's key -> digest of its C, where that is the candidate's.
    codes: Mapping[str, str] = field(default_factory=dict)


def decide(
    graph: Graph, board: Board, family: str, known: Known, objective: Objective, place: str
) -> Decision:
    """By ``known``; ``family`` as ``lower`` takes it, ``place`` is where scratch lies."""
    near = Setting(family, "", OPTIMIZATION_FLAGS[objective], __version__, "", model_of(board))

    def most_scratch_of(records: Records) -> int | None:
        return level_of(graph, near, records) if place == STACK and len(records) else None

    before = most_scratch_of(known.shipped)
    without = picked(graph, known.shipped, near, objective, before)
    if known.merged is None:
        return Decision(without, without, before)
    after = most_scratch_of(known.merged)
    # What the layers may have without the records they may have with them.
    most = None if before is None or after is None else max(before, after)
    picks = picked(graph, known.merged, near, objective, most)
    if objective == Objective.SIZE:
        return Decision(picks, without, most)
    defaults = default_candidates(graph, family)
    faster = {
        key: _faster(known.merged, near, key, pick, without[key], defaults[key])
        for key, pick in picks.items()
    }
    measured = _by_model(graph, board, known.merged, near, place, without, defaults)
    return Decision(measured or faster, without, most)


def default_candidates(graph: Graph, family: str) -> dict[str, Candidate]:
    """Kernel's key -> what its best family would choose by itself."""
    return {
        identity_of(graph, one).key: Candidate(lower(graph, one, family).family)
        for one in graph.operators
    }


def _faster(
    records: Records, near: Setting, key: str, pick: Pick, before: Pick, default: Candidate
) -> Pick:
    """``pick`` where records say that it is faster than ``before``."""
    candidate, known = pick.candidate or default, before.candidate or default
    if candidate == known:
        return replace(before, origin=pick.origin)
    for table, origin in records.tables(near.core, key, near):
        ticks = {record.candidate: record.measurement.ticks_min for record in table}
        if known in ticks:
            is_faster = candidate in ticks and ticks[candidate] < ticks[known]
            return Pick(pick.candidate, origin) if is_faster else before
    # The candidate without records was not measured: only a default is replaced.
    return pick if before.origin == DEFAULT else before


def _by_model(
    graph: Graph,
    board: Board,
    records: Records,
    near: Setting,
    place: str,
    without: Picks,
    defaults: Mapping[str, Candidate],
) -> Picks | None:
    """The fastest measured way to compile the whole model.

    None unless it was measured without the user's records, too.
    """
    base = candidates_of(without, defaults)
    digest = graph_digest(graph)
    groups: dict[tuple[Setting, str, str], dict[tuple[tuple[str, Candidate], ...], int]] = {}
    for one in records.model_records:
        setting = replace(one.setting, utvm="")
        is_of_model = one.graph == digest and setting.core == near.core
        if (
            is_of_model
            and setting.optimization_flag == near.optimization_flag
            and records.is_current_model(one)
        ):
            group = groups.setdefault((setting, one.board, one.scratch), {})
            group[one.candidates] = one.measurement.ticks_min
    groups = {key: found for key, found in groups.items() if base in found}
    if not groups:
        return None

    def rank(group: tuple[Setting, str, str]) -> tuple[bool, bool, int]:
        setting, name, scratch = group
        unit = UNITS.index(setting.unit) if setting.unit in UNITS else len(UNITS)
        return name != board.name, scratch != place, unit

    found = groups[min(groups, key=rank)]
    for best in sorted(found, key=lambda one: (found[one], one != base)):
        picks = _picks_of(dict(best), without, defaults)
        if picks is not None and _all_possible(graph, near.core, picks):
            return picks
    return dict(without)


def _picks_of(
    chosen: Mapping[str, Candidate], without: Picks, defaults: Mapping[str, Candidate]
) -> Picks | None:
    """A record's candidates as picks; None where it is not of the model's kernels."""
    if chosen.keys() != without.keys():
        return None
    return {
        key: pick if chosen[key] == (pick.candidate or defaults[key]) else Pick(chosen[key], RECORD)
        for key, pick in without.items()
    }


def _all_possible(graph: Graph, core: str, picks: Picks) -> bool:
    return all(
        is_possible(graph, operators, core, picks[key])
        for key, operators in operators_by_kernel(graph).items()
    )


def candidates_of(
    picks: Picks, defaults: Mapping[str, Candidate]
) -> tuple[tuple[str, Candidate], ...]:
    """As a record of a whole model has them."""
    return tuple(sorted((key, pick.candidate or defaults[key]) for key, pick in picks.items()))


def graph_digest(graph: Graph) -> str:
    """Of the model's layers and how they hang together; weights do not count."""
    parts = [
        (operator.kind, identity_of(graph, operator).key, operator.inputs, operator.outputs)
        for operator in graph.operators
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:_DIGEST_DIGITS]


def settled(
    graph: Graph,
    decision: Decision,
    fitted: Callable[[Picks], tuple[Sequenced, Sequenced]],
) -> tuple[Sequenced, Decision]:
    """The layers as memory has room for them, and the decision that makes them.

    ``fitted`` gives them before and after memory was looked at. A kernel that memory has no room
    for becomes another one, of which records know nothing: then what is compiled without records
    comes back.
    """
    picks = dict(decision.picks)
    before, after = fitted(picks)
    layers = tuple(identity_of(graph, step.operator).key for step in _steps(after))
    decision = replace(decision, wanted=decision.picks, layers=layers)
    if picks == dict(decision.without):
        return after, decision
    _, base = fitted(decision.without)
    while True:
        lost = {
            key
            for key, wanted, made, known in zip(
                layers, _steps(before), _steps(after), _steps(base), strict=True
            )
            if made.call.kernel not in (wanted.call.kernel, known.call.kernel)
        }
        if not lost:
            return after, replace(decision, picks=picks)
        changed = {key for key in lost if picks[key] != decision.without[key]}
        if not changed:
            # Other layers have taken the room of a layer that is compiled as without records.
            return base, replace(decision, picks=decision.without)
        picks.update({key: decision.without[key] for key in changed})
        before, after = fitted(picks)


def _steps(sequence: Sequence[Step | View]) -> list[Step]:
    return [item for item in sequence if isinstance(item, Step)]
