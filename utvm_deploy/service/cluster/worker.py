"""Keeps a worker of this machine in a cluster: starts its process, and starts it again."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.base import process
from utvm_deploy.base.errors import ClusterError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.service.cluster import worker_news
from utvm_deploy.service.cluster.addresses import check_address
from utvm_deploy.service.cluster.certificates import security
from utvm_deploy.service.cluster.dask_settings import load_distributed
from utvm_deploy.service.cluster.facts import machine_facts
from utvm_deploy.service.cluster.offers import Offer, resources, usable_cores

#: How long a worker waits for a scheduler that does not answer.
PATIENCE_S = 600.0
#: How much longer its process may take to say that nobody answered.
_MARGIN_S = 60.0
#: A process that dies at once is not started again without a pause.
_PAUSE_S = 1.0
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is started with."""

    address: str
    name: str
    offers: tuple[Offer, ...]
    certificates: Path | None = None
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class _End:
    """How a worker's process ended."""

    news: str
    text: str
    was_connected: bool


def run_worker(settings: WorkerSettings, told: Callable[[str], None]) -> None:
    """Work for the scheduler until Ctrl-C; ``told`` is called with what users should know.

    Raises ClusterError if the scheduler refuses, or is not reached within ``patience_s``.
    """
    check_address(settings.address, settings.certificates)
    load_distributed()
    if settings.certificates is not None:
        security(settings.certificates)  # says what is wrong with them before anything starts
    facts = machine_facts(settings.offers)
    was_connected = False
    deadline = time.monotonic() + settings.patience_s
    while True:
        end = _one_process(settings, facts, told)
        if process.is_dry_run():
            return
        if end.was_connected:
            was_connected = True
            deadline = time.monotonic() + settings.patience_s
        if end.news == worker_news.REFUSED:
            raise ClusterError(end.text)
        if end.news == worker_news.NAME_TAKEN and (
            not was_connected or time.monotonic() >= deadline
        ):
            raise ClusterError(
                f"the scheduler has another worker named {settings.name}; give another --name"
            )
        if end.news == worker_news.DIED:
            sentence = f"the worker's process ended: {end.text}"
            if time.monotonic() >= deadline:
                raise ClusterError(sentence)
            told(f"{sentence}; it is started again")
        elif end.news == worker_news.LOST:
            told(
                f"the scheduler at {settings.address} does not answer any more; the worker waits "
                f"{settings.patience_s:g} s for it"
            )
        time.sleep(_PAUSE_S)


def _one_process(
    settings: WorkerSettings, facts: Mapping[str, Any], told: Callable[[str], None]
) -> _End:
    """Start a process that joins the scheduler, and follow it to its end."""
    with TemporaryFolder("worker") as scratch:
        given = {
            "address": settings.address,
            "name": settings.name,
            "certificates": settings.certificates and str(settings.certificates),
            "patience_s": settings.patience_s,
            "resources": resources(settings.offers, usable_cores()),
            "facts": facts,
            "scratch": str(scratch),
        }
        module = "utvm_deploy.service.cluster.worker_process"
        argv = [sys.executable, "-m", module, json.dumps(given)]
        # Jobs that are killed leave their temporary files there, and nowhere else.
        environment = {**process.child_environment(), "TMPDIR": str(scratch)}
        was_connected = False
        last = {"worker": worker_news.DIED, "text": ""}
        with process.start(argv, env=environment) as child:
            for last in _news(child, settings.patience_s + _MARGIN_S):
                if last["worker"] == worker_news.CONNECTED:
                    was_connected = True
                    told(f"connected to {settings.address}; Ctrl-C ends the worker")
                elif last["worker"] == worker_news.WAITING:
                    told(f"{last['text']}; waiting up to {settings.patience_s:g} s")
            if last["worker"] in (worker_news.LOST, worker_news.NAME_TAKEN, worker_news.REFUSED):
                return _End(last["worker"], last["text"], was_connected)
            return _End(worker_news.DIED, _why(child), was_connected)


def _news(child: process.Child, patience_s: float) -> Iterator[dict[str, str]]:
    """What the process says, to its end; ClusterError if it says nothing for too long.

    Once it is connected it may be silent.
    """
    output = child.popen.stdout
    assert output is not None
    deadline: float | None = time.monotonic() + patience_s
    pending = b""
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([output], [], [], left)[0]:
            raise ClusterError(
                f"the worker's process says nothing for {patience_s:g} s; start it again"
            )
        new = os.read(output.fileno(), _READ_BYTES)
        if not new:
            return
        *lines, pending = (pending + new).split(b"\n")
        for line in lines:
            # What a task prints is on standard output, too.
            if line.startswith(b'{"worker":'):
                news: dict[str, str] = json.loads(line)
                if news["worker"] == worker_news.CONNECTED:
                    deadline = None
                yield news


def _why(child: process.Child) -> str:
    """Why a process ended without a word."""
    child.popen.wait(process.KILL_TIMEOUT_S)
    code = child.returncode
    if code is not None and code < 0:
        return f"{signal.Signals(-code).name} ended it"
    words = child.last_words().splitlines()
    return words[-1] if words else f"exit code {code}"
