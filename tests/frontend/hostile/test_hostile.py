"""Hostile files end in a graph or in one sentence: no traceback, no hang, no crash."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from random_models.oracle import Oracle, OracleDies, OracleRefuses
from random_models.runner import samples_of_shapes

from hostile.mutations import MUTATIONS, mutant
from hostile.run import attempts
from utvm_deploy.base.errors import ModelError, VerifyError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

QUICK, LONG = 200, 5_000


def check(first: int, count: int) -> None:
    counts: Counter[str] = Counter()
    for attempt in attempts(first, count):
        assert not attempt.is_fault, attempt
        counts[attempt.verdict] += 1
    assert sum(counts.values()) == count
    # Both happen: what changes only a weight is not damage.
    assert counts["compiled"] > count // 50 and counts["refused"] > count // 4


def test_hostile_files_end_in_a_sentence() -> None:
    check(0, QUICK)


@pytest.mark.soak
def test_many_hostile_files_end_in_a_sentence() -> None:
    check(10_000, LONG)


def test_a_number_is_one_file() -> None:
    files = [mutant(number) for number in range(40)]
    assert files == [mutant(number) for number in range(40)]
    assert {how for how, _ in files} == set(MUTATIONS)


def test_the_oracle_cannot_take_us_down(tmp_path: Path) -> None:
    """Whatever LiteRT does with a file that we import, it does in a child."""
    path = tmp_path / "hostile.tflite"
    answered = Counter[str]()
    with Oracle() as oracle:
        for number in range(1, 400, 2):  # mutated fields
            path.write_bytes(mutant(number)[1])
            try:
                graph = load_model(path)
            except ModelError:
                continue
            shapes = [(graph.tensors[i].shape, graph.tensors[i].dtype) for i in graph.inputs]
            samples = samples_of_shapes(np.random.default_rng(0), shapes)
            try:
                oracle.run(path, samples)
                answered["run"] += 1
            except (OracleRefuses, OracleDies) as exc:
                answered[type(exc).__name__] += 1
    assert answered["run"] and answered["OracleRefuses"], answered


def test_a_file_that_kills_the_oracle_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    with pytest.raises(VerifyError, match=r"m\.tflite") as caught:
        run_reference(path, [np.zeros(1, np.int8)])
    assert "\n" not in str(caught.value)


def test_inspect_has_a_table_or_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "hostile.tflite"
    tables = 0
    for number in range(200):
        path.write_bytes(mutant(number)[1])
        code = main(["inspect", str(path)])
        captured = capsys.readouterr()
        assert code in (0, 1), number
        is_refused = captured.err.startswith("error: ")
        assert bool(captured.out) != is_refused, number
        tables += code == 1 and not is_refused
    assert tables > 5
