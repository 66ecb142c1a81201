"""Trials of a records file count as long as their C is emitted today."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tune_cases import small_works

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.device import connect
from utvm_deploy.records import NO_CODE, Measurement, Record, Setting
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0
from utvm_deploy.tuning.measuring import current as module
from utvm_deploy.tuning.measuring.current import code_of, current
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import tune

CORE = "cortex-m4"
SETTING = Setting(CORE, "gcc", "-O3", "0.2.0", "instructions")
OTHER = "0123456789ab"


def trials(work: Work, count: int) -> list[Record]:
    """Of the first candidates, the default first; the last one is the fastest."""
    return [
        Record(
            work.kernel,
            SETTING,
            candidate,
            Measurement(100 - ticks, 100.0 - ticks),
            is_default=candidate == work.default,
            code=code_of(work, CORE, candidate),
        )
        for ticks, candidate in enumerate(work.candidates[:count])
    ]


def test_one_that_differs_has_all_of_its_kernel_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = next(one for one in small_works(tmp_path, CORE) if len(one.candidates) > 3)
    default, *others, fastest = known = trials(work, 4)
    generated: list[Candidate] = []

    def counted(work: Work, core: str, candidate: Candidate) -> str:
        generated.append(candidate)
        return code_of(work, core, candidate)

    monkeypatch.setattr(module, "code_of", counted)
    assert current(work, known, CORE) == known
    assert set(generated) == {default.candidate, fastest.candidate}
    # Of the others nobody asks, which saves minutes with hundreds of trials.
    unasked = [default, replace(others[0], code=OTHER), fastest]
    assert current(work, unasked, CORE) == unasked
    for stale in (default, fastest):
        changed = [replace(one, code=OTHER) if one is stale else one for one in known]
        changed[1] = replace(changed[1], code=OTHER)
        rest = [one for one in known if one not in (stale, known[1])]
        assert current(work, changed, CORE) == rest


def test_codes_of_older_versions_and_other_libraries_do_not_count(tmp_path: Path) -> None:
    work = small_works(tmp_path, CORE)[0]
    (known,) = trials(work, 1)
    theirs = replace(known, candidate=Candidate("cmsis-nn"), code="of the library")
    old = [replace(known, code=code) for code in ("", *CODES_OF_0_2_0.values())]
    ours, other = {"cmsis-nn": "of the library"}, {"cmsis-nn": "of another one"}
    assert current(work, [*old, known, theirs], CORE, ours) == [known, theirs]
    assert current(work, [*old, known, theirs], CORE, other) == [known]
    assert current(work, [*old, known, theirs], CORE, {"backend-one": "of the library"}) == [known]
    assert current(work, [], CORE) == []


def test_a_candidate_without_code_is_not_tried_again(tmp_path: Path) -> None:
    work = small_works(tmp_path, CORE)[0]
    odd = Candidate.of(work.default.family, method="later")
    assert code_of(work, CORE, odd) == NO_CODE
    error = Measurement(error="compile error")
    record = replace(trials(work, 1)[0], candidate=odd, measurement=error, code=NO_CODE)
    assert current(work, [record], CORE) == [record]


@pytest.mark.tools
def test_tuning_writes_the_digest_of_each_trial(tmp_path: Path) -> None:
    works = small_works(tmp_path, "host")
    by_key = {work.kernel.key: work for work in works}
    path = tmp_path / "r.jsonl"
    with connect("host") as device, RecordsFile(path) as file:
        tune(works, device, file, trials=12)
        written = list(file.records)
        assert len(written) >= 12
        for record in written:
            assert record.code == code_of(by_key[record.kernel.key], "host", record.candidate)
        # A kernel whose C is another one now is measured again.
        key = written[0].kernel.key
        changed = [replace(one, code=OTHER) if one.kernel.key == key else one for one in written]
    path.write_text("".join(f"{one.to_line()}\n" for one in changed))
    with connect("host") as device, RecordsFile(path) as file:
        found = tune(works, device, file, trials=12)
        again = list(file.records)[len(changed) :]
    assert found.trials >= 12
    assert again and {one.kernel.key for one in again} >= {key}
    assert all(one.code != OTHER for one in again)


def test_unsupported_candidates_raise_where_c_is_asked_for(tmp_path: Path) -> None:
    from utvm_deploy.compiler.lowering.kernel_function import candidate_function

    work = small_works(tmp_path, CORE)[0]
    with pytest.raises(UnsupportedOperator):
        candidate_function(
            work.graph, work.operator, CORE, Candidate.of(work.default.family, method="later")
        )
