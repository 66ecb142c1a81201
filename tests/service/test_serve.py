"""`utvm serve` as a process, and how it refuses to start."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import sqlite3
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from server_process import PATIENCE_S, ROOT, Server, serving
from small_disk import small_disk

from utvm_deploy.cli.main import main
from utvm_deploy.service.server.store.data_folder import held_folder

Capture = pytest.CaptureFixture[str]
tools = pytest.mark.tools


def ended(server: Server, key: str) -> dict[str, object]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        job: dict[str, object] = server.http.get(f"/api/v1/jobs/{key}").json()
        if job["finished"] is not None:
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.1)


@tools
def test_a_job_runs_on_a_board_of_this_computer(server: Server) -> None:
    digest = server.upload(ROOT / "models" / "digits.tflite")
    answer = server.http.post(
        "/api/v1/jobs", json={"verb": "compile", "models": [digest], "boards": ["host"]}
    )
    assert answer.status_code == 201, answer.text
    key = answer.json()[0]["key"]
    job = ended(server, key)
    assert job["state"] == "done", job["reason"]
    assert server.http.get(f"/api/v1/jobs/{key}/files/model.tar").status_code == 200


@tools
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_server_while_clients_listen(
    tmp_path: Path, image_cache: Path, number: signal.Signals
) -> None:
    with serving(tmp_path / "data", env={"UTVM_CACHE": str(image_cache)}) as server:
        digest = server.upload(ROOT / "models" / "digits.tflite")
        wanted: dict[str, Any] = {"verb": "tune", "models": [digest], "boards": ["host"]}
        wanted["options"] = {"minutes": 5}
        (job,) = server.http.post("/api/v1/jobs", json=wanted).json()
        left = psutil.Process(server.process.pid).children(recursive=True)
        assert left
        with server.http.stream("GET", f"/api/v1/jobs/{job['key']}/events") as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(number)
            for _ in lines:
                pass
        assert server.process.wait(PATIENCE_S) == 128 + number
        _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
        assert not alive


@tools
def test_beyond_loopback_there_are_certificates_and_a_token(
    tmp_path: Path, image_cache: Path, capsys: Capture
) -> None:
    made = tmp_path / "made"
    hosts = ("--host", "localhost", "--host", "127.0.0.1")
    assert main(["serve", "--make-certificates", str(made), *hosts]) == 0
    assert f"utvm serve --host localhost --certificates {made}" in capsys.readouterr().out
    token = (made / "token").read_text().strip()
    trusting = ssl.create_default_context(cafile=made / "authority.pem")
    with serving(
        tmp_path / "data",
        *("--host", "0.0.0.0", "--certificates", str(made), "--listen", "127.0.0.1:0"),
        env={"UTVM_CACHE": str(image_cache)},
        verify=trusting,
    ) as server:
        assert server.url.startswith("https://")
        assert server.process.stdout is not None
        said = server.process.stdout.readline()
        assert re.search(r"utvm worker tls://127\.0\.0\.1:[0-9]+ --certificates", said)
        url = f"https://localhost:{httpx.URL(server.url).port}"
        server.http.base_url = httpx.URL(url)
        assert server.http.get("/api/v1/jobs").status_code == 401
        headers = {"authorization": f"Bearer {token}"}
        assert server.http.get("/api/v1/jobs", headers=headers).json() == []
        login = server.http.post("/login", data={"token": token})
        assert "Secure" in login.headers["set-cookie"]
        # A client that trusts others does not talk to it.
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{url}/api/v1/jobs")
        # Nothing goes over the network unencrypted.
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{url.replace('https', 'http')}/api/v1/jobs")


def refusal(capsys: Capture, *arguments: str) -> str:
    """The one sentence of a server that does not start."""
    assert main(["serve", "--port", "0", *arguments]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return said.err


def test_a_port_in_use_is_told(capsys: Capture, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refusal(capsys, "--data", str(tmp_path / "data"), "--port", port)
    assert f"cannot listen at 127.0.0.1 port {port}: Address already in use; give another" in said
    assert not (tmp_path / "data").exists()


def test_one_folder_is_for_one_server(capsys: Capture, tmp_path: Path) -> None:
    with held_folder(tmp_path / "data"):
        said = refusal(capsys, "--data", str(tmp_path / "data"))
    assert "another server (process " in said and "name another folder with --data" in said


@pytest.mark.parametrize("free", [0, 4096], ids=["full", "room for the lock alone"])
def test_a_full_disk_at_the_start_is_told(capsys: Capture, tmp_path: Path, free: int) -> None:
    size = 64 << 10
    with small_disk(tmp_path / "small", size) as disk:
        (disk / "data").mkdir()
        with contextlib.suppress(OSError), (disk / "fill").open("wb", buffering=0) as fill:
            for _ in range((size - free) // 4096):
                fill.write(bytes(4096))
        said = refusal(capsys, "--data", str(disk / "data"), "--port", "0")
    assert str(disk / "data") in said
    assert "make room there, or name another folder with --data" in said


@pytest.mark.parametrize("content", ["another version", "something else"])
def test_a_database_that_is_not_this_versions_is_told(
    capsys: Capture, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "service.sqlite"
    if content == "another version":
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA user_version = 99")
    else:
        path.write_bytes(b"not a database" * 1000)
    said = refusal(capsys, "--data", str(tmp_path), "--port", "0")
    assert "name another folder with --data" in said and "room" not in said


def test_a_folder_that_cannot_be_written_is_told(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refusal(capsys, "--data", str(tmp_path / "file" / "data"))
    assert "cannot keep data in " in said and "Not a directory" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "needs a token and TLS: run `utvm serve --make-certificates DIR"),
        (["--host", "nowhere.invalid"], "cannot listen at nowhere.invalid"),
        (["--host", "localhost", "--host", "127.0.0.1"], "--host is given twice"),
        (["--port", "65536"], "'65536' is not a port"),
        (["--port", "-1"], "'-1' is not a port"),
        (["--disk-limit", "5"], "5 is too small; give 256M or more"),
        (["--disk-limit", "lots"], "'lots' is not a size; give one such as 500M or 20G"),
        (["--listen", "0.0.0.0"], "a scheduler on 0.0.0.0 would run what anybody sends it"),
        (["--keep-days", "0"], "0 is not above zero"),
        (["--certificates", "nowhere"], "nowhere has no authority.pem"),
        (["--token-file", "nowhere"], "cannot read the token in nowhere"),
        (["--scheduler", "tcp://127.0.0.1:1", "--listen", "127.0.0.1"], "leave it out with"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    capsys: Capture, arguments: list[str], told: str
) -> None:
    assert told in refusal(capsys, *arguments)


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        ("x" * 40, 0o644, "other users may read"),
        ("short", 0o600, "holds no token"),
        ("two words of a token", 0o600, "holds no token"),
        ("", 0o600, "holds no token"),
        ("x" * 5000, 0o600, "holds no token"),
    ],
)
def test_a_bad_token_file_is_told(
    capsys: Capture, tmp_path: Path, content: str, mode: int, told: str
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    said = refusal(capsys, "--token-file", str(path))
    assert told in said
    assert not content or content not in said


def test_the_token_of_a_folder_of_certificates_is_checked_too(
    capsys: Capture, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    assert main(["serve", "--make-certificates", str(made), "--host", "127.0.0.1"]) == 0
    capsys.readouterr()
    (made / "token").write_text("short\n")
    # Wrong code would serve: a data folder that cannot be made ends that at once.
    (tmp_path / "file").write_text("")
    data = ["--data", str(tmp_path / "file" / "data")]
    said = refusal(capsys, "--certificates", str(made), *data)
    assert "holds no token" in said and "short" not in said


def test_absent_packages_are_told(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'utvm-deploy[service]'" in refusal(capsys)
