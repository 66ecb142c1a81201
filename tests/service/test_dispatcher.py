"""The queue: which job is sent where and when, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_dask import FakeDask, Task
from small_disk import small_disk

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import runs_file
from utvm_deploy.results.runs.run import ModelFigures, Run
from utvm_deploy.results.runs.store import RunStore
from utvm_deploy.service.cluster.job import Outcome
from utvm_deploy.service.server.jobs import dispatcher as module
from utvm_deploy.service.server.jobs.dispatcher import Dispatcher
from utvm_deploy.service.server.jobs.inputs import checked_options
from utvm_deploy.service.server.jobs.verbs import verb_of
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import QUEUED, RUNNING, Job, JobFile, Model
from utvm_deploy.service.server.store.files import Files

TWO_BOARDS = {"core": 2.0, "board:mps2_an500": 2.0, "board:qemu_x86": 2.0}


class Desk:
    """A dispatcher whose steps the test makes, with a cluster whose tasks it ends."""

    def __init__(self, folder: Path, cluster: FakeDask, database: Database) -> None:
        self.folder = folder
        self.cluster = cluster
        self.database = database
        self.files = Files(folder / "files")
        self._count = 0
        self.start_server()

    def start_server(self) -> None:
        """As after kill -9 of an earlier one."""
        self.dispatcher = Dispatcher(self.database, self.files, self.folder / "jobs", self.cluster)
        self.dispatcher.recover()

    def add(self, verb: str, board: str, count: int = 1, **options: Any) -> list[str]:
        content = b"a model"
        digest = self.files.add(content)
        model = Model(digest, "digits.tflite", len(content), 1.0)
        self.database.add_model(model)
        jobs = []
        for _ in range(count):
            self._count += 1
            key = f"{self._count:012x}"
            created = float(self._count)
            jobs.append(Job(key, verb, board, (model,), options, state=QUEUED, created=created))
        self.database.add_jobs(jobs)
        return [job.key for job in jobs]

    def step(self) -> None:
        self.dispatcher.wake()
        self.dispatcher.step(0.0)

    def sent(self) -> list[str]:
        """The keys of jobs that the cluster has."""
        self.step()
        return [task.key for task in self.cluster.running]

    def task(self) -> Task:
        """The one attempt that the cluster has."""
        self.step()
        (task,) = self.cluster.running
        return task

    def job(self, key: str) -> Job:
        job = self.database.job(key)
        assert job is not None
        return job

    def content(self, key: str, name: str) -> bytes:
        (file,) = [file for file in self.job(key).files if file.name == name]
        return self.files.path(file.sha256).read_bytes()


@pytest.fixture
def make_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    monkeypatch.setenv("UTVM_RUNS", str(tmp_path / "runs.sqlite"))
    with Database(tmp_path / "service.sqlite") as database:
        yield lambda **workers: Desk(tmp_path, FakeDask(**workers), database)


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    """A worker with two cores."""
    return make_desk(w=TWO_BOARDS)


def test_many_jobs_of_one_board_do_not_starve_another(desk: Desk) -> None:
    many = desk.add("verify", "mps2_an500", 2000)
    (one,) = desk.add("verify", "qemu_x86")
    (free,) = desk.add("inspect", "")
    assert desk.sent() == [free, many[0]]  # as many as there are cores
    desk.cluster.tasks[0].end()
    assert desk.sent() == [many[0], one]
    desk.cluster.tasks[1].end()
    desk.cluster.tasks[2].end()
    assert desk.sent() == many[1:3]
    assert desk.job(one).state == "done"


def test_jobs_of_one_board_start_in_order_and_only_where_there_is_room(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk(
        a={"core": 8.0, "board:nucleo_f446re": 1.0}, b={"core": 8.0, "board:nucleo_f446re": 1.0}
    )
    keys = desk.add("profile", "nucleo_f446re", 5)
    compiled = desk.add("compile", "nucleo_f446re", 3)
    assert sorted(desk.sent()) == sorted([*keys[:2], *compiled])
    assert {task.worker for task in desk.cluster.tasks if task.spec.runs_on_board} == {"a", "b"}
    next(task for task in desk.cluster.tasks if task.key == keys[0]).end()
    assert keys[2] in desk.sent()


def test_what_others_use_of_a_worker_is_not_given_away(desk: Desk) -> None:
    """A session has the board; a job that was sent would hold up the worker's other tasks."""
    free = desk.cluster.run_on_scheduler
    in_use = {"core": 1.0, "board:mps2_an500": 2.0}
    desk.cluster.run_on_scheduler = lambda _: {"w": (TWO_BOARDS, in_use, frozenset())}  # type: ignore[method-assign]
    (held,) = desk.add("verify", "mps2_an500")
    other = desk.add("verify", "qemu_x86", 2)
    # The answer does not show the job that was just sent, because its message is on the way.
    assert desk.sent() == other[:1]
    assert desk.sent() == other[:1]
    desk.cluster.run_on_scheduler = free  # type: ignore[method-assign]
    assert sorted(desk.sent()) == sorted([held, other[0]])


def test_a_job_for_a_board_that_nobody_has_says_so(desk: Desk) -> None:
    keys = desk.add("verify", "nucleo_f446re", 3)
    (compiled,) = desk.add("compile", "nucleo_f446re")
    assert desk.sent() == [compiled]
    for key in keys:
        job = desk.job(key)
        assert job.state == "queued"
        assert job.reason == "no worker offers the board nucleo_f446re now"
    desk.cluster.workers["late"] = {"core": 1.0, "board:nucleo_f446re": 1.0}
    assert desk.sent() == [compiled, keys[0]]
    assert {desk.job(key).reason for key in keys} == {""}
    desk.cluster.workers.clear()
    (more,) = desk.add("inspect", "")
    desk.step()
    assert desk.job(more).reason == "no worker is connected now"


def test_a_job_of_a_newer_server_waits_and_says_why(desk: Desk) -> None:
    (strange,) = desk.add("quantize", "host")
    (key,) = desk.add("compile", "host")
    assert desk.sent() == [key]
    assert desk.job(strange).reason == "this server knows no verb quantize"


def test_an_attempt_goes_on_with_what_the_lost_one_had_told(desk: Desk) -> None:
    digest = desk.files.add(b"earlier\n")
    (key,) = desk.add("tune", "mps2_an500", trials=9, records=digest)
    first = desk.task()
    assert first.spec.files["records.jsonl"] == b"earlier\n"
    first.start()
    first.tell({"lines": "one\ntwo\n", "log": "begun\n"})
    desk.step()
    assert desk.job(key).state == "running"
    del desk.cluster.workers["w"]
    desk.cluster.workers["other"] = TWO_BOARDS
    desk.step()
    first.future.cancel()
    job = desk.job(key)
    assert (job.state, job.reason) == ("queued", "its worker the desk w was lost; it starts again")
    second = desk.task()
    assert (second.spec.attempt, second.worker) == (2, "other")
    assert second.spec.files["records.jsonl"] == b"earlier\none\ntwo\n"
    # The worker was only cut off: what it says late counts for nothing.
    first.tell({"lines": "late\n"})
    second.start()
    second.tell({"lines": "two\nthree\n", "log": "again\n"})
    desk.step()
    records = {"records.jsonl": b"earlier\none\ntwo\nthree\n"}
    second.end(Outcome(0, b"{}", b"again\n", records, worker="other"))
    desk.step()
    job = desk.job(key)
    assert (job.state, job.attempt, job.reason) == ("done", 2, "")
    assert desk.content(key, "records.jsonl") == b"earlier\none\ntwo\nthree\n"
    # Who follows the log reads on where he was.
    lost = b"[attempt 1: its worker the desk w was lost; it starts again]\n"
    assert desk.content(key, "log.txt") == b"begun\n" + lost + b"again\n"


def test_a_job_that_takes_its_worker_along_three_times_fails(desk: Desk) -> None:
    (key,) = desk.add("tune", "mps2_an500", trials=9)
    for attempt in (1, 2, 4):
        task = desk.task()
        assert task.spec.attempt == attempt
        task.start()
        task.tell({"lines": f"trial {attempt}\n"})
        if attempt > 1:
            # The worker of the first attempt was only cut off.
            desk.cluster.tasks[0].tell({"lines": "late\n", "log": "late\n"})
        desk.step()
        task.future.cancel()
        if attempt == 2:
            # A new server remembers the losses. A job that was sent but never ran does not count.
            desk.task().future.cancel()
            desk.start_server()
    assert desk.sent() == []
    job = desk.job(key)
    assert job.state == "failed"
    assert job.reason == "it was lost 3 times; the last time: its worker the desk w was lost"
    assert desk.content(key, "records.jsonl") == b"trial 1\ntrial 2\ntrial 4\n"
    assert desk.content(key, "log.txt").count(b"\n") == 3


def test_a_worker_that_is_lost_before_the_job_starts_is_no_death_of_the_job(desk: Desk) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    for attempt in range(1, 6):
        task = desk.task()
        assert task.spec.attempt == attempt
        task.future.cancel()
    assert desk.sent() == [key]


@pytest.mark.parametrize(("signal", "is_sent_again"), [(9, True), (11, False)])
def test_a_verb_that_somebody_killed_is_tried_again(
    desk: Desk, signal: int, is_sent_again: bool
) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    task = desk.task()
    task.start()
    task.end(Outcome(-signal, b"", b"", worker="w"))
    assert desk.sent() == ([key] if is_sent_again else [])
    expected = "signal 9 ended it on w; it starts again" if is_sent_again else "signal 11 ended it"
    assert desk.job(key).reason == expected


def test_a_job_that_its_worker_does_not_start_is_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    task = desk.task()
    monkeypatch.setattr(module, "_START_S", -1.0)
    desk.step()
    assert task.future.cancelled()
    assert [one.key for one in desk.cluster.running] == [key]
    assert desk.job(key).attempt == 2


def test_a_scheduler_that_comes_back_gets_the_jobs_again(desk: Desk) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    desk.task().start()
    desk.step()
    desk.cluster.is_lost = True
    with pytest.raises(UtvmError):
        desk.step()
    assert desk.job(key).state == "queued"
    assert desk.job(key).reason == "the cluster's scheduler was lost; it starts again"
    desk.cluster.is_lost, desk.cluster.is_new = False, True
    follows = desk.cluster.follows
    desk.step()
    # The new scheduler does not know who follows.
    assert desk.cluster.follows == follows + 1
    assert desk.task().spec.attempt == 2


def test_a_server_that_was_killed_goes_on(desk: Desk) -> None:
    ran, waited = desk.add("tune", "mps2_an500", 2, trials=9)
    desk.cluster.workers["w"] = {**TWO_BOARDS, "core": 1.0}
    task = desk.task()
    task.start()
    task.tell({"lines": "one\n"})
    desk.step()
    # The server was killed while it wrote.
    with (desk.folder / "jobs" / ran / "followed").open("a") as file:
        file.write("half a li")
    (desk.folder / "jobs" / "ffffffffffff").mkdir()
    desk.cluster.tasks.clear()
    desk.start_server()
    job = desk.job(ran)
    assert (job.state, job.attempt) == ("queued", 1)
    assert job.reason == "the server was restarted while this job ran; it starts again"
    assert not (desk.folder / "jobs" / "ffffffffffff").exists()
    task = desk.task()
    assert (task.key, task.spec.attempt) == (ran, 2)
    assert task.spec.files["records.jsonl"] == b"one\n"
    task.start()
    task.tell({"lines": "two\n"})
    desk.step()
    assert (desk.folder / "jobs" / ran / "followed").read_text() == "one\nhalf a li\ntwo\n"
    task.end()
    assert desk.sent() == [waited]


def test_a_server_that_ends_puts_its_jobs_back(desk: Desk) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    task = desk.task()
    task.start()
    desk.dispatcher.leave()
    assert task.future.cancelled()
    job = desk.job(key)
    assert job.state == "queued"
    assert job.reason == "the server was ended while this job ran; it starts again with the server"


def test_the_thread_ends_with_the_block(desk: Desk) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    with Dispatcher(desk.database, desk.files, desk.folder / "jobs", desk.cluster) as dispatcher:
        dispatcher.wake()
        deadline = time.monotonic() + 30
        while not desk.cluster.tasks:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        desk.cluster.tasks[0].start()
    assert desk.cluster.tasks[0].future.cancelled()
    assert desk.job(key).state == "queued"


def run_file(folder: Path) -> bytes:
    """A store with one run, as a job's verb makes it."""
    path = folder / "one.sqlite"
    with RunStore(path) as store:
        figures = (ModelFigures("digits", "a" * 64),)
        store.add(Run("0" * 11 + "f", "verify", 1.0, 2.0, 0, "mps2_an500", "", figures))
    return path.read_bytes()


def test_results_wait_for_room_on_the_disk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, later = desk.add("verify", "mps2_an500", 2)
    desk.cluster.workers["w"] = {**TWO_BOARDS, "core": 1.0}
    task = desk.task()
    task.start()
    desk.step()

    def full(_content: bytes) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(desk.files, "add", full)
    task.end(Outcome(0, b'{"a": 1}', b"log\n", {}, run_file(desk.folder), "w"))
    # Nothing more is run whose results could not be stored, either.
    assert desk.sent() == []
    assert desk.sent() == []
    assert desk.job(key).state == "running"
    # It is tried again and again, but said once.
    assert caplog.text.count(f"the end of job {key} is not stored yet") == 1
    monkeypatch.undo()
    monkeypatch.setenv("UTVM_RUNS", str(desk.folder / "runs.sqlite"))
    # Now the database has no room.
    finish = desk.database.finish_job

    def no_room(*_: Any, **__: Any) -> bool:
        raise UtvmError("the disk is full")

    monkeypatch.setattr(desk.database, "finish_job", no_room)
    assert desk.sent() == []
    monkeypatch.setattr(desk.database, "finish_job", finish)
    assert desk.sent() == [later]
    job = desk.job(key)
    assert (job.state, job.attempt, job.run) == ("done", 1, key)
    assert desk.content(key, "result.json") == b'{"a": 1}'
    with RunStore(runs_file()) as store:
        assert [run.key for run in store.find()] == [key]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB, where the tests may mount one."""
    with small_disk(tmp_path / "small", 2 << 20) as place:
        yield place


def test_a_real_full_disk(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_RUNS", str(small / "runs.sqlite"))
    with Database(small / "service.sqlite") as database:
        desk = Desk(small, FakeDask(w=TWO_BOARDS), database)
        tuned, other = desk.add("tune", "mps2_an500", 2, trials=9)
        desk.step()
        for task in desk.cluster.running:
            task.start()
            task.tell({"lines": f"first of {task.key}\n"})
        desk.step()
        ballast = small / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        records = {"records.jsonl": b"a record\n" * 10_000}
        run = run_file(desk.folder.parent)
        for task in desk.cluster.running:
            task.tell({"lines": f"second of {task.key}\n"})
        for task in desk.cluster.running:
            task.end(Outcome(0, b"{}", b"", records, run, "w"))
        for _ in range(3):
            with contextlib.suppress(UtvmError):
                desk.step()
        states = {desk.job(key).state for key in (tuned, other)}
        assert states == {"running"}
        # Somebody makes room.
        ballast.unlink()
        desk.step()
        for key in (tuned, other):
            job = desk.job(key)
            assert (job.state, job.attempt, job.run) == ("done", 1, key), job.reason
            assert desk.content(key, "records.jsonl") == records["records.jsonl"]
            followed = (small / "jobs" / key / "followed").read_text()
            assert followed == f"first of {key}\nsecond of {key}\n"
        with RunStore(runs_file()) as store:
            assert sorted(one.key for one in store.find()) == sorted([tuned, other])


@pytest.mark.parametrize("is_canceled", [False, True])
def test_results_that_never_find_room_are_given_up_with_the_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_canceled: bool
) -> None:
    key, later = desk.add("verify", "mps2_an500", 2)
    desk.cluster.workers["w"] = {**TWO_BOARDS, "core": 1.0}
    task = desk.task()

    def full(_content: bytes) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(desk.files, "add", full)
    if is_canceled:
        desk.dispatcher.cancel(key, "somebody canceled it")
    else:
        task.end()
    assert desk.sent() == []
    monkeypatch.setattr("utvm_deploy.service.server.jobs.endings._PATIENCE_S", -1.0)
    # The other jobs continue.
    assert desk.sent() == [later]
    job = desk.job(key)
    if is_canceled:
        assert (job.state, job.reason) == ("canceled", "somebody canceled it")
    else:
        assert job.state == "failed"
        assert "could not be stored: [Errno 28] No space left on device" in job.reason


def test_lines_wait_for_room_on_the_disk(desk: Desk) -> None:
    (key,) = desk.add("tune", "mps2_an500", trials=9)
    task = desk.task()
    task.start()
    desk.step()
    # No folder can be made where a file is.
    place = desk.folder / "jobs"
    place.mkdir(exist_ok=True)
    (place / key).write_text("in the way")
    task.tell({"lines": "one\n"})
    task.tell({"lines": "two\n"})
    desk.step()
    (place / key).unlink()
    desk.step()
    assert (place / key / "followed").read_text() == "one\ntwo\n"


def test_a_canceled_job_keeps_what_it_made(desk: Desk) -> None:
    (key,) = desk.add("tune", "mps2_an500", trials=9)
    task = desk.task()
    task.start()
    task.tell({"lines": "one\n", "log": "said\n", "events": [{"event": "tuning", "trials": 1}]})
    desk.step()
    assert desk.dispatcher.cancel(key, "somebody canceled it")
    assert not desk.dispatcher.cancel(key, "somebody canceled it twice")
    desk.step()
    assert task.future.cancelled()
    job = desk.job(key)
    assert (job.state, job.reason) == ("canceled", "somebody canceled it")
    assert desk.content(key, "records.jsonl") == b"one\n"
    assert desk.content(key, "log.txt") == b"said\n"
    assert json.loads(desk.content(key, "events.jsonl")) == {"event": "tuning", "trials": 1}
    (waiting,) = desk.add("verify", "qemu_x86")
    assert desk.dispatcher.cancel(waiting, "not needed")
    assert desk.sent() == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_canceled_training_keeps_the_weights_that_its_worker_has(
    desk: Desk, is_lost: bool
) -> None:
    (key,) = desk.add("train", "mps2_an500", data=desk.files.add(b"arrays"))
    desk.cluster.made = {"file.weights": b"learned", "other": b"not an output"}
    task = desk.task()
    task.start()
    desk.step()
    assert desk.dispatcher.cancel(key, "somebody canceled it")
    desk.cluster.is_lost = is_lost
    with contextlib.suppress(UtvmError):
        desk.step()
    assert task.future.cancelled()
    kept = {file.name for file in desk.job(key).files}
    assert kept == ({"log.txt"} if is_lost else {"log.txt", "file.weights"})


def test_what_a_canceled_job_made_outlives_a_killed_server(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = desk.add("tune", "mps2_an500", trials=9)
    task = desk.task()
    task.start()
    task.tell({"lines": "one\n", "log": "said\n"})
    desk.step()
    assert desk.dispatcher.cancel(key, "somebody canceled it")

    def full(_content: bytes) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    # Killed before it stored that, twice: the second time its disk is full, too.
    with monkeypatch.context() as patch:
        patch.setattr(desk.files, "add", full)
        desk.start_server()
    desk.start_server()
    assert desk.job(key).state == "canceled"
    assert desk.content(key, "records.jsonl") == b"one\n"
    assert desk.content(key, "log.txt") == b"said\n"
    # Nothing is left of it in the folder of jobs.
    desk.start_server()
    assert not (desk.folder / "jobs" / key).exists()


def test_progress_is_written_seldom(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    task = desk.task()
    task.start()
    desk.step()
    writes = []
    change = desk.database.queue.change_progress

    def counted(progress: Any) -> None:
        writes.append(progress)
        change(progress)

    monkeypatch.setattr(desk.database.queue, "change_progress", counted)
    for done in range(200):
        task.tell({"events": [{"event": "progress", "what": "layer", "done": done, "total": 200}]})
    desk.step()
    assert len(writes) == 1
    assert desk.job(key).progress.done == 199


@pytest.mark.parametrize(
    "news",
    [
        {"events": [{"event": "progress"}]},
        {"events": [{"event": "progress", "what": "w", "done": None, "total": 1}]},
        {"events": 7},
        {"events": [{"event": "progress", "what": "w", "done": 2**63, "total": 1}]},
        {"events": [{"event": "progress", "what": "w", "done": float("inf"), "total": 1}]},
        {"events": [{"event": "progress", "what": "\ud800", "done": 1, "total": 1}]},
        {"started": "soon", "worker": "w"},
    ],
)
def test_news_that_make_no_sense_do_no_harm(desk: Desk, news: dict[str, Any]) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    task = desk.task()
    task.start()
    task.tell(news)
    desk.step()
    task.end()
    desk.step()
    assert desk.job(key).state == "done"


def test_a_job_whose_input_is_gone_says_so(desk: Desk) -> None:
    (key,) = desk.add("compile", "mps2_an500", records="f" * 64)
    assert desk.sent() == []
    assert desk.job(key).reason == f"the server has no file {'f' * 64} any more; upload it again"


def test_the_records_of_a_job_become_the_input_of_another(desk: Desk) -> None:
    (tuned,) = desk.add("tune", "mps2_an500", trials=9)
    model = desk.job(tuned).models
    refused = {"f" * 12: "there is no job", tuned: "has no file records.jsonl"}
    refused["f" * 64] = "the server has no file with the SHA-256 ffff"
    for key, said in refused.items():
        with pytest.raises(UtvmError, match=said):
            checked_options(desk.database, verb_of("compile"), model, "host", {"records": key})
    digest = desk.files.add(b"a record\n")
    desk.database.queue.add_files(tuned, [JobFile("records.jsonl", digest, 9)])
    options = checked_options(
        desk.database, verb_of("compile"), model, "host", {"records": tuned, "optimize": "size"}
    )
    assert options == {"records": digest, "optimize": "size"}
    (key,) = desk.add("compile", "mps2_an500", **options)
    assert key in desk.sent()
    (task,) = [task for task in desk.cluster.running if task.key == key]
    assert task.spec.files["earlier-records.jsonl"] == b"a record\n"
    assert "--records=earlier-records.jsonl" in task.spec.arguments


def test_a_run_is_kept_once(desk: Desk) -> None:
    """The server was killed after it kept the run, and before it wrote that the job ended."""
    (key,) = desk.add("verify", "mps2_an500")
    task = desk.task()
    run = run_file(desk.folder)
    with RunStore(runs_file()) as store, RunStore(desk.folder / "one.sqlite") as made:
        store.add(replace(made.get("0" * 11 + "f"), key=key))
    task.end(Outcome(0, b"{}", b"", {}, run, "w"))
    desk.step()
    assert desk.job(key).state == "done"
    with RunStore(runs_file()) as store:
        assert [one.key for one in store.find()] == [key]
        assert len(store.get(key).models) == 1


def test_jobs_that_nobody_runs_are_queued_again(desk: Desk) -> None:
    (key,) = desk.add("verify", "mps2_an500")
    desk.database.change_job(key, state=RUNNING)
    assert desk.sent() == [key]
