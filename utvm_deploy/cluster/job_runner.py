"""Runs one job on a worker: the verb as a child process in a folder of its own.

What the child writes is forwarded as Dask events while it runs, so that a server follows it. The
child ends when the job is canceled, when its server is gone and when the worker dies.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker

from utvm_deploy.base import process
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.cluster.job import TOPIC, JobSpec, Outcome

#: How often the child's files are looked at.
_LOOK_S = 0.2
#: The most of a log that is kept, and that one event carries.
_LOG_BYTES, _EVENT_BYTES = 1 << 20, 1 << 16
_RESULT, _LOG, _EVENTS, _RUNS = "result.json", "log.txt", "events.jsonl", "runs.sqlite"


def run_job(spec: JobSpec) -> Outcome | None:
    """The Dask task. None if the job was canceled, or nobody waits for it any more."""
    worker = get_worker()
    with TemporaryFolder("utvm-job") as folder:
        work, facts = folder / "work", folder / "facts"
        work.mkdir()
        facts.mkdir()
        for name, content in spec.files.items():
            (work / name).write_bytes(content)
        code = _run(spec, worker, work, facts)
        if code is None:
            return None
        log = (facts / _LOG).read_bytes()[-_LOG_BYTES:]
        runs = facts / _RUNS
        return Outcome(
            code,
            (facts / _RESULT).read_bytes(),
            log,
            dict(_outputs(work, spec.outputs)),
            runs.read_bytes() if runs.exists() else b"",
            worker.name if isinstance(worker.name, str) else worker.address,
        )


def _run(spec: JobSpec, worker: Worker, work: Path, facts: Path) -> int | None:
    """The exit code; None if nobody wants it any more."""
    environment = {
        **process.child_environment(),
        "UTVM_EVENTS": str(facts / _EVENTS),
        "UTVM_RUNS": str(facts / _RUNS),
        "UTVM_BENCH": os.environ.get("UTVM_BENCH") or str(Path("bench.toml").absolute()),
    }
    if not Path(environment["UTVM_BENCH"]).is_file():
        environment["UTVM_BENCH"] = ""
    argv = [sys.executable, "-m", "utvm_deploy", *spec.arguments]
    with (facts / _RESULT).open("wb") as output, (facts / _LOG).open("w+b") as log:
        followed = {"log": facts / _LOG, "events": facts / _EVENTS}
        if spec.followed:
            followed["lines"] = work / spec.followed
        tails = {kind: _Tail(path) for kind, path in followed.items()}
        _tell(worker, spec, {"started": time.time(), "worker": str(worker.name)})
        with process.start(argv, cwd=work, env=environment, output=output, log=log) as child:
            while child.is_alive():
                if _is_unwanted(worker, spec.task):
                    return None
                time.sleep(_LOOK_S)
                _forward(worker, spec, tails)
            code = child.returncode
        _forward(worker, spec, tails)
    return code


def _is_unwanted(worker: Worker, task: str) -> bool:
    """Whether the job was canceled, or the client that wanted it is gone."""
    state = worker.state.tasks.get(task)
    return state is None or state.state == "cancelled"


class _Tail:
    """Whole lines that were added to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> str:
        """The new lines, as far as one event carries them."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read(_EVENT_BYTES)
        except OSError:
            return ""
        whole = new[: new.rfind(b"\n") + 1] or (new if len(new) == _EVENT_BYTES else b"")
        self._at += len(whole)
        return whole.decode("utf-8", "replace")


def _forward(worker: Worker, spec: JobSpec, tails: Mapping[str, _Tail]) -> None:
    while True:
        news: dict[str, Any] = {kind: text for kind, tail in tails.items() if (text := tail.read())}
        if not news:
            return
        if "events" in news:
            news["events"] = [json.loads(line) for line in news["events"].splitlines()]
        _tell(worker, spec, news)


def _tell(worker: Worker, spec: JobSpec, news: Mapping[str, Any]) -> None:
    worker.log_event(TOPIC, {"job": spec.key, "attempt": spec.attempt, **news})


def _outputs(work: Path, names: tuple[str, ...]) -> Mapping[str, bytes]:
    """The files that are there, by name; a failed verb may have made none."""
    found = {}
    for name in names:
        path = work / name
        if path.is_dir():
            found[f"{name}.zip"] = _zipped(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def _zipped(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, Path(folder.name) / path.relative_to(folder))
    return packed.getvalue()
