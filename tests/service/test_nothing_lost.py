"""kill -9 of the server, its worker, jobs and emulators at random moments: nothing is lost."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from killed_server import KilledServer, Program, free_port, scheduler_on, worker_of
from server_process import PATIENCE_S, ROOT

from utvm_deploy.results.runs.store import RunStore
from utvm_deploy.service.server.store.database import Database

pytestmark = pytest.mark.tools

_PATIENCE_FOR_ALL_S = 900.0


@dataclass(frozen=True)
class Load:
    """How much is done to the server."""

    clients: int
    jobs: int
    kills: int
    wanted: tuple[dict[str, Any], ...]
    targets: tuple[str, ...]
    pause_s: float  # the longest between two kills


_CHEAP = (
    {"verb": "inspect"},
    {"verb": "compile", "boards": ["host"]},
    {"verb": "compile", "boards": ["mps2_an500"], "options": {"optimize": "size"}},
)
_ALL = (
    *_CHEAP,
    {"verb": "verify", "boards": ["host"], "options": {"samples": 2}},
    {"verb": "verify", "boards": ["mps2_an500"], "options": {"samples": 2}},
    {"verb": "profile", "boards": ["mps2_an500"]},
    {"verb": "tune", "boards": ["mps2_an500"], "options": {"trials": 24}},
)
SEEDED_TENTH = Load(4, 20, 10, _CHEAP, ("job", "worker", "server"), 1.0)
WHOLE = Load(20, 100, 30, _ALL, ("job", "worker", "server", "emulator"), 10.0)


@pytest.mark.parametrize(
    "load",
    [SEEDED_TENTH, pytest.param(WHOLE, marks=pytest.mark.soak)],
    ids=["a tenth", "whole"],
)
def test_no_job_is_lost_or_doubled(load: Load, tmp_path: Path, image_cache: Path) -> None:
    rng = random.Random(14)
    with (
        KilledServer(tmp_path / "data", image_cache) as server,
        ThreadPoolExecutor(load.clients) as clients,
    ):
        model = _upload(server)
        asked = [
            clients.submit(_submit, server, f"request-{n}", {"models": [model], **wanted})
            for n, wanted in enumerate(load.wanted[n % len(load.wanted)] for n in range(load.jobs))
        ]
        kills = _kill(server, load, rng)
        keys = [key for one in asked for key in one.result()]
        assert len(keys) == load.jobs
        jobs = [_ended(server, key) for key in keys]
        listed = server.request("GET", "/api/v1/jobs?limit=1000").json()
        _check(server, jobs)
        # Nothing waits for a result that nobody has.
        assert not list((tmp_path / "data" / "files" / "parts").iterdir())
        wanted = {"models": [model], "verb": "compile", "boards": ["host"]}
        (last,) = _submit(server, "the last", wanted)
        _wait(server, last, lambda job: job["state"] == "running")
    # Ctrl-C ended the server, and its processes with it.
    with Database(tmp_path / "data" / "service.sqlite") as database:
        job = database.job(last)
    assert job is not None and (job.state, job.attempt) == ("queued", 1)
    assert job.reason.startswith("the server was ended while this job ran")
    attempts = sum(job["attempt"] for job in jobs)
    print(
        f"{len(jobs)} jobs, {attempts} attempts, {kills} kills:", Counter(j["state"] for j in jobs)
    )
    # 0 lost, 0 doubled.
    assert sorted(job["key"] for job in listed) == sorted(keys)
    assert kills == load.kills
    with RunStore(tmp_path / "server-runs.sqlite") as store:
        runs = [run.key for run in store.find()]
    assert sorted(runs) == sorted(job["run"] for job in jobs if job["run"])


def _upload(server: KilledServer) -> str:
    content = (ROOT / "models" / "digits.tflite").read_bytes()
    answer = server.request("POST", "/api/v1/models", files={"file": ("digits.tflite", content)})
    digest = str(answer.json()["sha256"])
    assert digest == hashlib.sha256(content).hexdigest()
    return digest


def _submit(server: KilledServer, request: str, wanted: dict[str, Any]) -> list[str]:
    """A client that asks again until it has an answer."""
    answer = server.request(
        "POST", "/api/v1/jobs", json=wanted, headers={"Idempotency-Key": request}
    )
    assert answer.status_code == 201, answer.text
    return [job["key"] for job in answer.json()]


def _kill(server: KilledServer, load: Load, rng: random.Random) -> int:
    """Kill parts of the server; how many."""
    kills = 0
    deadline = time.monotonic() + _PATIENCE_FOR_ALL_S
    while kills < load.kills and time.monotonic() < deadline:
        target = load.targets[kills % len(load.targets)]
        time.sleep(rng.uniform(0.0, load.pause_s))
        if target == "server":
            server.kill()
            kills += 1
        else:
            # When all jobs have ended, there is no more of some kinds.
            kills += server.kill_part(target, rng, 10.0) or server.kill_part("worker", rng, 10.0)
    return kills


def _ended(server: KilledServer, key: str) -> dict[str, Any]:
    deadline = time.monotonic() + _PATIENCE_FOR_ALL_S
    while True:
        job: dict[str, Any] = server.request("GET", f"/api/v1/jobs/{key}").json()
        if job["state"] in ("done", "failed", "canceled"):
            return job
        assert time.monotonic() < deadline, f"the job does not end: {job}"
        time.sleep(0.3)


def _check(server: KilledServer, jobs: list[dict[str, Any]]) -> None:
    """Each job is done with the right files, or says why not."""
    made: dict[tuple[str, str, str], set[str]] = {}
    for job in jobs:
        if job["state"] != "done":
            # It was killed too often, or its emulator was, which the verb itself says.
            assert job["state"] == "failed" and job["reason"], job
            assert "was lost 3 times" in job["reason"] or job["exit_code"] == 1, job
            continue
        names = {file["name"] for file in job["files"]}
        assert {"result.json", "log.txt"} <= names, job
        for file in job["files"]:
            url = f"/api/v1/jobs/{job['key']}/files/{file['name']}"
            content = server.request("GET", url).content
            assert hashlib.sha256(content).hexdigest() == file["sha256"], url
            if file["name"] in ("graph.svg", "model.tar"):
                place = (job["verb"], job["board"], file["name"])
                made.setdefault(place, set()).add(file["sha256"])
            if file["name"] == "records.jsonl":
                lines = content.splitlines()
                assert len(set(lines)) == len(lines), "a trial is there twice"
            if file["name"] == "result.json":
                assert json.loads(content)["schema"].startswith(f"utvm.{job['verb']}")
    assert made, "no job was done"
    # What was killed and made again is the same.
    assert {place: len(digests) for place, digests in made.items()} == dict.fromkeys(made, 1)


def test_a_scheduler_and_a_worker_elsewhere_may_die(tmp_path: Path, image_cache: Path) -> None:
    port = free_port()
    scheduler, worker = (Program(argv(port), tmp_path) for argv in (scheduler_on, worker_of))
    address = f"tcp://127.0.0.1:{port}"
    with (
        scheduler,
        worker,
        KilledServer(tmp_path / "data", image_cache, "--scheduler", address) as server,
    ):
        wanted = {"models": [_upload(server)], "verb": "compile", "boards": ["host"]}

        def submitted() -> str:
            """The key of a job that runs."""
            (key,) = _submit(server, "", wanted)
            _wait(server, key, lambda job: job["state"] == "running")
            return key

        key = submitted()
        scheduler.kill()
        scheduler.start()
        job = _ended(server, key)
        assert (job["state"], job["attempt"] > 1) == ("done", True), job
        key = submitted()
        worker.kill()
        _wait(server, key, lambda job: job["reason"] == "no worker is connected now")
        worker.start()
        job = _ended(server, key)
        assert (job["state"], job["attempt"] > 1) == ("done", True), job


def _wait(
    server: KilledServer, key: str, is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        job: dict[str, Any] = server.request("GET", f"/api/v1/jobs/{key}").json()
        if is_so(job):
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.02)
