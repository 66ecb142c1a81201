"""The HTTP client and servers that restart, lie, or are none."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utvm_deploy.base.errors import ServerError, UsageError, UtvmError
from utvm_deploy.cli.main import main
from utvm_deploy.service.client import api
from utvm_deploy.service.client.api import Server
from utvm_deploy.service.client.download import content, download, safe_name
from utvm_deploy.service.client.facts import RemoteJob, job_of, printable
from utvm_deploy.service.client.settings import ServerSettings

KEY = "0123456789ab"
CONTENT = bytes(range(256)) * 400


def job(**changes: Any) -> dict[str, Any]:
    """A job as a server describes it, with one file."""
    file = {
        "name": "bundle.zip",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "size": len(CONTENT),
    }
    return {
        "key": KEY,
        "verb": "bundle",
        "board": "host",
        "models": [{"name": "m.tflite"}],
        "state": "done",
        "created": 1.0,
        "files": [file],
        **changes,
    }


class Double(ThreadingHTTPServer):
    """Answers every request by ``answers``: a list of functions, the last of which stays."""

    daemon_threads = True

    def __init__(self, *answers: Callable[[Handler], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Double
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, self.path, headers, body))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    do_POST = do_GET

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, body: bytes, length: int | None = None) -> None:
        """An answer that ends early if ``length`` is more than the body."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        if length is not None:
            hang_up(self)


def says(answer: Any, status: int = 200) -> Callable[[Handler], None]:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda handler: handler.answer(status, body)


def hang_up(handler: Handler) -> None:
    """Close the connection in the middle."""
    handler.close_connection = True


@contextlib.contextmanager
def double(*answers: Callable[[Handler], None]) -> Iterator[Double]:
    server = Double(*answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def reached(*answers: Callable[[Handler], None]) -> Iterator[tuple[Double, Server]]:
    """A client that got one answer already, and the server that answers it further."""
    with double(says(job()), *answers) as server, Server(ServerSettings(server.url)) as client:
        client.job(KEY)
        server.requests.clear()
        yield server, client


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PATIENCE_S", 0.5)
    monkeypatch.setattr(api, "_FIRST_PAUSE_S", 0.01)


def test_a_request_is_repeated_until_the_server_is_back() -> None:
    with reached(hang_up, says({}, 503), hang_up, says([job()])) as (server, client):
        (started,) = client.start("bundle", ["digest"], ["host"], {})
    assert started.key == KEY
    assert len(server.requests) == 4
    # The server can see that the four are one.
    assert len({headers["idempotency-key"] for _, _, headers, _ in server.requests}) == 1
    assert len({body for *_, body in server.requests}) == 1


def test_an_upload_is_repeated_whole(tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    with reached(says({}, 404), hang_up, says({"sha256": digest}, 201)) as (server, client):
        assert client.upload(model) == digest
    _, first, second = server.requests
    assert CONTENT in first[3] and CONTENT in second[3]
    with reached(says({"sha256": digest, "name": "m.tflite"})) as (server, client):
        assert client.upload(model) == digest
    # The server has it under this name.
    assert [request[0] for request in server.requests] == ["GET"]
    damaged = says({"sha256": "0" * 64}, 201)
    with reached(says({}, 404), damaged) as (_, client), pytest.raises(ServerError, match="damag"):
        client.upload(model)


def test_waiting_for_a_server_ends() -> None:
    told: list[str] = []
    with reached(hang_up) as (_, client):
        client._waiting = told.append
        with pytest.raises(ServerError, match=r"has not answered for 0 s.*utvm jobs"):
            client.job(KEY)
    assert len(told) == 1


def test_a_server_that_is_busy_at_first_is_waited_for() -> None:
    busy = says({"kind": "TooManyUploads", "error": "other uploads are running"}, 503)
    with double(busy, says(job())) as server, Server(ServerSettings(server.url)) as client:
        assert client.job(KEY).key == KEY


def test_a_server_that_was_never_there(capsys: pytest.CaptureFixture[str]) -> None:
    with double(hang_up) as server:
        assert main(["jobs", "--server", server.url]) == 1
        assert len(server.requests) == 1
    assert main(["jobs", "--server", server.url]) == 1
    told = capsys.readouterr().err
    assert told.count("does `utvm serve` run there?") == 2


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (says({"kind": "UsageError", "error": "no board\x1b[2J 'x'"}, 400), UsageError, "no board"),
        (says({"kind": "ServerError", "error": "full"}, 507), ServerError, "^full$"),
        (says({"kind": "ServerError", "error": "no"}, 401), ServerError, "UTVM_TOKEN"),
        (says(b"<html>"), ServerError, "not a server of utvm"),
        (says(b"<html>", 404), ServerError, r"not a server of utvm \(status 404\)"),
        (says(b"[" * 100_000), ServerError, "not a server of utvm"),
        (says([]), ServerError, "is not a job"),
        (says({"key": "../../etc"}), ServerError, "is not a job"),
        (says(b"", 302), ServerError, "not a server of utvm"),
    ],
)
def test_an_answer_that_is_no_job(
    answer: Callable[[Handler], None], kind: type[UtvmError], sentence: str
) -> None:
    with reached(answer) as (_, client), pytest.raises(kind, match=sentence) as caught:
        client.job(KEY)
    assert type(caught.value) is kind
    assert str(caught.value).isprintable()


def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_MOST_JSON_BYTES", 1000)
    with reached(says(b"[" + b" " * 5000 + b"]")) as (_, client), pytest.raises(ServerError):
        client.jobs(10)


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    cut = 70_000

    def rest(handler: Handler) -> None:
        assert handler.headers["Range"] == f"bytes={cut}-"
        handler.answer(206, CONTENT[cut:])

    def broken(handler: Handler) -> None:
        handler.answer(200, CONTENT[:cut], len(CONTENT))

    described = job_of(job())
    for answers in ((broken, rest), (broken, says(CONTENT))):  # the latter knows no ranges
        with reached(*answers) as (server, client):
            path = download(client, described, described.files[0], tmp_path)
        assert path.read_bytes() == CONTENT
        assert len(server.requests) == 2
        assert [one.name for one in tmp_path.iterdir()] == ["bundle.zip"]
        path.unlink()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (says(CONTENT + b"more"), "longer than the 102,400 bytes"),
        (says(CONTENT[:-1] + b"x"), "another SHA-256"),
        (says(CONTENT[:-1]), "the file ended early"),
        (says({"kind": "NotFound", "error": "it is gone"}, 404), "it is gone"),
    ],
)
def test_a_file_that_is_not_what_the_server_said(
    answer: Callable[[Handler], None], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "bundle.zip").write_text("mine")
    described = job_of(job())
    with reached(answer) as (_, client), pytest.raises(ServerError, match=sentence):
        download(client, described, described.files[0], tmp_path)
    # Nothing is left, and nothing is lost.
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("bundle.zip", "mine")]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "c:x", ".bashrc", "~x", "a\0b"),
        *("a\nb", "a\x1b[2J", "x" * 201, "é" * 101, "\u202efdp.exe"),
    ],
)
def test_a_server_does_not_choose_where_it_writes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServerError, match="is refused") as caught:
        safe_name(name)
    assert str(caught.value).isprintable()
    monkeypatch.chdir(tmp_path)
    described = job()
    described["files"] = [*described["files"], {**described["files"][0], "name": name}]
    with double(says(described)) as server:
        assert main(["fetch", KEY, "-o", "here", "--server", server.url]) == 1
    # Nothing of such a job is written, not even its other files.
    assert list(tmp_path.iterdir()) == []


def test_content_of_a_job_without_the_file() -> None:
    with reached(hang_up) as (_, client), pytest.raises(ServerError, match="it is running"):
        content(client, job_of(job(state="running", files=[])), "log.txt")


def test_the_token_goes_with_every_request_and_into_no_message() -> None:
    with double(says({"kind": "ServerError", "error": "wrong"}, 401)) as server:
        secret = ServerSettings(server.url, token="secret-token")
        with Server(secret) as client, pytest.raises(ServerError) as caught:
            client.job(KEY)
    assert server.requests[0][2]["authorization"] == "Bearer secret-token"
    assert "secret-token" not in str(caught.value) + repr(secret)


TEXTS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
VALUES = (
    TEXTS | st.lists(TEXTS, max_size=2) | st.dictionaries(st.text(max_size=4), TEXTS, max_size=2)
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted([*job(), "exit_code", "progress"])), VALUES))
def test_any_json_is_a_job_or_refused(changes: dict[str, Any]) -> None:
    try:
        found = job_of(job(**changes))
    except ServerError:
        return
    assert isinstance(found, RemoteJob)
    assert 0 <= found.status <= 255
    assert (found.board + found.reason + found.what).isprintable()
    assert printable(found.state) == found.state
