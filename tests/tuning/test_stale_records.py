"""A record is stale where today's generators emit another C for its kernel, and only there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.planning import decision
from utvm_deploy.compiler.planning import planner as planning
from utvm_deploy.compiler.planning.decision import (
    Decision,
    Known,
    candidates_of,
    default_candidates,
    graph_digest,
    shipped_records,
)
from utvm_deploy.compiler.planning.stale import MOST_CHOICES
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.compiler.stages.request import Watch
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.records import NEAREST, RECORD, Measurement, ModelRecord, Record, Records
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0

BOARD = load_board("mps2_an500")
CORE = BOARD.cpu.kernel_core
MODEL = data_dir("models") / "digits.tflite"
RECORDS = list(shipped_records(CORE))
OTHER = "0123456789ab"


@pytest.fixture(name="compiled_with")
def _compiled_with(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[Record], Record]], tuple[CompiledModel, Decision]]:
    """Compiles a model by shipped records that are changed."""

    def compiled(change: Callable[[Record], Record]) -> tuple[CompiledModel, Decision]:
        changed = Records(change(record) for record in RECORDS)
        monkeypatch.setattr(decision, "shipped_records", lambda core: changed)
        return compiled_model()

    return compiled


def compiled_model(own: Records | None = None) -> tuple[CompiledModel, Decision]:
    decisions: list[Decision] = []
    made = compile_model(
        MODEL, BOARD, CompileOptions(records=own, is_trial=True), Watch(decided=decisions.append)
    )
    return made, decisions[-1]


def by_record(compiled: CompiledModel) -> list[Layer]:
    return [layer for layer in compiled.layers if layer.origin == RECORD]


def known_layers(found: Decision) -> list[str]:
    """Keys of the layers whose kernels have shipped records."""
    known = {record.kernel.key for record in RECORDS}
    return [key for key in found.layers if key in known]


def test_shipped_records_are_of_the_code_that_a_compile_emits() -> None:
    compiled, found = compiled_model()
    assert len(by_record(compiled)) == len(known_layers(found)) > 1
    records = {(one.kernel.key, one.candidate): one.code for one in RECORDS}
    for key in known_layers(found):
        candidate = found.picks[key].candidate
        assert candidate is not None and found.codes[key] == records[key, candidate]


Compiled = Callable[[Callable[[Record], Record]], tuple[CompiledModel, Decision]]


def test_a_record_of_other_code_is_stale_for_its_kernel_alone(compiled_with: Compiled) -> None:
    _, found = compiled_model()
    known = set(known_layers(found))
    slow = next(one for one in RECORDS if one.kernel.key in known and not one.is_default)
    key, label = slow.kernel.key, slow.candidate.label
    fast = replace(slow, measurement=Measurement(1, 1.0))
    before, found = compiled_with(lambda record: fast if record == slow else record)
    assert found.picks[key].candidate == slow.candidate
    stale = replace(fast, code=OTHER)
    after, again = compiled_with(lambda record: stale if record == slow else record)
    # The fastest of those that hold.
    assert again.picks[key].candidate not in (slow.candidate, None)
    for one, layer, other in zip(again.layers, after.layers, before.layers, strict=True):
        assert (f"stale, because its code has changed: the record of {label}" in layer.why) == (
            one == key
        )
        assert layer.origin == other.origin
        assert one == key or layer.why == other.why
    assert RECORD in {layer.origin for layer in after.layers if "stale" in layer.why}


def test_of_a_kernel_whose_records_are_all_stale_the_fastest_is_taken(
    compiled_with: Compiled,
) -> None:
    before, found = compiled_model()
    keys = [record.kernel.key for record in RECORDS]
    key = next(one for one in found.layers if keys.count(one) > 1)

    def change(record: Record) -> Record:
        return replace(record, code=OTHER) if record.kernel.key == key else record

    after, again = compiled_with(change)
    assert again.picks[key].candidate == found.picks[key].candidate
    layer = after.layers[again.layers.index(key)]
    assert layer.origin == NEAREST and "stale, because its code has changed" in layer.why
    assert len(by_record(after)) == len(by_record(before)) - again.layers.count(key)


def test_choosing_again_ends(compiled_with: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records are stale."""
    decided: list[Known] = []

    def counted(graph: Graph, board: Board, family: str, known: Known, *rest: str) -> Decision:
        decided.append(known)
        return decision.decide(graph, board, family, known, *rest)

    monkeypatch.setattr(planning, "decide", counted)
    compiled, found = compiled_with(lambda record: replace(record, code=OTHER))
    assert 1 < len(decided) <= MOST_CHOICES + 1
    assert not by_record(compiled) and len(known_layers(found)) > 1


@pytest.mark.parametrize("code", ["", *CODES_OF_0_2_0.values()])
def test_records_of_older_versions_choose_where_nothing_else_is_known(
    code: str, compiled_with: Compiled
) -> None:
    before, _ = compiled_model()
    compiled, _ = compiled_with(lambda record: replace(record, code=code))
    assert [layer.kernel for layer in compiled.layers] == [one.kernel for one in before.layers]
    origins = {layer.origin for layer in compiled.layers}
    assert RECORD not in origins and NEAREST in origins


def test_a_whole_model_of_other_code_does_not_decide() -> None:
    _, base = compiled_model()
    graph = replace(simplify(load_model(MODEL)), name=MODEL.stem)
    candidates = dict(candidates_of(base.without, default_candidates(graph, CORE)))
    key, slower = next(
        (record.kernel.key, record.candidate)
        for record in RECORDS
        if candidates.get(record.kernel.key, record.candidate) != record.candidate
    )

    def whole(taken: dict[str, Candidate], ticks: int, codes: dict[str, str]) -> ModelRecord:
        return ModelRecord(
            graph_digest(graph),
            graph.name,
            RECORDS[0].setting,
            BOARD.name,
            "stack",
            tuple(sorted(taken.items())),
            tuple(sorted(codes.items())),
            Measurement(ticks, float(ticks)),
        )

    first = whole(candidates, 1000, dict(base.codes))
    other = {**candidates, key: slower}
    shipped = {(one.kernel.key, one.candidate): one.code for one in RECORDS}
    codes = {**base.codes, key: shipped[key, slower]}

    def taken(*model_records: ModelRecord) -> Candidate | None:
        return compiled_model(Records(model_records))[1].picks[key].candidate

    assert taken(first, whole(other, 900, codes)) == slower
    assert taken(first, whole(other, 900, {**codes, key: OTHER})) == candidates[key]
    # As version 0.2.0 wrote them.
    old = {"dsp": CODES_OF_0_2_0["dsp"]}
    assert taken(first, whole(other, 900, old)) == candidates[key]


PROGRAM = """
import json, sys
from pathlib import Path
import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
assert Path(utvm_deploy.__file__).is_relative_to(sys.argv[1])
options = CompileOptions(flash_rate=0)
found = compile_model(sys.argv[2], load_board(sys.argv[3]), options)
print(json.dumps([[layer.origin, layer.why] for layer in found.layers]))
"""


@pytest.mark.slow
def test_names_docstrings_and_files_of_generators_leave_records_current(tmp_path: Path) -> None:
    package = Path(utvm_deploy.__file__).parent
    copied = tmp_path / package.name
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(package, copied, ignore=ignored)
    for name in ("boards", "templates", "models"):
        if (package.parent / name).is_dir():
            (tmp_path / name).symlink_to(package.parent / name)
    sources = {path: edited(path.read_text(encoding="utf-8")) for path in copied.rglob("*.py")}
    moved = {
        path: f"{'.'.join(path.parent.relative_to(tmp_path).parts)}.{path.stem}"
        for path in (copied / "kernels").rglob("*.py")
        if path.stem != "__init__"
    }
    imports = re.findall(r"from ([\w.]+) import (.+)$", "\n".join(sources.values()), re.M)
    taken = {f"{source}.{name}" for source, names in imports for name in re.findall(r"\w+", names)}
    moved = {path: module for path, module in moved.items() if module not in taken}
    assert len(moved) > 10
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, moved.values()))})\b(?![.])")
    for path, text in sources.items():
        path.unlink()
        place = path.with_stem(f"{path.stem}_elsewhere") if path in moved else path
        place.write_text(pattern.sub(r"\1_elsewhere", text), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(MODEL), BOARD.name],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled, _ = compiled_model()
    assert json.loads(done.stdout) == [[one.origin, one.why] for one in compiled.layers]


def edited(text: str) -> str:
    """The module with other docstrings, no comments and another layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value.value = "Said otherwise."
    return ast.unparse(tree) + "\n\n# And a comment.\n"
