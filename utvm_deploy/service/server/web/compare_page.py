"""What the page that compares two runs shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from utvm_deploy.results.pages.render import moment
from utvm_deploy.results.runs.comparable import COMPARED, figures_of_run
from utvm_deploy.results.runs.difference import differences
from utvm_deploy.results.runs.page import compare_values
from utvm_deploy.results.runs.run import Run
from utvm_deploy.service.server.api.kept_runs import find_run, find_runs
from utvm_deploy.service.server.api.parts import Parts

_WRONG = "verification failed"
#: Runs that may be chosen.
_MOST_RUNS = 100


def comparison_values(parts: Parts, before: str, now: str) -> dict[str, Any]:
    """What ``compare.html`` shows. ``before`` and ``now`` are keys of runs or of jobs.

    Raises UtvmError if the two cannot be compared.
    """
    choices = [
        run
        for verb in COMPARED
        for run in find_runs(model="", board="", verb=verb, most=_MOST_RUNS)
        if run.is_good
    ]
    choices.sort(key=lambda run: run.started, reverse=True)
    chosen = (before, now) if before and now else _proposed(choices, now)
    values: dict[str, Any] = {
        "choices": choices,
        "before": chosen[0],
        "now": chosen[1],
        "sides": None,
        "grown": 0,
    }
    if not before or not now:
        return values
    sides = [find_run(parts, key) for key in (before, now)]
    found = differences(*map(figures_of_run, sides))
    compared = compare_values(found)
    grown = sum(row["verdict"] == "bad" for model in compared["models"] for row in model["rows"])
    values |= {
        "before": sides[0].key,
        "now": sides[1].key,
        "sides": sides,
        "grown": grown,
        "is_modelled": any(map(_is_modelled, sides)),
        "facts": list(_facts(*sides)),
    }
    return {**values, **compared}


def _proposed(choices: Sequence[Run], now: str) -> tuple[str, str]:
    """The keys of two runs of one model on one board, the newest; ``now`` may name the later one.

    Both are the newest run if no model has two.
    """
    for later, run in enumerate(choices):
        if now in ("", run.key):
            for earlier in choices[later + 1 :]:
                if _subject(earlier) == _subject(run):
                    return earlier.key, run.key
    newest = now or (choices[0].key if choices else "")
    return newest, newest


def _subject(run: Run) -> tuple[str, str, list[str]]:
    return run.verb, run.board, [model.name for model in run.models]


def _is_modelled(run: Run) -> bool:
    models = [run.result, *run.result.get("models", ())]
    return any(model.get("is_modelled") for model in models)


def _facts(before: Run, now: Run) -> Iterator[dict[str, Any]]:
    """What the two runs were made with, and whether their outputs are right where that is known."""
    pairs = [
        ("run", before.key, now.key),
        ("when", moment(before.started), moment(now.started)),
        ("board", before.board, now.board),
        ("git", before.git, now.git),
        ("model's file", _file_of(before), _file_of(now)),
    ]
    for what, first, second in pairs:
        if first or second:
            yield {"what": what, "before": first, "now": second, "is_marked": False}
    for what, one, other in (
        ("option", before.options, now.options),
        ("version of", before.versions, now.versions),
    ):
        for name in sorted({*one, *other}):
            if one.get(name) != other.get(name):
                sides = {"before": _text(one.get(name)), "now": _text(other.get(name))}
                yield {"what": f"{what} {name}", **sides, "is_marked": False}
    exact = [_exactness(run) for run in (before, now)]
    if any(exact):
        is_wrong = _WRONG in exact
        sides = {"before": exact[0] or "not verified", "now": exact[1] or "not verified"}
        yield {"what": "output bytes", **sides, "is_marked": is_wrong}


def _file_of(run: Run) -> str:
    return run.models[0].sha256[:16] if run.models else ""


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _exactness(run: Run) -> str:
    """What the newest verification of the same file on the same board said; empty without one."""
    if not run.models:
        return ""
    sha256 = run.models[0].sha256
    found = find_runs(model=sha256, board=run.board, verb="verify", most=1)
    if not found:
        return ""
    return "equal to the reference" if found[0].is_good else _WRONG
