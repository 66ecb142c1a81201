"""The data folder keeps its limits of age and size, even if jobs or servers end meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from app_server import app_running
from small_disk import small_disk
from stored_jobs import digest, fill, key_of
from stored_results import DAY_S, LIMIT, MIB, Store

from utvm_deploy.service.cluster.job import JobSpec, Outcome
from utvm_deploy.service.server.store import retention
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import DONE, QUEUED, RUNNING, Job, JobFile
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.refusals import NoRoom
from utvm_deploy.service.server.store.removal import remove_jobs, remove_model
from utvm_deploy.service.server.store.retention import Retention
from utvm_deploy.service.server.store.settings import Settings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Database(tmp_path / "service.sqlite") as database:
        yield Store(tmp_path, database, Files(tmp_path / "files"))


@pytest.mark.slow
def test_the_limit_is_kept_while_jobs_end(store: Store) -> None:
    """Two hundred jobs end in four threads; the folder is never larger than its limit."""
    model = store.model()
    sizes, is_over, lock = list[int](), threading.Event(), threading.Lock()

    def end() -> None:
        for _ in range(25):
            with lock:
                numbers = [key_of(next(store.numbers)) for _ in range(2)]
            for key in numbers:
                job = Job(key, "tune", "host", (model,), {}, QUEUED, time.time() - DAY_S)
                store.database.add_jobs([job])
                with store.files.holding():
                    made = JobFile("a", store.files.add(os.urandom(MIB)), MIB)
                    ended = time.time() - DAY_S
                    store.database.finish_job(key, 0, [made], state=DONE, finished=ended)

    with store.kept() as kept:

        def measure() -> None:
            while not is_over.wait(0.005):
                sizes.append(kept.used_bytes())

        watcher = threading.Thread(target=measure)
        enders = [threading.Thread(target=end) for _ in range(4)]
        for thread in (watcher, *enders):
            thread.start()
        for thread in enders:
            thread.join()
        is_over.set()
        watcher.join()
        assert kept.used_bytes() == store.size() <= LIMIT
    # A block that is being written is counted before there is room for it.
    assert max(sizes) <= LIMIT + 4 * MIB and len(sizes) > 10
    jobs = store.database.jobs(most=1000)
    assert 10 < len(jobs) < 24
    for job in jobs:
        assert all(store.files.path(file.sha256).stat().st_size == MIB for file in job.files)


def test_the_oldest_goes_first(store: Store) -> None:
    model = store.model()
    jobs = [store.job(model, 4 * MIB, age_s=DAY_S * (10 - n)) for n in range(5)]
    with store.kept():
        store.job(model, 4 * MIB)
        store.job(model, 4 * MIB)
        gone = {job.key for job in jobs} - store.job_keys()
        assert gone and gone == {job.key for job in jobs[: len(gone)]}
        for job in jobs[: len(gone)]:
            assert not store.files.path(job.files[0].sha256).exists()


def test_what_has_not_ended_stays_with_its_inputs(store: Store) -> None:
    model, other = store.model(4 * MIB), store.model(4 * MIB)
    tuned = store.job(other, 4 * MIB, age_s=9 * DAY_S)
    options = {"records": tuned.files[0].sha256}
    alive = [store.job(model, state=QUEUED, options=options), store.job(model, state=RUNNING)]
    store.job(other, 4 * MIB)
    with store.kept():
        for _ in range(5):
            store.job(model, 6 * MIB)
        assert {job.key for job in alive} <= store.job_keys()
        assert store.files.path(model.sha256).exists()
        assert tuned.key not in store.job_keys()
        assert store.files.path(options["records"]).exists()
        # It is needed no longer.
        store.database.finish_job(alive[0].key, 0, [], state=DONE, finished=time.time())
        store.database.finish_job(alive[1].key, 0, [], state=DONE, finished=time.time())
    with store.kept():
        assert not store.files.path(options["records"]).exists()


def test_models_go_after_jobs(store: Store) -> None:
    unused, used = store.model(4 * MIB), store.model(4 * MIB)
    fresh = store.model(4 * MIB, age_s=0)
    store.job(used, MIB)
    with store.kept():
        store.model(14 * MIB)
        assert {model.sha256 for model in store.database.models()} & {
            unused.sha256,
            used.sha256,
            fresh.sha256,
        } == {used.sha256, fresh.sha256}
        assert not store.files.path(unused.sha256).exists()
        assert not store.job_keys()


def test_a_model_waits_an_hour_for_its_first_job(store: Store) -> None:
    """Whoever uploaded it may not have started a job yet; so what comes is refused instead."""
    young, old = store.model(4 * MIB, age_s=50 * 60), store.model(4 * MIB, age_s=70 * 60)
    with store.kept():
        with pytest.raises(NoRoom):
            store.files.add(os.urandom(LIMIT - 2 * MIB))
        assert [model.sha256 for model in store.database.models()] == [young.sha256]
        assert store.files.path(young.sha256).exists()
        assert not store.files.path(old.sha256).exists()


def test_results_wait_minutes_for_who_fetches_them(store: Store) -> None:
    model = store.model(age_s=0)
    young, old = store.job(model, 4 * MIB, age_s=240), store.job(model, 4 * MIB, age_s=360)
    with store.kept():
        with pytest.raises(NoRoom):
            store.files.add(os.urandom(LIMIT - 2 * MIB))
        assert store.job_keys() == {young.key}
        assert store.files.path(young.files[0].sha256).exists()
        assert not store.files.path(old.files[0].sha256).exists()


def test_what_does_not_fit_is_refused_and_fits_later(store: Store) -> None:
    model = store.model(age_s=0)
    with store.kept():
        # Somebody may want to fetch their results.
        new = [store.job(model, 5 * MIB, age_s=1) for _ in range(4)]
        before = store.size()
        for _ in range(3):
            with pytest.raises(NoRoom, match="--disk-limit"):
                store.files.add(os.urandom(8 * MIB))
        assert {job.key for job in new} <= store.job_keys()
        assert store.size() == before
        remove_jobs(store.database, store.files, [new[0].key, new[1].key])
        assert store.files.path(store.files.add(os.urandom(8 * MIB))).exists()


def test_what_others_write_meanwhile_is_no_reason_to_refuse(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = store.model()
    for _ in range(3):
        store.job(model, MIB)
    with store.kept() as kept:
        # Somebody begins to write as soon as there is room.
        used = [LIMIT + MIB, LIMIT + MIB, LIMIT, LIMIT + MIB]
        monkeypatch.setattr(kept, "used_bytes", lambda: used.pop(0))
        kept.make_room()
        monkeypatch.undo()
    assert len(store.job_keys()) == 2


def test_what_is_old_goes(store: Store) -> None:
    model, used = store.model(age_s=9 * DAY_S), store.model(age_s=9 * DAY_S)
    old = store.job(used, 100, age_s=8 * DAY_S)
    young = store.job(used, 100, age_s=6 * DAY_S)
    running = store.job(used, state=RUNNING, age_s=99 * DAY_S)
    with store.kept(keep_days=7) as kept:
        assert store.job_keys() == {young.key, running.key}
        assert store.database.model(model.sha256) is None
        assert not store.files.path(old.files[0].sha256).exists()
        kept.expire(time.time() + 30 * DAY_S)
        assert store.job_keys() == {running.key}
        assert set(store.files.digests()) == {used.sha256}


@pytest.mark.slow
def test_many_old_jobs_go_and_the_database_shrinks(store: Store) -> None:
    fill(store.database, 3000, 10)
    store.database.compact()
    before = store.size()
    with store.kept(keep_days=1):
        assert store.job_keys() == set() and store.database.models() == []
    assert store.size() < before / 4


def test_files_without_a_name_go_at_the_start(store: Store) -> None:
    """A server that was killed between a file and its row leaves such."""
    model = store.model()
    left = store.files.add(b"left")
    part = store.files.folder / "parts" / "half"
    part.write_bytes(b"half")
    files = Files(store.files.folder)
    with Retention(store.database, files, Settings(store.data)):
        assert files.digests() == [model.sha256] and not part.exists()
        assert not store.files.path(left).exists()


def test_what_was_made_of_a_model_stays_with_it(store: Store) -> None:
    model = store.model()
    with store.files.holding():
        picture = JobFile("graph.svg", store.files.add(b"picture"), 7)
        store.database.add_model(model, [picture])
    with store.kept():
        assert store.files.path(picture.sha256).exists()
    assert remove_model(store.database, store.files, model.sha256)
    assert store.files.digests() == []


def test_a_model_of_a_job_is_not_removed(store: Store) -> None:
    model, unused = store.model(), store.model()
    job = store.job(model, state=QUEUED)
    assert not remove_model(store.database, store.files, model.sha256)
    assert remove_model(store.database, store.files, unused.sha256)
    remove_jobs(store.database, store.files, [job.key])
    assert store.job_keys() == {job.key}
    assert store.files.digests() == [model.sha256]
    assert not remove_model(store.database, store.files, digest(5))


def test_a_file_of_two_jobs_stays_with_the_second(store: Store) -> None:
    model = store.model()
    first, second = (store.job(model, state=QUEUED) for _ in range(2))
    shared = JobFile("a", store.files.add(b"shared"), 6)
    for job in (first, second):
        store.database.finish_job(job.key, 0, [shared], state=DONE, finished=1.0)
    remove_jobs(store.database, store.files, [first.key])
    assert store.files.path(shared.sha256).exists()
    remove_jobs(store.database, store.files, [second.key])
    assert not store.files.path(shared.sha256).exists()


@pytest.mark.slow
def test_a_server_refuses_what_does_not_fit(
    tmp_path: Path, quick_uploads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads and jobs get status 507; results wait until there is room."""
    settings = Settings(tmp_path / "data", disk_bytes=8 * MIB)
    with app_running(settings) as app:

        def large(spec: JobSpec) -> Outcome:
            return Outcome(0, b"{}", b"", {"model.tar": os.urandom(5 * MIB)}, worker="fake")

        model = app.upload()
        app.cluster.run = large
        wanted = {"verb": "compile", "models": [model], "boards": ["host"]}
        first, second = (
            app.http.post("/api/v1/jobs", json=wanted).json()[0]["key"] for _ in range(2)
        )
        ended = _first_that_ends(
            lambda: [app.http.get(f"/api/v1/jobs/{k}").json() for k in (first, second)]
        )
        waiting = second if ended["key"] == first else first
        answer = app.http.post("/api/v1/models", files={"file": ("m.tflite", bytes(5 * MIB))})
        assert answer.status_code == 507 and answer.json()["kind"] == "NoRoom"
        assert "--disk-limit" in answer.json()["error"]
        assert app.http.get(f"/api/v1/jobs/{waiting}").json()["state"] != "done"
        # The first has been there long enough.
        monkeypatch.setattr(retention, "FETCH_S", -60.0)
        assert app.wait(waiting)["state"] == "done"
        assert app.http.get(f"/api/v1/jobs/{ended['key']}").status_code == 404
        sizes = [p.stat().st_size for p in settings.data.rglob("*") if p.is_file()]
        assert sum(sizes) <= settings.disk_bytes


def test_a_server_on_a_full_disk_goes_on(tmp_path: Path, quick_uploads: None) -> None:
    """What does not fit is refused as a whole, and fits when there is room again."""
    with (
        small_disk(tmp_path / "small", 6 * MIB) as disk,
        app_running(Settings(disk / "data")) as app,
    ):
        model = app.upload()
        wanted = {"verb": "compile", "models": [model], "boards": ["host"]}
        (disk / "other").write_bytes(bytes(5 * MIB))
        files = {"file": ("m.tflite", bytes(3 * MIB))}
        answer = app.http.post("/api/v1/models", files=files)
        assert answer.status_code == 507 and "make room" in answer.json()["error"]
        # Fill the rest of the disk, so that the database cannot grow either.
        with contextlib.suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        answers = [app.http.post("/api/v1/jobs", json=wanted) for _ in range(20)]
        codes = {answer.status_code for answer in answers}
        assert 507 in codes and codes <= {201, 507}
        assert app.http.get("/api/v1/jobs").status_code == 200
        (disk / "other").unlink()
        (disk / "rest").unlink()
        answers.append(app.http.post("/api/v1/jobs", json=wanted))
        assert answers[-1].status_code == 201
        started = [one.json()[0]["key"] for one in answers if one.status_code == 201]
        for key in started:
            assert app.wait(key)["state"] == "done"
        assert {job["key"] for job in app.http.get("/api/v1/jobs").json()} == set(started)
        assert [one["sha256"] for one in app.http.get("/api/v1/models").json()] == [model]


_SERVER = """
import os, random, sys
from pathlib import Path
from stored_results import *
data = Path(sys.argv[1])
with Database(data / "service.sqlite") as database:
    store = Store(data, database, Files(data / "files"), iter(range(int(sys.argv[2]), 10**9)))
    with store.kept(limit=MIB):
        while True:
            model = store.model(1000)
            job = store.job(model, random.randrange(1, 100_000))
            print(job.key, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_a_killed_server_keeps_every_file_that_it_names(tmp_path: Path, kills: int) -> None:
    """It adds jobs and removes the oldest, until it is killed at any moment."""
    here = Path(__file__)
    path = os.pathsep.join(
        str(folder) for folder in (here.parent, here.parents[1], here.parents[2])
    )
    told = 0
    for turn in range(kills):
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(tmp_path), str(told + 1000)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        with server:
            assert server.stdout is not None
            for _ in range(15 + turn % 10):
                told = int(server.stdout.readline(), 16)
            server.send_signal(signal.SIGKILL)
        with Database(tmp_path / "service.sqlite") as database:
            files = Files(tmp_path / "files")
            jobs = database.jobs(most=10**6)
            named = {file.sha256: file.size for job in jobs for file in job.files}
            named |= {model.sha256: model.size for model in database.models(most=10**6)}
            for name, size in named.items():
                content = files.path(name).read_bytes()
                assert len(content) == size and hashlib.sha256(content).hexdigest() == name
            assert database.job(key_of(told)) is not None
            with Retention(database, files, Settings(tmp_path)):
                assert set(files.digests()) == set(named)
            told = max(int(job.key, 16) for job in jobs)


def _first_that_ends(look: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        for job in look():
            if job["state"] == "done":
                return job
        assert time.monotonic() < deadline, look()
        time.sleep(0.02)
