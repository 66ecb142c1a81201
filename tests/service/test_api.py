"""The HTTP interface for programs."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from app_server import App
from fake_cluster import succeed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_process import PATIENCE_S

from utvm_deploy.service.cluster.job import JobSpec, Outcome
from utvm_deploy.service.server.api import starting
from utvm_deploy.service.server.store.facts import Model


def start(app: App, **more: Any) -> httpx.Response:
    wanted = {"verb": "compile", "models": [app.upload()], "boards": ["host"], **more}
    return app.http.post("/api/v1/jobs", json=wanted)


def test_a_job_is_done_and_its_files_come_back(app: App) -> None:
    answer = start(app, boards=["host", "mps2_an500"])
    assert answer.status_code == 201, answer.text
    keys = [job["key"] for job in answer.json()]
    assert len(set(keys)) == 2
    for key in keys:
        assert app.wait(key)["state"] == "done"
        content = app.http.get(f"/api/v1/jobs/{key}/files/model.tar").content
        assert content == f"model.tar of {key}".encode()
        assert app.http.get(f"/api/v1/jobs/{key}/log").text == "a log\n"


def test_a_file_has_its_digest_as_etag_and_a_name_that_no_header_is_made_of(app: App) -> None:
    name = 'übung";\r\nx: y.tar'

    def odd(spec: JobSpec) -> Outcome:
        return Outcome(0, b"{}", b"", {name: b"content"})

    app.cluster.run = odd
    (job,) = start(app).json()
    app.wait(job["key"])
    url = f"/api/v1/jobs/{job['key']}/files/" + "%C3%BCbung%22%3B%0D%0Ax%3A%20y.tar"
    answer = app.http.get(url)
    assert answer.content == b"content"
    digest = hashlib.sha256(b"content").hexdigest()
    assert answer.headers["etag"] == f'"{digest}"'
    assert answer.headers["content-disposition"] == (
        "attachment; filename*=utf-8''%C3%BCbung%22%3B%0D%0Ax%3A%20y.tar"
    )
    again = app.http.get(url, headers={"if-none-match": f'"{digest}"'})
    assert (again.status_code, again.content) == (304, b"")
    part = app.http.get(url, headers={"range": "bytes=3-"})
    assert (part.status_code, part.content) == (206, b"tent")


def test_a_page_that_a_job_made_is_shown_without_rights(app: App) -> None:
    (job,) = start(app, verb="profile").json()
    app.wait(job["key"])
    url = f"/api/v1/jobs/{job['key']}/files/profile.html"
    assert app.http.get(url).headers["content-disposition"].startswith("attachment")
    shown = app.http.get(url, params={"show": "1"})
    assert shown.headers["content-type"].startswith("text/html")
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts;") and "allow-same-origin" not in policy


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"verb": "fly"}, 400, "no job runs 'fly'; jobs run inspect, "),
    ({"models": []}, 400, "models: 0 are named; name from 1 to 16"),
    ({"models": ["ff" * 32]}, 404, "there is no model 'ffffff"),
    ({"boards": []}, 400, "boards: 0 are named; name from 1 to 32"),
    ({"boards": ["host", "host"]}, 400, "boards: 'host' is named twice"),
    ({"boards": ["host", "../etc"]}, 400, "boards: there is no board '../etc'"),
    ({"boards": ["b"] * 33}, 400, "boards: List should have at most 32 items"),
    ({"options": {"trials": 5}}, 400, "compile has no option 'trials'"),
    ({"options": {"optimize": "--o"}}, 400, "optimize: '--o' is not one of "),
    ({"options": {"optimize": {"a": 1}}}, 400, "options.optimize"),
    ({"more": 1}, 400, "more: Extra inputs are not permitted"),
    ({"verb": "inspect"}, 400, "boards: inspect needs no board"),
]


def test_a_wrong_request_starts_nothing(app: App) -> None:
    for wanted, status, told in WRONG:
        answer = start(app, **wanted)
        assert answer.status_code == status, answer.text
        assert set(answer.json()) == {"kind", "error"}
        assert told in answer.json()["error"], answer.text
    assert app.http.get("/api/v1/jobs").json() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {
            "verb": st.sampled_from(["compile", "tune", "inspect"]) | JSON,
            "models": st.just(["ab" * 32]) | JSON,
        },
        optional={
            "boards": st.lists(st.sampled_from(["host", "nowhere"])) | JSON,
            "options": st.dictionaries(st.sampled_from(["optimize", "trials"]), JSON) | JSON,
        },
    ),
)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=BODIES)
def test_any_json_is_refused_in_a_sentence(app: App, body: Any) -> None:
    answer = app.http.post(
        "/api/v1/jobs",
        content=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert error and "\n" not in error and len(error) < 800


def test_what_is_no_json_is_refused_in_a_sentence(app: App) -> None:
    for body in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000):
        answer = app.http.post(
            "/api/v1/jobs", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]
    answer = app.http.post("/api/v1/jobs", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("send the request's body as JSON, with Content-Type")


def test_head_gives_the_headers_alone(app: App) -> None:
    for path in ("/", "/api/v1/jobs"):
        answer, whole = app.http.head(path), app.http.get(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"] == whole.headers["content-type"]


def test_a_repeated_request_starts_its_jobs_once(app: App) -> None:
    digest = app.upload()
    wanted = {"verb": "compile", "models": [digest], "boards": ["host", "mps2_an500"]}
    first, second = (
        app.http.post("/api/v1/jobs", json=wanted, headers={"idempotency-key": "once"}).json()
        for _ in range(2)
    )
    assert [job["key"] for job in first] == [job["key"] for job in second]
    assert len(app.http.get("/api/v1/jobs").json()) == 2
    other = app.http.post(
        "/api/v1/jobs",
        json={**wanted, "options": {"optimize": "size"}},
        headers={"idempotency-key": "once"},
    )
    assert other.status_code == 409
    assert "Idempotency-Key" in other.json()["error"]
    assert len(app.http.get("/api/v1/jobs").json()) == 2


def test_jobs_that_wait_are_limited(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "MOST_WAITING", 3)
    app.cluster.workers = {}
    assert start(app, boards=["host", "mps2_an500", "mps2_an386"]).status_code == 201
    refused = start(app)
    assert refused.status_code == 503
    assert "3 jobs wait already" in refused.json()["error"]
    assert len(app.http.get("/api/v1/jobs").json()) == 3


def test_addresses_that_lead_nowhere_are_told(app: App) -> None:
    for method, path, status in (
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v1/jobs/0123456789ab", 404),
        ("POST", "/api/v1/jobs/0123456789ab/cancel", 404),
        ("GET", "/api/v1/jobs/0123456789ab/events", 404),
        ("GET", "/api/v1/jobs/0123456789ab/files/x", 404),
        ("GET", "/api/v1/jobs/0123456789ab/files/..%2F..%2Fservice.sqlite", 404),
        ("GET", "/api/v1/models/..%2F..%2Fetc%2Fpasswd", 404),
        ("GET", f"/api/v1/models/{'ab' * 32}", 404),
        ("PATCH", "/api/v1/jobs", 405),
        ("GET", "/api/v1/jobs?limit=0", 400),
        ("GET", "/api/v1/jobs?state=nothing", 400),
        ("GET", "/api/v1/jobs?limit=9999999", 400),
    ):
        answer = app.http.request(method, path)
        assert answer.status_code == status, (path, answer.text)
        assert set(answer.json()) == {"kind", "error"}, path


def test_a_bug_is_told_without_paths(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"in {app.parts.settings.data}")

    monkeypatch.setattr(app.parts.database, "jobs", broken)
    answer = app.http.get("/api/v1/jobs")
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("the server met RuntimeError, which is a bug")
    assert str(app.parts.settings.data) not in answer.text
    # Who runs the server sees where.
    deadline = time.monotonic() + PATIENCE_S
    while "in broken" not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.01)


def test_the_interface_describes_itself(app: App) -> None:
    facts = app.http.get("/api/openapi.json").json()
    answers = facts["paths"]["/api/v1/jobs/{key}"]["get"]["responses"]
    schema = answers["200"]["content"]["application/json"]["schema"]["$ref"]
    job = facts["components"]["schemas"][schema.rpartition("/")[2]]
    assert {"key", "verb", "board", "state", "files", "reason"} <= set(job["properties"])
    assert "WantedJobs" in facts["components"]["schemas"]
    assert facts["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in facts["paths"].items():
        assert path.startswith("/api/v1/")
        assert not any("422" in one["responses"] for one in methods.values())


def test_the_list_of_the_interface_loads_nothing_from_elsewhere(app: App) -> None:
    text = app.http.get("/api/docs").text
    assert "<code>/api/v1/jobs/{key}/cancel</code>" in text
    assert "Start jobs." in text
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert links and all(link.startswith(("/", "#")) for link in links)


def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    found: dict[str, str] = {}
    for line in lines:
        if not line:
            if "event" in found:
                yield found
            found = {}
        elif not line.startswith(":"):
            name, _, text = line.partition(": ")
            found[name] = text


def test_events_follow_a_job_to_its_end(app: App) -> None:
    may_end = threading.Event()
    specs: list[JobSpec] = []

    def held(spec: JobSpec) -> Outcome:
        specs.append(spec)
        assert may_end.wait(PATIENCE_S)
        return Outcome(0, b"{}", b"first\nsecond\nthird\n", {})

    app.cluster.run = held
    (job,) = start(app, verb="tune", options={"trials": 40}).json()
    deadline = time.monotonic() + PATIENCE_S
    while not specs:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (spec,) = specs
    point = {"event": "tuning", "trials": 40, "best": 7}
    app.cluster.tell(spec, {"started": 5.0, "worker": "w"})
    app.cluster.tell(spec, {"log": "first\n", "events": [point]})
    while app.http.get(f"/api/v1/jobs/{job['key']}/log").text != "first\n":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    url = f"/api/v1/jobs/{job['key']}/events"
    with app.http.stream("GET", url) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = events(answer.iter_lines())
        seen = {one["event"]: one for one in (next(stream), next(stream), next(stream))}
        assert json.loads(seen["log"]["data"]) == {"text": "first\n"}
        assert json.loads(seen["tuning"]["data"]) == point
        assert json.loads(seen["job"]["data"])["state"] == "running"
        last = seen["job"]["id"]
    # The client lost the connection. It continues after the last event that it got.
    app.cluster.tell(spec, {"log": "second\n"})
    may_end.set()
    app.wait(job["key"])
    with app.http.stream("GET", url, headers={"last-event-id": last}) as answer:
        rest = list(events(answer.iter_lines()))
    assert [one["event"] for one in rest] == ["log", "job"]
    assert json.loads(rest[0]["data"]) == {"text": "second\nthird\n"}
    assert json.loads(rest[1]["data"])["state"] == "done"


@pytest.mark.slow
def test_listeners_need_no_thread_each(app: App) -> None:
    may_end = threading.Event()

    def held(spec: JobSpec) -> Outcome:
        may_end.wait(PATIENCE_S)
        return succeed(spec)

    app.cluster.run = held
    (job,) = start(app).json()
    before = threading.active_count()
    many = httpx.Client(
        base_url=app.url, timeout=PATIENCE_S, limits=httpx.Limits(max_connections=60)
    )
    with many:
        answers = [
            many.send(many.build_request("GET", f"/api/v1/jobs/{job['key']}/events"), stream=True)
            for _ in range(60)
        ]
        assert {answer.status_code for answer in answers} == {200}
        # Reading a file takes a thread of the pool for a moment; the pool has 40.
        assert threading.active_count() - before <= 45
        assert app.http.get("/api/v1/jobs").status_code == 200
        may_end.set()
        for answer in answers:
            *_, last = events(answer.iter_lines())
            assert json.loads(last["data"])["state"] == "done"


def test_lists_lead_to_their_next_page(app: App) -> None:
    digest = app.upload()
    for _ in range(5):
        app.http.post("/api/v1/jobs", json={"verb": "inspect", "models": [digest]})
    found, path = [], "/api/v1/jobs?limit=2&verb=inspect"
    while path:
        answer = app.http.get(path)
        found += [job["key"] for job in answer.json()]
        path = answer.links["next"]["url"] if "next" in answer.links else ""
    assert len(found) == len(set(found)) == 5
    assert app.http.get("/api/v1/jobs?verb=tune").json() == []
    assert app.http.get("/api/v1/jobs?since=9e12").json() == []
    answer = app.http.get("/api/v1/jobs?before=ffffffffffff")
    assert (answer.status_code, answer.json()["kind"]) == (400, "UsageError")


def test_what_may_be_code_is_not_run_by_a_server_that_takes_none(app: App) -> None:
    """It came while the server was started with --allow-code."""
    digest = app.parts.files.add(b"code")
    app.parts.database.add_model(Model(digest, "m.pt2", 4, 1.0))
    answer = app.http.post("/api/v1/jobs", json={"verb": "inspect", "models": [digest]})
    assert answer.status_code == 400 and "--allow-code" in answer.json()["error"]
    assert not app.parts.database.jobs()


def test_a_model_that_is_deleted_at_this_moment_is_not_there(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = app.upload()
    make_room = app.parts.files.make_room

    def delete_and_make_room() -> None:
        app.parts.database.remove_model(digest)
        make_room()

    monkeypatch.setattr(app.parts.files, "make_room", delete_and_make_room)
    answer = app.http.post("/api/v1/jobs", json={"verb": "inspect", "models": [digest]})
    assert (answer.status_code, answer.json()["kind"]) == (404, "NotFound")
    assert "digits.tflite was deleted" in answer.json()["error"]
    assert not app.parts.database.jobs()


@pytest.mark.parametrize("path", ["/api/v1/models", "/start"])
def test_a_full_folder_for_temporary_files_is_no_bug(
    app: App, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def full(_file: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", full)
    answer = app.http.post(path, files={"file": ("m.tflite", bytes(3 << 20))})
    assert answer.status_code == 507
    assert "takes no upload (No space left on device)" in answer.text
