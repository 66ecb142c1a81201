"""Each moment of a compilation counts for one stage."""

from __future__ import annotations

import itertools

import pytest

from utvm_deploy.compiler import stages
from utvm_deploy.compiler.options import STAGES
from utvm_deploy.compiler.stages import Stages, part_of


def test_work_for_another_stage_counts_for_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(stages.time, "perf_counter", lambda: float(next(clock)))

    @part_of("plan")
    def place() -> str:
        with part_of("schedule"):
            return "placed"

    found: list[tuple[str, str]] = []
    stage = Stages(lambda name, text: found.append((name, text)))
    assert stage.run("memory", place, str.upper) == "placed"
    assert found == [("memory", "PLACED")]
    # One second passes between any two looks at the clock.
    expected = dict.fromkeys(STAGES, 0.0) | {"memory": 2.0, "plan": 2.0, "schedule": 1.0}
    assert stage.seconds == expected
    stage.run("plan", place, str)
    assert stage.seconds == expected | {"plan": 6.0, "schedule": 2.0}


def test_a_stage_that_fails_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(stages.time, "perf_counter", lambda: float(next(clock)))
    stage = Stages(None)
    with pytest.raises(ZeroDivisionError):
        stage.run("import", lambda: 1 // 0, str)
    with part_of("plan"):
        pass
    assert stage.seconds == dict.fromkeys(STAGES, 0.0) | {"import": 1.0}
