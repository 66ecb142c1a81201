"""What the page of a job shows: its progress, and its result as the verb's kind asks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.records import read_records
from utvm_deploy.results.comparing.page import comparison_values
from utvm_deploy.results.pages.chart import CURVE_HEIGHT, CURVE_WIDTH, steps
from utvm_deploy.results.pages.memory_picture import memory_values, operators_of
from utvm_deploy.results.pages.render import render_stored
from utvm_deploy.results.pages.training_page import training_values
from utvm_deploy.results.profiling.page import profile_values
from utvm_deploy.results.runs.comparable import COMPARED
from utvm_deploy.results.runs.run import Run
from utvm_deploy.service.server.api.kept_runs import find_run, find_runs
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.jobs.endings import EVENTS_FILE, LOG_FILE
from utvm_deploy.service.server.jobs.options import RECORDS, RESULT
from utvm_deploy.service.server.store.facts import QUEUED, Job, JobFile
from utvm_deploy.service.server.store.live import EVENTS, LOG
from utvm_deploy.service.server.web.boards import boards_now, unit_label
from utvm_deploy.tuning.report import tuning_values

#: Files of every job, which are not what it was started for.
_BESIDES = (RESULT, LOG_FILE, EVENTS_FILE)
#: A page reads this much of a file.
_RESULT_BYTES, _LOG_BYTES, _EVENT_BYTES, _RECORDS_BYTES = 8 << 20, 16 << 10, 4 << 20, 16 << 20
#: What reading a result of another version may raise.
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError)
#: Waiting jobs that are counted.
_MOST_WAITING = 200


def live_values(parts: Parts, job: Job) -> dict[str, Any]:
    """What ``job_live.html`` shows of a job that may still run."""
    return {
        "job": job,
        "clock": time.time(),
        "log": log_of(parts, job),
        "curve": _curve(parts, job) if job.verb == "tune" else None,
        "training": _training(parts, job) if job.verb == "train" else "",
        "ahead": _ahead(parts, job) if job.state == QUEUED else None,
    }


def job_values(parts: Parts, job: Job) -> dict[str, Any]:
    """What ``job.html`` shows."""
    run, before = runs_of(parts, job)
    return {
        **live_values(parts, job),
        "files": [file for file in job.files if file.name not in _BESIDES],
        "more_files": [file for file in job.files if file.name in _BESIDES],
        "boards": boards_now(parts),
        "run": run,
        "before": before,
        "changes": _changes(before, run),
        "shown": _shown(parts, job),
    }


def result_of(parts: Parts, job: Job) -> Mapping[str, Any]:
    """What the verb printed; empty if it printed nothing that a page can show."""
    file = job.file(RESULT)
    return {} if file is None else json_of(parts, file)


def json_of(parts: Parts, file: JobFile) -> Mapping[str, Any]:
    """The object that a stored file holds; empty if it is none, or too large for a page."""
    if file.size > _RESULT_BYTES:
        return {}
    try:
        found = json.loads(parts.files.path(file.sha256).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown(parts: Parts, job: Job) -> str:
    """The result as a part of the page; empty if there is none."""
    result = result_of(parts, job) if job.has_ended else {}
    kind = str(result.get("schema", "")).removeprefix("utvm.").partition("/")[0]
    try:
        if job.verb == "train" and job.has_ended:
            return _training(parts, job, result)
        if kind == "profile":
            return render_stored("profile_body.html", **profile_values(result))
        if kind == "tune":
            values = _tuning(parts, job)
            return render_stored("service/result_tune.html", result=result, **values)
        if kind == "compile":
            found = memory_of(result)
            return render_stored("service/result_compile.html", result=result, map=found)
        if kind == "inspect":
            figures = render_stored("service/model_facts.html", result=result)
            return figures + render_stored("service/result_inspect.html", result=result)
        if kind == "bench":
            values = comparison_values(result)
            return render_stored("comparison_body.html", level=3, **values)
        if kind in ("verify", "bundle"):
            return render_stored(f"service/result_{kind}.html", result=result)
    except (UtvmError, *UNREADABLE):
        pass  # of another version: it costs this part, not the page
    return ""


def memory_of(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The map of the arena of a compiled model; None if the result has none."""
    uses, layers = result.get("memory"), result.get("layers")
    if not uses or not layers:
        return None
    return memory_values(uses, int(result["arena_bytes"]), operators_of(layers))


def _tuning(parts: Parts, job: Job) -> dict[str, Any]:
    file = job.file(RECORDS)
    if file is None or file.size > _RECORDS_BYTES:
        return {"settings": []}
    return tuning_values(read_records(parts.files.path(file.sha256)))


def log_of(parts: Parts, job: Job) -> str:
    """The end of what the job wrote to stderr."""
    try:
        with _path(parts, job, LOG_FILE, LOG).open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(size - _LOG_BYTES, 0))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= _LOG_BYTES else text.partition("\n")[2]


def _curve(parts: Parts, job: Job) -> dict[str, Any] | None:
    """The best of all kernels by trials, from the events of a tune job."""
    points, wanted = [], 0
    for event in _events(parts, job, "tuning"):
        if not event.get("before") or not event.get("best"):
            continue
        wanted = int(event["wanted"])
        points.append((int(event["trials"]), event["best"] / event["before"]))
    if not points:
        return None
    whole = [(0, 1.0), *points]
    last = points[-1]
    # The curve ends where the trials are, so that it grows to the right.
    share = CURVE_WIDTH * min(last[0] / wanted, 1.0) if wanted else CURVE_WIDTH
    return {
        "path": steps(whole, share, CURVE_HEIGHT, max(y for _, y in whole)),
        "width": CURVE_WIDTH,
        "height": CURVE_HEIGHT,
        "trials": last[0],
        "wanted": wanted,
        "share": last[1],
    }


def _training(parts: Parts, job: Job, result: Mapping[str, Any] = {}) -> str:
    """The curves of a train job: those of its result, or of the epochs so far."""
    rows = result.get("epochs") or _events(parts, job, "training")
    if not rows:
        return ""
    values = training_values({**result, "epochs": rows})
    return render_stored("training_body.html", level=3, **values)


def _path(parts: Parts, job: Job, kept: str, growing: str) -> Path:
    """A file that grows while a job runs; of a job that has ended, the one that is kept."""
    file = job.file(kept)
    return parts.files.path(file.sha256) if file else parts.jobs / job.key / growing


def _events(parts: Parts, job: Job, kind: str) -> list[dict[str, Any]]:
    """What a job told of this kind."""
    path = _path(parts, job, EVENTS_FILE, EVENTS)
    try:
        if path.stat().st_size > _EVENT_BYTES:
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return [event for event in events if event.pop("event", "") == kind]
    except (OSError, ValueError):
        return []


def _ahead(parts: Parts, job: Job) -> int:
    """How many jobs wait for the same board and came before."""
    waiting = parts.database.oldest_jobs(QUEUED, _MOST_WAITING, board=job.board)
    return sum(one.created < job.created for one in waiting)


def runs_of(parts: Parts, job: Job) -> tuple[Run | None, Run | None]:
    """The run of a job, and the one before it of the same model, board and verb."""
    if not job.run or job.verb not in COMPARED:
        return None, None
    try:
        run = find_run(parts, job.key)
        name = run.models[0].name
        earlier = find_runs(model=name, board=run.board, verb=run.verb, most=50)
    except (UtvmError, IndexError):
        return None, None
    before = (one for one in earlier if one.started < run.started and one.is_good)
    return run, next(before, None)


def _changes(before: Run | None, run: Run | None) -> list[dict[str, Any]]:
    """Ticks, RAM and flash, and their change since the run before."""
    if before is None or run is None:
        return []
    old, new = before.models[0], run.models[0]
    sides = [
        (unit_label(run.board, new.unit), old.ticks if old.unit == new.unit else None, new.ticks),
        ("RAM of the image, bytes", old.ram_bytes, new.ram_bytes),
        ("flash of the image, bytes", old.flash_bytes, new.flash_bytes),
    ]
    return [
        {"what": what, "now": now, "percent": 100 * (now / was - 1) if was else None}
        for what, was, now in sides
        if now is not None
    ]
