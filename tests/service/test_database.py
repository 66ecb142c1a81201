"""The server's database: lists, jobs that end once, versions, a full disk, killed processes."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from stored_jobs import BEGIN, BOARDS, VERBS, digest, fill, key_of

from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import (
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    Job,
    JobFile,
    Model,
    ModelFacts,
    ModelUse,
    TensorSummary,
)
from utvm_deploy.service.server.store.refusals import NoRoom

HERE = Path(__file__).parent
JOBS, MODELS = 2_000, 40
TENSORS = (TensorSummary("x", "int8", (1, 49, 10)),)
FACTS = ModelFacts(3, {"CONV_2D": 2, "SOFTMAX": 1}, 7, 8, 9, TENSORS, TENSORS)
MODEL = Model(digest(1), "kws.tflite", 5, BEGIN, FACTS)
JOB = Job(key_of(1), "tune", "host", (MODEL,), {"trials": 4}, QUEUED, BEGIN)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "service.sqlite") as opened:
        yield opened


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with Database(tmp_path_factory.mktemp("full") / "service.sqlite") as opened:
        fill(opened, JOBS, MODELS)
        yield opened


class Watched:
    """The statements that readers of a database get."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        take = database._connections._take

        def watched() -> sqlite3.Connection:
            connection = take()
            connection.set_trace_callback(self.statements.append)
            return connection

        monkeypatch.setattr(database._connections, "_take", watched)

    def queries(self) -> list[str]:
        """With their values; and forgets them."""
        found = [one for one in self.statements if one.startswith("SELECT")]
        self.statements.clear()
        return found


def test_what_was_stored_comes_back(tmp_path: Path) -> None:
    files = (JobFile("a.tar", digest(8), 3), JobFile("log.txt", digest(9), 4))
    with Database(tmp_path / "d.sqlite") as database:
        database.add_model(MODEL, [JobFile("graph.svg", digest(7), 2)])
        database.add_jobs([JOB])
        assert database.change_job(JOB.key, at_attempt=0, attempt=1, state=RUNNING, done=3)
        assert database.finish_job(JOB.key, 1, files, state=DONE, finished=BEGIN + 1, exit_code=0)
    with Database(tmp_path / "d.sqlite") as database:
        assert database.model(MODEL.sha256) == MODEL
        assert database.model_files(MODEL.sha256) == (JobFile("graph.svg", digest(7), 2),)
        job = database.job(JOB.key)
        assert job is not None and job.models == (MODEL,) and job.files == files
        assert (job.state, job.options, job.progress.done) == (DONE, {"trials": 4}, 3)
        assert database.model_uses([MODEL.sha256, digest(2)]) == {MODEL.sha256: ModelUse(1, BEGIN)}


def test_a_job_ends_once(database: Database) -> None:
    database.add_model(MODEL)
    database.add_jobs([JOB])
    database.change_job(JOB.key, attempt=2)
    late = [JobFile("late", digest(3), 1)]
    assert not database.finish_job(JOB.key, 1, late, state=FAILED, finished=BEGIN)
    assert database.finish_job(JOB.key, 2, [], state=DONE, finished=BEGIN)
    assert not database.finish_job(JOB.key, 2, late, state=FAILED, finished=BEGIN)
    assert not database.change_job(JOB.key, state=QUEUED)
    job = database.job(JOB.key)
    assert job is not None and (job.state, job.files) == (DONE, ())


def test_a_job_keeps_the_name_that_its_model_had(database: Database) -> None:
    database.add_model(MODEL)
    database.add_jobs([JOB])
    database.add_model(replace(MODEL, name="other.tflite"))
    job = database.job(JOB.key)
    assert job is not None and job.models[0].name == "kws.tflite"
    assert database.models()[0].name == "other.tflite"


def test_a_request_that_is_repeated_makes_no_second_jobs(database: Database) -> None:
    database.add_model(MODEL)
    asked = [replace(JOB, key=key_of(n), request="r1", created=BEGIN + n) for n in range(3)]
    assert database.add_jobs(asked) == asked
    again = [replace(one, key=key_of(n + 10)) for n, one in enumerate(asked)]
    assert [job.key for job in database.add_jobs(again)] == [job.key for job in asked]
    assert database.counts() == {QUEUED: 3}


def test_jobs_are_added_together_or_not_at_all(database: Database) -> None:
    database.add_model(MODEL)
    with pytest.raises(UtvmError):
        database.add_jobs([JOB, JOB])
    assert database.jobs() == []


@pytest.mark.parametrize("page", [1, 7, 500])
def test_pages_of_a_list_are_the_whole_list(full: Database, page: int) -> None:
    wanted = [key_of(n) for n in reversed(range(JOBS)) if n % 10 == 9 and n % 5 == 4]
    found: list[str] = []
    while len(found) < 60:
        jobs = full.jobs(state=FAILED, verb="bundle", before=found[-1] if found else "", most=page)
        if not jobs:
            break
        found += [job.key for job in jobs]
    assert found == wanted[: len(found)] and len(found) >= 60
    last = full.models(before=digest(5), most=page)
    assert [model.sha256 for model in last] == [digest(n) for n in (4, 3, 2, 1, 0)][:page]


def test_a_page_after_a_job_that_is_gone_is_refused(full: Database) -> None:
    with pytest.raises(UsageError, match="begin the list again"):
        full.jobs(before="ffffffffffff")
    with pytest.raises(UsageError, match="begin the list again"):
        full.models(before=digest(10**9))


@pytest.mark.slow
def test_filters_agree_with_a_search_by_hand(full: Database) -> None:
    every = full.jobs(most=JOBS)
    assert len(every) == JOBS
    since = BEGIN + JOBS // 2
    for state, board, verb, model in itertools.product(
        ("", FAILED), ("", BOARDS[1]), ("", VERBS[2]), ("", digest(3), digest(9))
    ):
        found = full.jobs(state=state, board=board, verb=verb, model=model, since=since, most=JOBS)
        assert found == [
            job
            for job in every
            if job.created >= since
            and (not state or job.state == state)
            and (not board or job.board == board)
            and (not verb or job.verb == verb)
            and (not model or job.models[0].sha256 == model)
        ]


def test_a_list_of_a_hundred_jobs_takes_three_queries(
    full: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(full, monkeypatch)
    assert len(full.jobs(most=100)) == 100
    assert len(watched.queries()) == 3


def test_no_query_reads_a_whole_table(full: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each uses an index that also has its order."""
    watched = Watched(full, monkeypatch)
    for state, board, verb, model, request, since, before in itertools.product(
        ("", FAILED), ("", BOARDS[1]), ("", VERBS[2]), ("", digest(3)), ("", "r"),
        (None, BEGIN + 5), ("", key_of(1000)),
    ):  # fmt: skip
        full.jobs(
            state=state,
            board=board,
            verb=verb,
            model=model,
            request=request,
            since=since,
            before=before,
        )
    full.oldest_jobs(QUEUED, 5)
    full.oldest_jobs(QUEUED, 5, board=BOARDS[0])
    full.ended_jobs(BEGIN + 9, 5)
    full.queue.waiting()
    full.queue.oldest(BOARDS[0], VERBS, 5)
    full.queue.oldest(None, ["inspect"], 5)
    full.queue.unended()
    full.counts()
    full.board_counts()
    full.models()
    full.models(before=digest(3))
    full.model_files(digest(3))
    full.model_uses([digest(n) for n in range(20)])
    full.is_file_used(digest(3))
    full.unused_models(BEGIN + 9, 5)
    queries = watched.queries()
    assert len(queries) > 128
    with closing(sqlite3.connect(full.path)) as connection:
        for query in queries:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
            for step in plan:
                is_whole = (
                    step.startswith("SCAN") and "INDEX" not in step and "CONSTANT" not in step
                )
                # The few queued jobs of the verbs that need no board are sorted.
                is_sorted = "B-TREE FOR ORDER BY" in step and "jobs_queued" not in plan[0]
                assert not is_whole and not is_sorted, (query, plan)


@pytest.mark.slow
def test_readers_see_whole_changes_and_do_not_wait(database: Database) -> None:
    """A thread makes a job and its file together; readers never see one without the other."""
    database.add_model(MODEL)
    count, is_over, wrong = 60, threading.Event(), list[Job]()

    def read() -> None:
        while not is_over.is_set():
            wrong.extend(job for job in database.jobs() if len(job.files) != 1)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        for number in range(count):
            with database._connections.changing():
                database.add_jobs([replace(JOB, key=key_of(number), created=BEGIN + number)])
                # Readers answer while this change is open.
                if number % 20 == 0:
                    other = threading.Thread(target=database.jobs)
                    other.start()
                    other.join(30)
                    assert not other.is_alive()
                database.finish_job(
                    key_of(number), 0, [JobFile("a", digest(1), 1)], state=DONE, finished=BEGIN
                )
    finally:
        is_over.set()
        for reader in readers:
            reader.join()
    assert wrong == [] and database.counts() == {DONE: count}


def test_a_file_of_version_1_is_brought_to_today(tmp_path: Path) -> None:
    path = tmp_path / "service.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((HERE / "version_1.sql").read_text())
    with Database(path) as database:
        found = {job.key[-1]: job for job in database.jobs()}
        assert [found[k].state for k in "1234"] == [RUNNING, DONE, FAILED, QUEUED]
        tune, done = found["1"], found["2"]
        assert [model.name for model in tune.models] == ["kws.tflite", "digits.tflite"]
        assert (tune.progress.done, tune.worker, tune.attempt) == (3, "desk", 1)
        assert [file.name for file in done.files] == ["model.tar", "result.json"]
        assert done.run == "0123456789abcdef" and found["3"].reason == "it's broken"
        assert {job.key[-1] for job in database.jobs(model="b2" * 32)} == {"1", "3", "4"}
        assert [model.name for model in database.models()] == ["digits.tflite", "kws.tflite"]
        assert database.models()[0].facts is None
        # It is used as any other.
        database.add_jobs([replace(JOB, models=tuple(database.models()), key="f" * 12)])
        assert database.jobs(model="b2" * 32)[-1].key == "f" * 12


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "service.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UtvmError, match="newer utvm"), Database(path):
        pass


@pytest.mark.parametrize("content", [b"no database at all, but long enough " * 99, b"SQLite f"])
def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "service.sqlite"
    path.write_bytes(content)
    with pytest.raises(UtvmError, match="--data") as caught, Database(path) as database:
        database.jobs()
    assert "\n" not in str(caught.value)


def test_a_full_disk_stores_nothing_by_halves(database: Database) -> None:
    database.add_model(MODEL)
    database.add_jobs([JOB])
    writer = database._connections._open_writer()
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    many = [JobFile(f"{n} {'x' * 500}", digest(n), 1) for n in range(100)]
    with pytest.raises(NoRoom, match="make room"):
        database.finish_job(JOB.key, 0, many, state=DONE, finished=BEGIN)
    job = database.job(JOB.key)
    assert job is not None and (job.state, job.files) == (QUEUED, ())
    # There is room again.
    writer.execute("PRAGMA max_page_count = 100000")
    assert database.finish_job(JOB.key, 0, many, state=DONE, finished=BEGIN)
    job = database.job(JOB.key)
    assert job is not None and len(job.files) == len(many)


_WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from stored_jobs import *
from utvm_deploy.service.server.store.facts import *
with Database(Path(sys.argv[1])) as database:
    database.add_model(model := Model(digest(1), "m", 1, BEGIN))
    for number in range(int(sys.argv[2]), 10**9):
        key = key_of(number)
        with database._connections.changing():
            database.add_jobs([Job(key, "tune", "host", (model,), {}, QUEUED, BEGIN + number)])
            files = [JobFile(f"{n}", digest(n), 1) for n in range(5)]
            database.finish_job(key, 0, files, state=DONE, finished=BEGIN)
        print(key, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_a_killed_writer_leaves_whole_jobs(tmp_path: Path, kills: int) -> None:
    """Every job that the writer reported as stored is there, with all its files."""
    path = tmp_path / "service.sqlite"
    told = 0
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(told + 100)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"},
        )
        with writer:
            assert writer.stdout is not None
            for _ in range(10):
                told = int(writer.stdout.readline(), 16)
            writer.send_signal(signal.SIGKILL)
            told = max([told, *(int(line, 16) for line in writer.stdout if len(line) == 13)])
        with Database(path) as database:
            assert database.job(key_of(told)) is not None
            assert {len(job.files) for job in database.jobs(most=10**6)} == {5}
            told = int(database.jobs(most=1)[0].key, 16)


def test_files_of_a_deleted_job_are_left_out(database: Database) -> None:
    database.queue.add_files(JOB.key, [JobFile("log.txt", digest(2), 3)])
    database.add_model(MODEL)
    database.add_jobs([JOB])
    database.queue.add_files(JOB.key, [JobFile("log.txt", digest(2), 3)])
    stored = database.job(JOB.key)
    assert stored is not None and stored.files == (JobFile("log.txt", digest(2), 3),)
