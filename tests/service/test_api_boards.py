"""Boards, runs and comparisons over HTTP, and the removal of jobs and models."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from app_server import App
from fake_cluster import succeed
from server_process import PATIENCE_S

from utvm_deploy.base.paths import runs_file
from utvm_deploy.results.runs.run import ModelFigures, Run
from utvm_deploy.results.runs.store import RunStore
from utvm_deploy.service.cluster.job import JobSpec, Outcome
from utvm_deploy.service.server.store.cached import Cached

BOARD = "mps2_an500"


def start(app: App, digest: str, verb: str = "verify", board: str = BOARD) -> str:
    wanted = {"verb": verb, "models": [digest], "boards": [board]}
    answer = app.http.post("/api/v1/jobs", json=wanted)
    assert answer.status_code == 201, answer.text
    return str(answer.json()[0]["key"])


def board_of(app: App, name: str = BOARD) -> dict[str, Any]:
    found: dict[str, Any] = app.http.get(f"/api/v1/boards/{name}").json()
    return found


def test_a_board_says_who_has_it_and_who_waits(app: App) -> None:
    app.cluster.identity["fake"]["utvm"]["offers"] = [
        {"board": BOARD, "count": 2, "kind": "desk"},
        {"board": "unheard_of", "count": 1, "kind": "desk"},
    ]
    app.cluster.workers = {"fake": ({"core": 8.0, f"board:{BOARD}": 1.0}, {}, frozenset())}
    may_end = threading.Event()

    def held(spec: JobSpec) -> Outcome:
        app.cluster.tell(spec, {"started": 5.0, "worker": "desk 3"})
        assert may_end.wait(PATIENCE_S)
        return succeed(spec)

    app.cluster.run = held
    digest = app.upload()
    first = start(app, digest)
    deadline = time.monotonic() + PATIENCE_S
    while not (board := board_of(app))["holders"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with app.parts.holders.holding(BOARD, "ann@desk"):
        board = board_of(app)
        page = app.http.get(f"/boards/{BOARD}").text
    assert "a session of ann@desk" in page and "<td>fake</td>" in page and "in use" in page
    # The form that starts jobs has the boards on offer first, and marks the others.
    form = app.http.get("/").text
    boards = re.findall(r'name="board" value="(\w+)"', form)
    assert {*boards[:2]} == {BOARD, "unheard_of"}
    assert form.count("no worker offers it") == len(boards) - 2 > 5
    assert board["holders"][0] == {
        "job": first, "verb": "verify", "who": "", "worker": "desk 3", "since": 5.0
    }  # fmt: skip
    assert board["holders"][1]["who"] == "ann@desk"
    assert (board["count"], board["free"], board["kind"]) == (2, 0, "desk")
    assert board["offerings"] == [{"worker": "fake", "count": 2, "last_seen": 5.0}]
    assert board["core"] == "cortex-m7" and board["description"]
    offered = app.http.get("/api/v1/boards?offered=true").json()
    assert {one["name"] for one in offered} == {BOARD, "unheard_of"}
    assert len(app.http.get("/api/v1/boards").json()) > 5
    assert app.http.get("/api/v1/boards/nowhere").status_code == 404
    may_end.set()
    app.wait(first)
    # So has the form that runs a job again.
    again = app.http.get(f"/jobs/{first}").text.partition('id="again-board"')[2]
    assert f">{BOARD}<" in again and ">host (no worker offers it)<" in again
    assert board_of(app)["holders"] == []
    assert app.http.get("/api/v1/counts").json() == {"done": 1}


def test_a_job_that_only_compiles_holds_no_board(app: App) -> None:
    key = start(app, app.upload(), "compile")
    app.wait(key)
    job = app.parts.database.job(key)
    assert job is not None
    # As if it ran now: its row is what counts.
    with app.parts.database._connections.changing() as connection:
        connection.execute("UPDATE jobs SET state = 'running'")
    assert board_of(app)["holders"] == []


def test_the_events_of_all_boards_are_sent_when_something_changes(app: App) -> None:
    digest = app.upload()
    with app.http.stream("GET", "/api/v1/events") as answer:
        lines = answer.iter_lines()

        def event(kind: str) -> Iterator[Any]:
            for line in lines:
                if line == f"event: {kind}":
                    yield json.loads(next(lines).removeprefix("data: "))

        assert next(event("counts")) == {}
        boards = {board["name"]: board for board in next(event("boards"))}
        assert boards[BOARD]["free"] == 8
        key = start(app, digest)
        for counts in event("counts"):
            if counts == {"done": 1}:
                break
    assert app.wait(key)["state"] == "done"


def test_a_cluster_that_is_away_offers_what_it_did_before(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.parts.boards, "_offered", Cached(app.parts.boards._look, 0))

    def away(n_workers: int) -> None:
        raise OSError("nobody answers")

    there = app.cluster.scheduler.identity
    app.cluster.scheduler.identity = away
    assert {board["count"] for board in app.http.get("/api/v1/boards").json()} == {0}
    app.cluster.scheduler.identity = there
    assert board_of(app)["count"] == 8
    app.cluster.scheduler.identity = away
    assert board_of(app)["count"] == 8


def test_nobody_waits_for_a_slow_scheduler_twice() -> None:
    may_answer, is_asked = threading.Event(), threading.Event()

    def slow() -> int:
        if is_asked.is_set():
            assert may_answer.wait(PATIENCE_S)
            return 2
        is_asked.set()
        return 1

    cached = Cached(slow, 0)
    assert cached.get() == 1
    asking = threading.Thread(target=cached.get)
    asking.start()
    while not cached._lock.locked():
        time.sleep(0.001)
    assert cached.get() == 1
    may_answer.set()
    asking.join(PATIENCE_S)
    assert cached._value is not None and cached._value[1] == 2


RUN = Run(
    *("0123456789ab", "profile", 5.0, 1.0, 0, BOARD, "abc"),
    (ModelFigures("digits", "ab" * 32, "cycles", 100, 10, 20),),
    {},
    {"utvm": "1"},
    {
        "schema": "utvm.profile/1",
        "model": "digits",
        "board": BOARD,
        "tick_unit": "cycles",
        "ticks": 100,
        "ram_bytes": 10,
        "flash_bytes": 20,
        "layers": [{"index": 0, "operator": "CONV_2D", "name": "a", "ticks": 100}],
    },
)


def test_runs_are_listed_and_compared(app: App) -> None:
    later = {**RUN.result, "ticks": 150}
    other = replace(RUN, key="ba9876543210", started=6.0, result=later)
    broken = replace(RUN, key="cc9876543210", started=7.0, result={"model": 5})
    verify = replace(RUN, key="dd9876543210", started=8.0, verb="verify")
    with RunStore(runs_file()) as store:
        for run in (RUN, other, broken, verify):
            store.add(run)
    found = app.http.get("/api/v1/runs", params={"model": "digits", "verb": "profile"}).json()
    assert [run["key"] for run in found] == ["cc9876543210", "ba9876543210", "0123456789ab"]
    assert found[0]["models"][0]["ticks"] == 100 and "result" not in found[0]
    assert app.http.get("/api/v1/runs/0123456789ab").json()["result"] == RUN.result
    assert app.http.get("/api/v1/runs/ffffffffffff").status_code == 404
    both = {"before": RUN.key, "now": other.key}
    compared = app.http.get("/api/v1/compare", params={**both, "fail_over": "3"}).json()
    (model,) = compared["models"]
    assert model["model"] == "digits"
    assert {c["what"]: c["percent"] for c in model["changes"]}["whole model"] == 50.0
    assert len(compared["grown"]) == 1 and "digits" in compared["grown"][0]
    assert app.http.get("/api/v1/compare", params=both).json()["grown"] is None
    for wrong, told in ((broken.key, "cannot be read"), (verify.key, "is of verify, which has no")):
        answer = app.http.get("/api/v1/compare", params={**both, "now": wrong})
        assert answer.status_code == 400 and told in answer.json()["error"]
    answer = app.http.get("/api/v1/compare", params={**both, "fail_over": "nan"})
    assert answer.status_code == 400


def test_jobs_and_models_are_removed_with_their_files(app: App) -> None:
    digest = app.upload()
    key = start(app, digest, "compile")
    (tar,) = (
        file["sha256"]
        for file in app.wait(key)["files"]  # type: ignore[attr-defined]
        if file["name"] == "model.tar"
    )
    assert app.parts.files.path(tar).exists()
    kept = app.http.delete(f"/api/v1/models/{digest}")
    assert kept.status_code == 409 and "delete those first" in kept.json()["error"]
    assert app.http.delete(f"/api/v1/jobs/{key}").status_code == 204
    assert not app.parts.files.path(tar).exists()
    assert app.http.get(f"/api/v1/jobs/{key}").status_code == 404
    assert app.http.delete(f"/api/v1/jobs/{key}").status_code == 404
    made = app.http.get(f"/api/v1/models/{digest}/files").json()
    assert {"graph.svg"} <= {file["name"] for file in made}
    url = f"/api/v1/models/{digest}/files/graph.svg?show=true"
    assert app.http.get(url).headers["content-type"].startswith("image/svg+xml")
    whole = app.http.get(f"/api/v1/models/{digest}/files/digits.tflite")
    assert whole.headers["etag"] == f'"{digest}"'
    assert app.http.delete(f"/api/v1/models/{digest}").status_code == 204
    assert app.http.get("/api/v1/models").json() == []
    assert not app.parts.files.path(digest).exists()


def test_a_job_that_runs_is_not_removed(app: App) -> None:
    may_end = threading.Event()

    def held(spec: JobSpec) -> Outcome:
        may_end.wait(PATIENCE_S)
        return succeed(spec)

    app.cluster.run = held
    key = start(app, app.upload())
    refused = app.http.delete(f"/api/v1/jobs/{key}")
    assert refused.status_code == 409 and "cancel it first" in refused.json()["error"]
    app.http.post(f"/api/v1/jobs/{key}/cancel")
    assert app.http.delete(f"/api/v1/jobs/{key}").status_code == 204
    may_end.set()
