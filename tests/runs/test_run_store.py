"""The store of runs: what is kept, what is found, and what is refused."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.results.runs import store as store_module
from utvm_deploy.results.runs.run import ModelFigures, Run, figures_of
from utvm_deploy.results.runs.schema import MIGRATIONS
from utvm_deploy.results.runs.store import RunStore

DIGEST = "da2236d2" + 56 * "0"


def a_run(number: int = 1, *, model: str = "digits", verb: str = "profile", size: int = 1) -> Run:
    figures = ModelFigures(model, DIGEST, "cycles", 1000 + number, 4096, 8192)
    return Run(
        *(f"{number:012x}", verb, float(number), 1.5, 0, "mps2_an500", "abc", (figures,)),
        *({"optimize": "time"}, {"utvm": "0.2.0"}, {"text": os.urandom(size).hex()}),
    )


def test_a_model_that_bench_could_not_compare_has_no_figures() -> None:
    sizes = {"ram_bytes": 10, "flash_bytes": 20}
    good = {"name": "good", "ours": {"cycles": 5, "instructions": 4}, "size": {"ours": sizes}}
    found = figures_of("bench", {"models": [good]}, {"bad": "1", "good": "2"})
    assert found == (ModelFigures("bad", "1"), ModelFigures("good", "2", "cycles", 5, 10, 20))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "runs.sqlite"


def test_a_run_comes_back_as_it_was(path: Path) -> None:
    with RunStore(path) as store:
        store.add(a_run())
    with RunStore(path) as store:
        found = store.get("00000000000")
    assert found.models == a_run().models
    assert (found.started, found.options) == (1.0, {"optimize": "time"})
    assert set(found.result) == {"text"}


def test_runs_are_found_by_model_board_and_verb_the_newest_first(path: Path) -> None:
    with RunStore(path) as store:
        for number, (model, verb) in enumerate(
            [("digits", "profile"), ("kws", "profile"), ("digits", "verify")], 1
        ):
            store.add(a_run(number, model=model, verb=verb))

        def keys(**asked: str) -> list[int]:
            return [int(run.key, 16) for run in store.find(**asked)]

        assert keys() == [3, 2, 1]
        assert keys(model="digits") == [3, 1]
        assert keys(model="digits", verb="verify") == [3]
        assert keys(model=DIGEST[:8]) == [3, 2, 1]
        assert keys(board="host") == []
        assert [run.key for run in store.find(most=1)] == [a_run(3).key]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("00", "too short"),
        ("ffff", "has no run ffff"),
        ("0000", "2 runs begin with 0000"),
        ("00%%", "has no run"),
    ],
)
def test_a_run_that_is_not_there_is_one_sentence(path: Path, key: str, message: str) -> None:
    with RunStore(path) as store:
        store.add(a_run(1))
        store.add(a_run(2))
        with pytest.raises(UtvmError, match=message):
            store.get(key)


def test_the_oldest_runs_go_when_the_database_is_too_large(path: Path) -> None:
    with RunStore(path, most_bytes=200_000) as store:
        for number in range(1, 41):
            store.add(a_run(number, size=20_000))
        kept = [run.started for run in store.find()]
        models = store._database.execute("SELECT count(*) FROM models").fetchone()
    assert kept[0] == 40.0
    assert kept == sorted(kept, reverse=True)
    assert models == (len(kept),)
    assert 2 < len(kept) < 20
    assert path.stat().st_size <= 260_000


def test_no_more_runs_go_than_one_of_ten(path: Path) -> None:
    counts = [0]
    with RunStore(path, most_bytes=1_000_000) as store:
        while len(counts) < 3 or counts[-1] > counts[-2]:
            store.add(a_run(len(counts), size=20_000))
            counts.append(len(store.find()))
    assert counts[-2] > 20 and counts[-1] >= 0.85 * counts[-2]


def test_a_newer_database_is_refused(path: Path) -> None:
    with RunStore(path):
        pass
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    database.close()
    with pytest.raises(UtvmError, match="newer utvm"), RunStore(path):
        pass


def test_an_older_database_gets_todays_tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore(path) as store:
        store.add(a_run())
    later = (*MIGRATIONS, "ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''")
    monkeypatch.setattr(store_module, "MIGRATIONS", later)
    with RunStore(path) as store:
        assert store.get(a_run().key).models == a_run().models
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT note FROM runs").fetchall() == [("",)]
    database.close()


def test_a_step_that_fails_leaves_the_version_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore(path) as store:
        store.add(a_run())
    broken = (*MIGRATIONS, "CREATE TABLE notes (text TEXT); CREATE TABLE runs (key TEXT)")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MIGRATIONS", broken)
        with pytest.raises(UtvmError, match="already exists"), RunStore(path):
            pass
    with RunStore(path) as store:
        assert len(store.find()) == 1


def test_a_file_that_is_no_database_is_one_sentence(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(UtvmError, match=r"cannot be used: .*; name another file"), RunStore(path):
        pass


def _fill(path: Path, first: int) -> None:
    for number in range(first, first + 10_000):
        with RunStore(path) as store:
            store.add(a_run(number))


@pytest.mark.slow
def test_writers_at_once_lose_nothing_and_a_killed_one_leaves_whole_runs(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_fill, args=(path, n * 100_000 + 1)) for n in range(3)]
    for writer in writers:
        writer.start()
    try:
        with RunStore(path) as store:
            while len(store.find()) < 30:
                # A reader without a pause would keep the writers out.
                time.sleep(0.01)
    finally:
        for writer in writers:
            os.kill(writer.pid or 0, signal.SIGKILL)
            writer.join()
    with RunStore(path) as store:
        found = store.find()
        for start in (1, 100_001, 200_001):
            numbers = sorted(int(r.key, 16) for r in found if 0 <= int(r.key, 16) - start < 10_000)
            assert numbers == list(range(start, start + len(numbers)))
        assert all(run.models and store.get(run.key).result for run in found)


@pytest.mark.parametrize(
    "change",
    [
        "result = x'0102'",
        "result = 'text'",
        "options = '{'",
        "started = 'yesterday'",
        "board = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_run_that_something_else_has_written_is_one_sentence(path: Path, change: str) -> None:
    with RunStore(path) as store:
        store.add(a_run())
        store._database.execute(f"UPDATE runs SET {change}")
        with pytest.raises(UtvmError, match=r"cannot be used: .*; name another file"):
            store.get(a_run().key)


def test_text_that_is_not_unicode_is_refused(path: Path) -> None:
    with RunStore(path) as store, pytest.raises(UtvmError, match="surrogates not allowed"):
        store.add(a_run(model="\udcff"))


def test_a_full_disk_is_told_and_loses_no_run(path: Path) -> None:
    with RunStore(path) as store:
        store.add(a_run(1))
        store._database.execute("PRAGMA max_page_count = 12")
        with pytest.raises(UtvmError, match="disk is full"):
            store.add(a_run(2, size=200_000))
        assert [run.started for run in store.find(most=10**30)] == [1.0]


def test_hosts_that_share_a_folder_can_share_the_database(path: Path) -> None:
    with RunStore(path) as store:
        store.add(a_run())
        assert sorted(one.name for one in path.parent.iterdir()) == [path.name]
