"""A server that is started again whenever it was killed, and what may be killed of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil
from server_process import PATIENCE_S, environment

#: What a process is, by a part of its command line.
KINDS = {"worker": "spawn_main", "job": "utvm_deploy", "emulator": "qemu-system"}
#: How long what a killed process leaves may live.
ORPHAN_S = 15.0


class KilledServer:
    """`utvm serve` on one data folder; a context manager."""

    def __init__(self, data: Path, image_cache: Path, *arguments: str) -> None:
        self.data = data
        self._environment = environment(data, {"UTVM_CACHE": str(image_cache)})
        self._arguments = arguments
        self._is_up = threading.Event()
        self._log = data.parent / "server.log"

    def __enter__(self) -> KilledServer:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
            _, alive = psutil.wait_procs(below, ORPHAN_S)
            assert not alive, f"left after the server ended: {alive}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)
            self._close_pipe()

    def _close_pipe(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _start(self) -> None:
        argv = [sys.executable, "-m", "utvm_deploy", "serve", "--data", str(self.data)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*argv, "--port", "0", *self._arguments],
                cwd=self.data.parent,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("http"), self._log.read_text()
        self.url = line.split()[0].rstrip("/")
        self._is_up.set()

    def request(self, method: str, path: str, **more: object) -> httpx.Response:
        """An answer of the server; it is asked again for as long as it is down."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self._is_up.wait(PATIENCE_S), "the server does not come back"
            try:
                answer = httpx.request(
                    method, self.url + path, timeout=PATIENCE_S, trust_env=False, **more
                )
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.1)
                continue
            assert answer.status_code < 500, answer.text
            return answer

    def parts(self, kind: str) -> list[psutil.Process]:
        """The processes below the server that are of a kind."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if KINDS[kind] in " ".join(one.cmdline()):
                        found.append(one)
        return found

    def kill(self) -> None:
        """Kill the server, see that nothing is left of it, and start it again."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        self._is_up.clear()
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._close_pipe()
        _, alive = psutil.wait_procs(below, ORPHAN_S)
        assert not alive, f"left after the server was killed: {alive}"
        self._start()

    def kill_part(self, kind: str, rng: random.Random, timeout_s: float) -> bool:
        """Kill a process of a kind as soon as there is one; whether there was."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for one in rng.sample(found := self.parts(kind), len(found)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    below = one.children(recursive=True)
                    one.kill()
                    _, alive = psutil.wait_procs([one, *below], ORPHAN_S)
                    assert not alive, f"left after the {kind} was killed: {alive}"
                    return True
            time.sleep(0.02)
        return False


class Program:
    """A program that may be killed and started again; a context manager."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._argv = argv
        self._folder = folder

    def __enter__(self) -> Program:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def start(self) -> None:
        """Start it, first or again."""
        with (self._folder / "program.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self._folder,
                env=environment(self._folder / "data"),
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9, and see that nothing is left."""
        assert self._process.poll() is None, (self._folder / "program.log").read_text()
        below = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(below, ORPHAN_S)
        assert not alive, f"left after a program was killed: {alive}"


def scheduler_on(port: int) -> list[str]:
    """The command of Dask's scheduler, as its users start it."""
    module = (sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_scheduler")
    return [*module, "--host", f"127.0.0.1:{port}", "--no-dashboard"]


def worker_of(port: int) -> list[str]:
    """The command of a worker for that scheduler."""
    return [sys.executable, "-m", "utvm_deploy", "worker", f"tcp://127.0.0.1:{port}"]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
