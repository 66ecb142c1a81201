"""A server that is started again whenever it was killed, and what may be killed of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
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
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
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
