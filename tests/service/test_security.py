"""Who is let in, and what one client can take from the others."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from app_server import NO_TLS, App, app_running
from server_process import PATIENCE_S

from utvm_deploy.base.errors import UsageError
from utvm_deploy.service.cluster.job import Outcome
from utvm_deploy.service.server.security import bodies as security_bodies
from utvm_deploy.service.server.security import listener as security_listener
from utvm_deploy.service.server.security import protocol as security_protocol
from utvm_deploy.service.server.security import tokens as security
from utvm_deploy.service.server.security.protocol import GuardedProtocol
from utvm_deploy.service.server.security.tokens import Access, Judge, access_of
from utvm_deploy.service.server.server import listening
from utvm_deploy.service.server.store.settings import Settings

TOKEN = "correct-horse-battery-staple"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A server that wants a token."""
    data = tmp_path_factory.mktemp("locked") / "data"
    with app_running(Settings(data, token=TOKEN)) as running:
        yield running


@pytest.fixture(autouse=True)
def forgets_wrong_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tokens of one test do not count in the next."""
    monkeypatch.setattr(security, "MOST_WRONG", 1000)


def test_only_the_token_opens(locked: App) -> None:
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"cookie": f"utvm_session={TOKEN}"},
        {"cookie": "utvm_session=99999999999.aa.bb"},
        {"cookie": "utvm_session=.."},
    ):
        for path in ("/api/v1/jobs", "/api/openapi.json", "/api/v1/nothing", "/nothing"):
            answer = locked.http.get(path, headers=headers)
            assert answer.status_code == 401, (path, headers)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.text
    assert locked.http.get("/api/v1/jobs", headers=BEARER).status_code == 200


def test_the_comparison_takes_the_same_time_for_all_tokens(
    locked: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(security.hmac, "compare_digest", watched)
    assert locked.http.get("/api/v1/jobs", headers=BEARER).status_code == 200
    assert (TOKEN.encode(), TOKEN.encode()) in compared


def test_a_browser_logs_in_and_out(locked: App) -> None:
    with httpx.Client(
        base_url=locked.url, headers={"accept": "text/html"}, verify=NO_TLS
    ) as browser:
        answer = browser.get("/jobs?state=done")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Ddone"
        form = {"token": "wrong", "next": "/jobs"}
        answer = browser.post("/login", data=form)
        assert answer.status_code == 401 and "the token is wrong" in answer.text
        assert not browser.cookies
        answer = browser.post("/login", data={**form, "token": f" {TOKEN}\n"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Max-Age=604800" in cookie
        assert TOKEN not in cookie
        assert browser.get("/api/v1/jobs").status_code == 200
        browser.post("/logout")
        assert browser.get("/api/v1/jobs").status_code in (303, 401)


@pytest.mark.parametrize("other", ['theme={"a": 1}', "a b", "=", 'x="', "é=ü"])
def test_cookies_of_other_programs_on_the_host_log_nobody_out(locked: App, other: str) -> None:
    """Cookies belong to a host, and not to one of its ports."""
    cookie = f"{other}; utvm_session={locked.parts.access.session()}; z={other}"
    answer = locked.http.get("/api/v1/jobs", headers={"cookie": cookie.encode()})
    assert answer.status_code == 200


def test_the_page_after_the_login_is_one_of_this_server(locked: App) -> None:
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "jobs", "/a\r\nb"):
        answer = locked.http.post("/login", data={"token": TOKEN, "next": target})
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), target
        locked.http.cookies.clear()


def test_a_session_ends_with_its_time_and_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(TOKEN)
    cookie = access.session()
    assert access.is_session(cookie)
    assert not Access("another").is_session(cookie)
    assert not Access(None).is_session(cookie)
    later, _, rest = cookie.partition(".")
    assert not access.is_session(f"{int(later) + 1}.{rest}")
    now = time.time()
    monkeypatch.setattr(security.time, "time", lambda: now + security.SESSION_S + 1)
    assert not access.is_session(cookie)


def test_wrong_tokens_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "MOST_WRONG", 10)
    now = 100.0
    judge = Judge(Access(TOKEN), clock=lambda: now)
    for _ in range(10):
        refusal = judge.look("wrong", "192.0.2.1")
        assert refusal is not None and refusal.status == 401
        now += 1
    refusal = judge.look("wrong", "192.0.2.1")
    assert refusal is not None and refusal.status == 429
    assert refusal.headers["retry-after"] == "51"
    # Whoever has the right token is not locked out by others of the address.
    assert judge.look(TOKEN, "192.0.2.1") is None
    refusal = judge.look("wrong", "192.0.2.1")
    assert refusal is not None and refusal.status == 429
    now += 51
    refusal = judge.look("wrong", "192.0.2.1")
    assert refusal is not None and refusal.status == 401


def test_ten_wrong_tokens_do_not_lock_the_owner_out(
    locked: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "MOST_WRONG", 10)
    with httpx.Client(base_url=locked.url, verify=NO_TLS) as guest:
        wrong = {"authorization": "Bearer wrong"}
        found = [guest.get("/api/v1/jobs", headers=wrong).status_code for _ in range(12)]
        assert found[-1] == 429
        assert guest.get("/api/v1/jobs", headers=BEARER).status_code == 200
        assert guest.post("/login", data={"token": TOKEN}).status_code == 303


def login(app: App) -> dict[str, str]:
    """The header with the cookie of a new login."""
    answer = httpx.post(f"{app.url}/login", data={"token": TOKEN}, verify=NO_TLS)
    return {"cookie": f"utvm_session={answer.cookies['utvm_session']}"}


def test_a_copied_cookie_ends_with_its_login(tmp_path: Path) -> None:
    data = Settings(tmp_path / "data", token=TOKEN)

    def is_in(app: App, headers: dict[str, str]) -> bool:
        answer = httpx.get(f"{app.url}/api/v1/jobs", headers=headers, verify=NO_TLS)
        return answer.status_code == 200

    with app_running(data) as app:
        mine, other = login(app), login(app)
        httpx.post(f"{app.url}/logout", verify=NO_TLS, headers=mine)
        assert (is_in(app, mine), is_in(app, other)) == (False, True)
        # Nobody ends a login by a cookie of his own making.
        forged = {"cookie": other["cookie"][:-1]}
        httpx.post(f"{app.url}/logout", verify=NO_TLS, headers={**BEARER, **forged})
        assert is_in(app, other)
    # A restart keeps the logins, and those that were ended stay ended.
    with app_running(data) as app:
        assert (is_in(app, mine), is_in(app, other)) == (False, True)
        third = login(app)
        httpx.post(f"{app.url}/logout", verify=NO_TLS, headers=third, data={"everywhere": "true"})
        new = login(app)
        assert [is_in(app, one) for one in (mine, other, third, new)] == [False, False, False, True]
    with app_running(data) as app:
        assert [is_in(app, one) for one in (mine, other, third, new)] == [False, False, False, True]


def test_streams_end_with_their_login(locked: App) -> None:
    mine = login(locked)
    with httpx.stream("GET", f"{locked.url}/api/v1/events", headers=mine, timeout=30.0) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")
        httpx.post(f"{locked.url}/logout", verify=NO_TLS, headers=mine)
        for _ in lines:
            pass  # until the server ends it
    with httpx.stream("GET", f"{locked.url}/api/v1/events", headers=mine) as stream:
        assert stream.status_code == 401


def test_many_addresses_take_bounded_memory() -> None:
    judge = Judge(Access(TOKEN))
    for number in range(10_000):
        judge.look("wrong", str(number))
    assert len(judge._wrong) <= 4096


def test_a_name_that_leads_here_by_a_trick_is_refused(app: App) -> None:
    port = httpx.URL(app.url).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[", ""):
        answer = app.http.get("/api/v1/jobs", headers={"host": host})
        assert answer.status_code == 421, host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST"):
        assert app.http.get("/api/v1/jobs", headers={"host": host}).status_code == 200, host


def test_a_page_of_another_server_changes_nothing(app: App) -> None:
    digest = app.upload()
    own = httpx.URL(app.url)
    foreign: tuple[dict[str, str], ...] = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{own.port + 1 if own.port else 1}"},
        {"origin": f"https://127.0.0.1:{own.port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": app.url, "sec-fetch-site": "cross-site"},
    )
    wanted = {"verb": "inspect", "models": [digest]}
    for headers in foreign:
        answer = app.http.post("/api/v1/jobs", json=wanted, headers=headers)
        assert answer.status_code == 403, headers
        file = {"file": ("other.tflite", b"x")}
        assert app.http.post("/api/v1/models", files=file, headers=headers).status_code == 403
        assert app.http.post("/login", data={"token": "x"}, headers=headers).status_code == 403
        upgrade = {
            "connection": "upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }
        socketed = app.http.get("/api/v1/boards/host/session", headers={**headers, **upgrade})
        assert socketed.status_code == 403
    assert app.http.get("/api/v1/jobs").json() == []
    # Forms can be sent as text by any page. The server does not read them as JSON.
    answer = app.http.post("/api/v1/jobs", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    # Its own pages and the user may.
    good = {"origin": app.url, "sec-fetch-site": "same-origin"}
    assert app.http.post("/api/v1/jobs", json=wanted, headers=good).status_code == 201
    # And a link from anywhere may be followed.
    read = app.http.get("/api/v1/jobs", headers={"sec-fetch-site": "cross-site"})
    assert read.status_code == 200


def test_a_websocket_needs_the_token(locked: App) -> None:
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = locked.http.get("/api/v1/boards/host/session", headers=upgrade)
    assert answer.status_code == 401, (answer.text, answer.headers)
    assert answer.json()["kind"] == "NoToken", answer.text


def test_every_answer_has_the_security_headers(app: App) -> None:
    for path in ("/api/v1/jobs", "/api/v1/nothing", "/login"):
        headers = app.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "server" not in headers
    refused = app.http.get("/api/v1/jobs", headers={"host": "evil.example"}).headers
    assert refused["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_beyond_loopback_token_and_tls_are_needed(host: str, token: str | None) -> None:
    with (
        pytest.raises(UsageError, match=r"needs a token and TLS: run `utvm serve --make-cert"),
        listening(Settings(Path("data"), host=host, token=token)),
    ):
        pass


def test_the_host_header_is_not_needed_under_tls() -> None:
    assert access_of(TOKEN, "0.0.0.0", is_encrypted=True).is_here("bench.example.org:8765")
    assert not access_of(None, "127.0.0.1", is_encrypted=False).is_here("bench.example.org")


# What one request may send.


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_large_body_is_refused_by_what_it_declares(app: App) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(app.url).port or 0)) as client:
        client.settimeout(PATIENCE_S)
        client.sendall(
            b"POST /api/v1/models HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n"
            b"Content-Length: 2147483648\r\n\r\n"
        )
        # No byte of the body is needed.
        answer = client.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert app.http.get("/api/v1/jobs").status_code == 200


@pytest.mark.slow
def test_a_large_body_in_chunks_is_cut_off(app: App) -> None:
    def chunks(size: int) -> Iterator[bytes]:
        sent = 0
        yield b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.tflite"\r\n\r\n'
        block = bytes(1 << 20)
        while sent < size:
            sent += len(block)
            yield block
        yield b"\r\n--x--\r\n"

    before = rss_bytes()
    answer = app.http.post(
        "/api/v1/models",
        content=chunks(2 << 30),
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    assert answer.status_code == 413, answer.text
    assert "134,283,264 bytes" in answer.json()["error"]
    assert rss_bytes() - before < 100 << 20
    assert app.http.get("/api/v1/models").json() == []
    # For other requests than uploads, the limit is much lower.
    answer = app.http.post(
        "/api/v1/jobs", content=chunks(4 << 20), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413
    assert not list((app.parts.settings.data / "files" / "parts").iterdir())


def test_a_form_with_many_parts_is_refused(app: App) -> None:
    files = [("file", (f"{number}.tflite", b"x")) for number in range(50)]
    answer = app.http.post("/api/v1/models", files=files)
    assert answer.status_code == 400
    assert app.http.post("/api/v1/models", files={"other": b"x"}).status_code == 400
    assert app.http.post("/api/v1/models", json={}).status_code == 400
    assert app.http.get("/api/v1/models").json() == []


def test_a_slow_body_is_given_up(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = security_bodies.BodyLimits(grace_s=0.3, bytes_a_second=1 << 20)
    monkeypatch.setattr(security_bodies, "LIMITS", limits)
    with socket.create_connection(("127.0.0.1", httpx.URL(app.url).port or 0)) as client:
        client.settimeout(PATIENCE_S)
        client.sendall(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        )
        answer = client.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408 "), answer


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost: local", b"\r\n"])
def test_a_connection_without_a_request_is_closed(
    app: App, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(security_protocol, "HEADER_TIMEOUT_S", 0.3)
    with socket.create_connection(("127.0.0.1", httpx.URL(app.url).port or 0)) as client:
        client.settimeout(PATIENCE_S)
        client.sendall(start)
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1000):
                pass


def test_the_deadline_of_the_headers_is_not_moved_by_single_bytes(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_protocol, "HEADER_TIMEOUT_S", 0.5)
    with socket.create_connection(("127.0.0.1", httpx.URL(app.url).port or 0)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(OSError):  # the server has closed the connection
            for _ in range(1000):
                client.sendall(b"x")
                time.sleep(0.05)


def test_a_client_that_takes_nothing_is_given_up(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_protocol, "WRITE_TIMEOUT_S", 0.3)
    content = bytes(32 << 20)
    app.cluster.run = lambda spec: Outcome(0, b"{}", b"", {"large": content})
    wanted = {"verb": "inspect", "models": [app.upload()]}
    (job,) = app.http.post("/api/v1/jobs", json=wanted).json()
    app.wait(job["key"])
    path = f"/api/v1/jobs/{job['key']}/files/large"
    lost: dict[int, threading.Event] = defaultdict(threading.Event)
    loses = GuardedProtocol.connection_lost

    def told(protocol: GuardedProtocol, error: Exception | None) -> None:
        loses(protocol, error)
        assert protocol.client is not None
        lost[protocol.client[1]].set()

    monkeypatch.setattr(GuardedProtocol, "connection_lost", told)
    with socket.create_connection(("127.0.0.1", httpx.URL(app.url).port or 0)) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert lost[client.getsockname()[1]].wait(PATIENCE_S)
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while data := client.recv(1 << 20):
                taken += len(data)
        assert taken < len(content)
    # A client that reads slowly gets the whole file.
    assert app.http.get(path).content == content


def test_connections_beyond_the_limit_are_closed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.http.get("/api/v1/jobs").status_code == 200  # one connection, which is kept
    monkeypatch.setattr(security_listener, "MOST_CONNECTIONS", 1)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{app.url}/api/v1/jobs")
    assert app.http.get("/api/v1/jobs").status_code == 200


def test_connections_count_before_they_say_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that never finish TLS's handshake count, too. asyncio does not report them."""
    monkeypatch.setattr(security_listener, "MOST_CONNECTIONS", 2)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(Settings(Path("unused"))))
        listener.settimeout(PATIENCE_S)

        def connect() -> socket.socket:
            address = listener.getsockname()
            return stack.enter_context(socket.create_connection(address, PATIENCE_S))

        connect(), connect()
        taken = [stack.enter_context(listener.accept()[0]) for _ in range(2)]
        refused = connect()
        with pytest.raises(ConnectionAbortedError, match="2 connections are open"):
            listener.accept()
        assert refused.recv(1) == b""
        taken.pop().close()
        connect()
        assert stack.enter_context(listener.accept()[0]).fileno() >= 0


def test_uploads_at_the_same_time_are_limited(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = security_bodies.BodyLimits(most_uploads=1)
    monkeypatch.setattr(security_bodies, "LIMITS", limits)
    with socket.create_connection(("127.0.0.1", httpx.URL(app.url).port or 0)) as client:
        client.sendall(
            b"POST /api/v1/models HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n--x"
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = app.http.post("/api/v1/models", files={"file": ("a.tflite", b"x")})
            if answer.status_code == 503:
                break
            assert time.monotonic() < deadline
        assert answer.headers["retry-after"] == "5"


def test_long_headers_are_refused(app: App) -> None:
    answer = app.http.get("/api/v1/jobs", headers={"x-long": "x" * 70_000})
    assert answer.status_code == 431
    assert app.http.get("/api/v1/jobs").status_code == 200
