"""What the page of a model shows: its graph, memory, layers, history and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.compiler.c_text import prefix_from_path
from utvm_deploy.results.pages.chart import SPARK_HEIGHT, SPARK_WIDTH, line
from utvm_deploy.results.pages.render import render_stored
from utvm_deploy.results.runs.run import ModelFigures, Run
from utvm_deploy.service.server.api.kept_runs import find_runs
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.jobs.upload_check import INSPECTION, PICTURE
from utvm_deploy.service.server.store.facts import DONE, Job, Model
from utvm_deploy.service.server.web.boards import unit_label
from utvm_deploy.service.server.web.jobs import UNREADABLE, json_of, memory_of, result_of

_MOST_JOBS, _MOST_RUNS, _MOST_POINTS = 50, 200, 40
#: Changes of this many percent or more are marked.
_MARKED_PERCENT = 1.0


def model_values(parts: Parts, model: Model) -> dict[str, Any]:
    """What ``model.html`` shows."""
    jobs = parts.database.jobs(model=model.sha256, most=_MOST_JOBS)
    made = {file.name: file for file in parts.database.model_files(model.sha256)}
    inspected = json_of(parts, made[INSPECTION]) if INSPECTION in made else {}
    compiled_job = _newest(jobs, "compile")
    compiled = _result(parts, jobs, "compile")
    runs = _runs(model)
    try:
        found_map = memory_of(compiled)
    except UNREADABLE:
        found_map = None
    return {
        "model": model,
        "jobs_here": jobs,
        "facts": render_stored("service/model_facts.html", result=inspected),
        "layers": render_stored("service/result_inspect.html", result=inspected),
        "picture": PICTURE if PICTURE in made else "",
        "compiled_for": compiled_job.board if compiled_job else "",
        "compiled_job": compiled_job,
        "map": found_map,
        "history": _history(runs),
        "runs": [
            (run, one, unit_label(run.board, one.unit) if one.unit else "")
            for run, one in runs[:_MOST_POINTS]
        ],
        "jobs_of_runs": {job.run: job.key for job in jobs if job.run},
        "prefix": prefix_from_path(model.name),
        "spark_width": SPARK_WIDTH,
        "spark_height": SPARK_HEIGHT,
    }


def _newest(jobs: Sequence[Job], verb: str) -> Job | None:
    return next((job for job in jobs if job.verb == verb and job.state == DONE), None)


def _result(parts: Parts, jobs: Sequence[Job], verb: str) -> Mapping[str, Any]:
    job = _newest(jobs, verb)
    return {} if job is None else result_of(parts, job)


def _runs(model: Model) -> list[tuple[Run, ModelFigures]]:
    """Runs of files of this name, the newest first: another version of a model is another file."""
    name = prefix_from_path(model.name)
    try:
        found = find_runs(model=name, board="", verb="", most=_MOST_RUNS)
    except UtvmError:
        return []
    return [(run, one) for run in found for one in run.models if one.name == name]


def _history(runs: Sequence[tuple[Run, ModelFigures]]) -> list[dict[str, Any]]:
    """For each board and unit the curves of ticks, RAM and flash over runs that measured them."""
    groups: dict[tuple[str, str], list[tuple[Run, ModelFigures]]] = {}
    for run, figures in reversed(runs):
        if run.is_good and figures.ticks is not None:
            groups.setdefault((run.board, figures.unit or ""), []).append((run, figures))
    found = []
    for (board, unit), all_of_it in sorted(groups.items()):
        shown = all_of_it[-_MOST_POINTS:]
        columns = [
            _curve(unit_label(board, unit), [one.ticks for _, one in shown]),
            _curve("bytes of RAM of the image", [one.ram_bytes for _, one in shown]),
            _curve("bytes of flash of the image", [one.flash_bytes for _, one in shown]),
        ]
        pair = [run.key for run, _ in shown[-2:]]
        found.append(
            {
                "board": board,
                "count": len(shown),
                "since": shown[0][0].started,
                "columns": columns,
                "pair": pair if len(pair) == 2 else None,
            }
        )
    return found


def _curve(what: str, values: Sequence[int | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"what": what, "now": None, "percent": None, "points": [], "verdict": ""}
    percent = 100 * (known[-1] / known[-2] - 1) if len(known) > 1 and known[-2] else None
    is_marked = percent is not None and abs(percent) >= _MARKED_PERCENT
    verdict = ("bad" if percent and percent > 0 else "good") if is_marked else ""
    points = line(known, SPARK_WIDTH, SPARK_HEIGHT)
    return {
        "what": what,
        "now": known[-1],
        "percent": percent,
        "points": points,
        "verdict": verdict,
    }
