"""/api/v1/runs: what was run before on the server's computer; /api/v1/compare: two of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from utvm_deploy.results.comparing.gate import growths
from utvm_deploy.results.runs.comparable import figures_of_run
from utvm_deploy.results.runs.difference import Difference, differences
from utvm_deploy.results.runs.run import ModelFigures
from utvm_deploy.service.server.api.errors import PROBLEMS
from utvm_deploy.service.server.api.kept_runs import find_run, find_runs
from utvm_deploy.service.server.api.parts import Parts

_Word = Annotated[str, Query(max_length=100)]


class RunAnswer(BaseModel):
    """A run without its result."""

    key: str
    verb: str
    started: float
    seconds: float
    exit_code: int
    board: str
    git: str
    models: list[ModelFigures]
    options: Mapping[str, Any]
    versions: Mapping[str, str]


class WholeRun(RunAnswer):
    """A run with what the verb printed with --json."""

    result: Mapping[str, Any]


class ChangeAnswer(BaseModel):
    """A figure before and now; null where one side lacks it."""

    what: str
    unit: str
    before: int | float | None
    now: int | float | None
    smaller_is_better: bool
    percent: float | None


class DifferenceAnswer(BaseModel):
    """All changes of one model."""

    model: str
    boards: tuple[str, str]
    changes: list[ChangeAnswer]


class Comparison(BaseModel):
    """Two runs side by side."""

    before: str
    now: str
    models: list[DifferenceAnswer]
    #: What grew by more than the limit; null without a limit.
    grown: list[str] | None


def run_routes(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api/v1", tags=["runs"], responses=PROBLEMS)

    @routes.get("/runs")
    def runs(
        model: _Word = "",
        board: _Word = "",
        verb: _Word = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[RunAnswer]:
        """Runs, the newest first. ``model`` is a name, or the first digits of a SHA-256."""
        found = find_runs(model=model, board=board, verb=verb, most=limit)
        return [RunAnswer(**vars(run)) for run in found]

    @routes.get("/runs/{key}")
    def run(key: str) -> WholeRun:
        """One run, by its key or by that of its job."""
        return WholeRun(**vars(find_run(parts, key)))

    @routes.get("/compare")
    def compare(
        before: _Word, now: _Word, fail_over: Annotated[float | None, Query(ge=0, le=1e6)] = None
    ) -> Comparison:
        """Two runs, by their keys or by those of their jobs."""
        sides = [find_run(parts, before), find_run(parts, now)]
        earlier, later = (figures_of_run(side) for side in sides)
        found = [_answer(one) for one in differences(earlier, later)]
        grown = None if fail_over is None else [str(g) for g in growths(earlier, later, fail_over)]
        return Comparison(before=sides[0].key, now=sides[1].key, models=found, grown=grown)

    return routes


def _answer(difference: Difference) -> DifferenceAnswer:
    changes = [
        ChangeAnswer(**vars(change), percent=change.percent) for change in difference.changes
    ]
    return DifferenceAnswer(model=difference.model, boards=difference.boards, changes=changes)
