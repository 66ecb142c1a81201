"""A compile with a user's records is never slower than without them, by what is measured."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tune_cases import write_model

from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.options import AUTO, Objective, scratch_place
from utvm_deploy.compiler.picks import Picks
from utvm_deploy.compiler.planning.choice import calls_of
from utvm_deploy.compiler.planning.decision import (
    Decision,
    candidates_of,
    decide,
    default_candidates,
    graph_digest,
    known_records,
    model_of,
    models_of_today,
    settled,
    shipped_records,
)
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.macs import total_macs
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.records import Measurement, ModelRecord, Record, Records, Setting
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0
from utvm_deploy.tuning.measuring.workload import Work, workload

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "cmsis_nn"))
from networks import NETWORKS  # noqa: E402

BOARD = load_board("mps2_an500")
OTHER = load_board("mps2_an386")
OWN = sorted(data_dir("models").glob("*.tflite"))
DIGITS = data_dir("models") / "digits_int8.tflite"
#: Of a record; nothing is emitted here that it could be compared with.
CODE = "0123456789ab"
KINDS = ("random", "adversarial", "partial", "real")


def changed(record: Record, ticks: int, candidate: Candidate | None = None) -> Record:
    """A user's record in the same circumstances as a shipped one."""
    one = candidate or record.candidate
    return replace(
        record,
        candidate=one,
        measurement=Measurement(ticks, float(ticks)),
        is_default=record.is_default and one == record.candidate,
    )


def users_records(kind: str, works: Sequence[Work], core: str, seed: int) -> Iterator[Record]:
    """What somebody may have measured of these kernels."""
    rng = random.Random(f"{kind} {seed}")
    shipped: dict[str, list[Record]] = {}
    for record in shipped_records(core):
        shipped.setdefault(record.kernel.key, []).append(record)
    any_record = next(iter(shipped_records(core)))
    for work in works:
        known = shipped.get(work.kernel.key, [])
        fastest = min((r.measurement.ticks_min for r in known), default=10_000)

        def of(candidate: Candidate, ticks: int, work: Work = work) -> Record:
            return replace(
                any_record,
                kernel=work.kernel,
                candidate=candidate,
                measurement=Measurement(ticks, float(ticks)),
                is_default=candidate == work.default,
                code=CODE,
                scratch_bytes=rng.choice((0, 256, 4096)),
            )

        others = [c for c in work.candidates if c != work.default]
        few = rng.sample(others, min(len(others), 4))
        if kind == "random":
            for candidate in [work.default, *few]:
                yield of(candidate, rng.randrange(fastest // 2, 2 * fastest + 2))
        elif kind == "adversarial":
            # Just what sharing and levelling like: a little slower, with little scratch.
            for candidate in few:
                slower = round(fastest * rng.uniform(1.0, 1.03))
                yield replace(of(candidate, slower), scratch_bytes=0)
            yield of(work.default, round(fastest * 1.01))
        elif kind == "partial":
            # Only some kernels, and of them only the default, or only another one.
            if rng.random() < 0.5:
                wanted = work.default if rng.random() < 0.5 or not few else few[0]
                yield of(wanted, round(fastest * rng.uniform(0.9, 1.5)))
        else:
            for record in rng.sample(known, len(known) // 2):
                yield changed(record, round(record.measurement.ticks_min * 1.001))


def ticks_of(decision: Decision, graph: Graph, records: Sequence[Record]) -> tuple[int, int, int]:
    """Ticks without the records and with them, and how many kernels they change."""
    table: dict[str, dict[Candidate, int]] = {}
    for record in records:
        kernel = table.setdefault(record.kernel.key, {})
        kernel[record.candidate] = record.measurement.ticks_min
    before = after = changes = 0
    defaults = default_candidates(graph, records[0].setting.core)
    for key, pick in decision.picks.items():
        old, new = decision.without[key].candidate, pick.candidate
        known = table.get(key, {})
        one, other = old or defaults[key], new or defaults[key]
        changes += one != other
        if one in known:
            before += known[one]
            # Whoever takes another one knows what it takes.
            after += known[other]
            assert known[other] <= known[one]
    return before, after, changes


@cache
def small_graph(path: Path) -> Graph:
    return simplify(load_model(path))


def check(graph: Graph, board: Board, kinds: Sequence[str]) -> int:
    """Compile decisions of one model; returns how many kernels records changed."""
    core, place = board.cpu.kernel_core, scratch_place(board, AUTO)
    works = workload([graph], core)
    changes = 0
    for seed, kind in enumerate(kinds):
        own = list(users_records(kind, works, core, seed))
        decision = decide(
            graph, board, core, known_records(board, Records(own)), Objective.TIME, place
        )
        before, after, changed_kernels = ticks_of(decision, graph, [*shipped_records(core), *own])
        assert after <= before
        changes += changed_kernels
    return changes


@pytest.mark.parametrize("target", [BOARD, OTHER], ids=lambda one: one.name)
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_models_of_this_repository(path: Path, target: Board) -> None:
    graph = small_graph(path)
    changes = check(graph, target, KINDS)
    # The smallest networks leave nothing to choose.
    assert changes > 0 or total_macs(graph) < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_networks_as_people_build_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(NETWORKS[name]())
    assert check(simplify(load_model(path)), BOARD, KINDS) > 0


REFERENCE_MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")


@pytest.mark.parametrize("name", REFERENCE_MODELS)
def test_reference_models(name: str, shared_models: Path) -> None:
    assert check(simplify(load_model(shared_models / f"{name}.tflite")), BOARD, KINDS) > 0


def one_kernel(graph: Graph) -> tuple[Work, list[Record], Candidate]:
    """A kernel, a user's records of it, and the candidate that they say is fast."""
    core = BOARD.cpu.kernel_core
    work = next(work for work in workload([graph], core) if len(work.candidates) > 3)
    known = known_records(BOARD, None)
    base = decide(graph, BOARD, core, known, Objective.TIME, scratch_place(BOARD, AUTO))
    before = base.picks[work.kernel.key].candidate or work.default
    better = next(c for c in work.candidates if c not in (before, work.default))
    setting = Setting(core, "gcc", "-O3", "0.2.0", "modelled cycles", model_of(BOARD))
    records = [
        Record(
            work.kernel,
            setting,
            candidate,
            Measurement(ticks, float(ticks)),
            BOARD.name,
            candidate == work.default,
            CODE,
        )
        for candidate, ticks in {work.default: 120, before: 100, better: 50}.items()
    ]
    return work, records, better


def decided(graph: Graph, records: Records) -> Decision:
    place = scratch_place(BOARD, AUTO)
    core = BOARD.cpu.kernel_core
    return decide(graph, BOARD, core, known_records(BOARD, records), Objective.TIME, place)


ODD = [
    Candidate("family_of_later"),
    Candidate.of("dsp", pixels="many"),
    Candidate.of("dsp", pixels=-1),
    Candidate.of("generic", later=1),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda one: one.label)
def test_what_no_kernel_can_be_is_not_taken(odd: Candidate) -> None:
    """Records may come from anybody, and from later versions."""
    graph = small_graph(DIGITS)
    _, records, better = one_kernel(graph)
    slow = records[0].measurement
    measured = [replace(one, measurement=slow, is_default=False) for one in records]
    measured.append(replace(measured[0], candidate=odd, measurement=Measurement(1, 1.0)))
    alone = decided(graph, Records(measured))
    assert odd not in {pick.candidate for pick in alone.picks.values()}
    defaults = default_candidates(graph, BOARD.cpu.kernel_core)
    base = candidates_of(alone.without, defaults)
    place = scratch_place(BOARD, AUTO)

    def whole(candidates: dict[str, Candidate], ticks: int) -> ModelRecord:
        return ModelRecord(
            graph_digest(graph),
            "digits",
            records[0].setting,
            BOARD.name,
            place,
            tuple(sorted(candidates.items())),
            (),
            Measurement(ticks, float(ticks)),
        )

    key = records[0].kernel.key
    model_records = [
        whole(dict(base), 1000),
        whole({**dict(base), key: odd}, 10),
        # Not the model's kernels.
        whole(dict(base[1:]), 20),
        whole({**dict(base), "another": odd}, 30),
        whole({**dict(base), key: better}, 900),
    ]
    found = decided(graph, Records([*measured, *model_records]))
    assert found.picks[key].candidate == better


def test_what_the_whole_model_took_decides() -> None:
    graph = small_graph(DIGITS)
    work, records, better = one_kernel(graph)
    key = work.kernel.key
    alone = decided(graph, Records(records))
    assert alone.picks[key].candidate == better
    defaults = default_candidates(graph, BOARD.cpu.kernel_core)

    def whole(picks: Picks, ticks: int, **changes: str) -> ModelRecord:
        candidates = candidates_of(picks, defaults)
        return replace(
            ModelRecord(
                graph_digest(graph),
                "digits",
                records[0].setting,
                BOARD.name,
                scratch_place(BOARD, AUTO),
                candidates,
                tuple((key, CODE) for key, _ in candidates),
                Measurement(ticks, float(ticks)),
            ),
            **changes,
        )

    def taken(*model_records: ModelRecord) -> Candidate | None:
        return decided(graph, Records([*records, *model_records])).picks[key].candidate

    before, after = whole(alone.without, 1000), whole(alone.picks, 1001)
    slow = alone.without[key].candidate
    # Faster alone, slower between the other layers.
    assert taken(before, after) == slow != better
    assert taken(before, replace(after, measurement=Measurement(999, 999.0))) == better
    # Nobody knows what the model takes without it; or it was another model, or another code.
    assert taken(after) == better
    assert taken(replace(before, graph="another"), replace(after, graph="another")) == better
    # As version 0.2.0 wrote it, by family.
    old = (("dsp", CODES_OF_0_2_0["dsp"]),)
    assert taken(replace(before, codes=old), replace(after, codes=old)) == better
    unknown = replace(records[0].setting, model="of yesterday")
    assert taken(replace(before, setting=unknown), replace(after, setting=unknown)) == better


def test_a_record_opens_no_board_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name any board, and a board's name may be a path."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "boards" / f"{BOARD.name}.toml").read_text()
    # A copy whose model would be another one, so that its ticks would count as today's.
    changed_text = text.replace(f'name = "{BOARD.name}"', 'name = "theirs"').replace(
        "dcache_bytes = 4096", "dcache_bytes = 8192"
    )
    Path("theirs.toml").write_text(changed_text)
    theirs = model_of(load_board("theirs.toml"))
    assert theirs != model_of(BOARD)
    _, (record, *_), _ = one_kernel(small_graph(DIGITS))
    named = [replace(record, board=name) for name in ("theirs.toml", "x" * 5000 + ".toml")]
    assert theirs not in models_of_today(BOARD, named)


def test_a_candidate_that_memory_has_no_room_for_gives_way() -> None:
    graph = small_graph(DIGITS)
    core = BOARD.cpu.kernel_core
    work, records, better = one_kernel(graph)
    decision = decided(graph, Records(records))
    key = work.kernel.key
    assert decision.picks[key].candidate == better

    def fitted(picks: Picks) -> tuple[tuple[Step | View, ...], tuple[Step | View, ...]]:
        """Whatever takes the better candidate becomes plain C for want of memory."""
        choose = calls_of(graph, core, picks, Objective.TIME)
        steps = tuple(Step(operator, choose(operator), ()) for operator in graph.operators)
        smaller = tuple(
            replace(step, call=lower(graph, step.operator))
            if identity_of(graph, step.operator).key == key and picks[key].candidate == better
            else step
            for step in steps
        )
        return steps, smaller

    sequence, settled_decision = settled(graph, decision, fitted)
    assert settled_decision.picks[key] == decision.without[key]
    assert settled_decision.wanted[key].candidate == better
    # What other kernels take does not change.
    others = {one: pick for one, pick in decision.picks.items() if one != key}
    assert settled_decision.picks == {**others, key: decision.without[key]}
    steps = [step for step in sequence if isinstance(step, Step)]
    base = calls_of(graph, core, settled_decision.picks, Objective.TIME)
    assert [step.call.kernel for step in steps] == [base(step.operator).kernel for step in steps]


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "unknown"])
def test_a_tuned_model_takes_no_more_cycles(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data_dir("models") / "digits.tflite"
    if name == "unknown":
        # Shapes that no record ships for.
        path = write_model(tmp_path / "unknown.tflite", channels=12)
    records = str(tmp_path / "r.jsonl")
    board = ["--board", BOARD.name, "--json"]

    def said(*command: str) -> dict[str, Any]:
        assert main([*command, *board]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    tuned = said("tune", str(path), "--trials", "30", "--records", records)
    (whole,) = tuned["models"]
    profile = "profile", str(path), "--flash-rate", "0"  # what was measured, at any price
    before = said(*profile)["ticks"]
    after = said(*profile, "--records", records)["ticks"]
    assert after <= before
    if whole["ticks_before"] is not None:
        assert (whole["ticks_before"], whole["ticks_after"]) == (before, after)
    else:
        assert after == before
    if name == "unknown":
        assert whole["changed"] and after < before
        # Nothing is left to do or to measure.
        size = Path(records).stat().st_size
        again = said("tune", str(path), "--trials", "30", "--records", records)
        assert again["models"] == tuned["models"]
        assert Path(records).stat().st_size == size
    for one in tuned["not_followed"]:
        assert one["ticks"] < one["taken_ticks"] and one["reason"]
