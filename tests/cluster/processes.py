"""Schedulers and workers as separate processes, for tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from utvm_deploy.base.process import child_environment

PATIENCE_S = 90.0


@contextmanager
def running(argv: Sequence[str], log: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program until the end of the block; what it prints is in ``log``."""
    # Schedulers and workers import the functions that they are sent (cluster_jobs.py).
    path = os.pathsep.join([str(Path(__file__).parent), child_environment()["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, **settings}
    with (
        log.open("wb") as file,
        subprocess.Popen(argv, env=environment, stdout=file, stderr=subprocess.STDOUT) as child,
    ):
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def scheduler(folder: Path, port: int = 0, *options: str) -> Iterator[tuple[int, str]]:
    """Dask's own scheduler, as its users start it: the process and its address."""
    port = port or free_port()
    argv = [
        *(sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_scheduler"),
        *("--host", f"127.0.0.1:{port}", "--no-dashboard", "--dashboard-address", ":0", *options),
    ]
    kind = "tls" if "--tls-key" in options else "tcp"
    with running(argv, folder / f"scheduler-{port}.txt") as child:
        wait_until(lambda: is_listening(port), "the scheduler does not listen")
        yield child.pid, f"{kind}://127.0.0.1:{port}"


@contextmanager
def worker(
    folder: Path, address: str, name: str, *options: str, desk: str = "[boards]\n"
) -> Iterator[subprocess.Popen[bytes]]:
    """``utvm worker`` with its own bench.toml; its output is in NAME.txt."""
    bench = folder / f"{name}.toml"
    bench.write_text(desk)
    scratch = folder / f"{name}-scratch"
    scratch.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "utvm_deploy", "worker", address, "--name", name, *options]
    settings = {"UTVM_BENCH": str(bench), "TMPDIR": str(scratch)}
    with running(argv, folder / f"{name}.txt", **settings) as child:
        yield child


def wait_for_text(log: Path, text: str, count: int = 1) -> None:
    """Until the file has the text ``count`` times."""
    found = ""

    def is_there() -> bool:
        nonlocal found
        found = log.read_text() if log.exists() else ""
        return found.count(text) >= count

    wait_until(is_there, f"{text!r} is not in what {log.name} has: ", lambda: found)


def wait_until(
    condition: Callable[[], bool], sentence: str, detail: Callable[[], str] = str
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, sentence + detail()
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
