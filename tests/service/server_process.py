"""A real `utvm serve` process for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
#: How long a step may take on a loaded machine.
PATIENCE_S = 60.0


@dataclass
class Server:
    """A server and an HTTP client of it."""

    url: str  # such as "http://127.0.0.1:40123", without a slash at its end
    data: Path
    process: subprocess.Popen[str]
    http: httpx.Client

    def upload(self, model: Path) -> str:
        """The digest of a model that the server now has."""
        with model.open("rb") as file:
            answer = self.http.post("/api/v1/models", files={"file": (model.name, file)})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["sha256"])


def environment(data: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
    """No setting of the user's reaches the server."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("UTVM_")}
    runs = str(data.parent / "server-runs.sqlite")
    return {**kept, "PYTHONPATH": str(ROOT), "UTVM_RUNS": runs, **more}


@contextlib.contextmanager
def serving(
    data: Path,
    *arguments: str,
    env: Mapping[str, str] = {},
    verify: ssl.SSLContext | bool = False,
) -> Iterator[Server]:
    """`utvm serve` on a free port; it is ended with the block."""
    argv = [sys.executable, "-m", "utvm_deploy", "serve", "--data", str(data), "--port", "0"]
    with subprocess.Popen(
        [*argv, *arguments],
        cwd=data.parent,
        env=environment(data, env),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("http"), f"the server said {line!r}"
            url = line.split()[0].rstrip("/")
            with httpx.Client(base_url=url, timeout=PATIENCE_S, verify=verify) as http:
                yield Server(url, data, process, http)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
