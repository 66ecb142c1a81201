"""Rows of the server's database as facts, and queries for many keys at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from utvm_deploy.service.server.store.connections import Row
from utvm_deploy.service.server.store.facts import (
    Job,
    JobFile,
    Model,
    ModelFacts,
    Progress,
    TensorSummary,
)

T = TypeVar("T")

JOB_COLUMNS = (
    "key, verb, board, options, state, created, started, finished, attempt, exit_code, reason, "
    "worker, what, done, total, run, request"
)
MODEL_COLUMNS = "sha256, name, size, uploaded, facts"
#: Values in one query; SQLite's own limit is 999 in older versions.
_MOST_VALUES = 500


def job_of(row: Row, models: Iterable[Model], files: Iterable[JobFile]) -> Job:
    """The job of a row of ``JOB_COLUMNS``."""
    facts = dict(zip(JOB_COLUMNS.split(", "), row, strict=True))
    progress = Progress(facts.pop("what"), facts.pop("done"), facts.pop("total"))
    facts["options"] = json.loads(facts["options"])
    return Job(**facts, models=tuple(models), files=tuple(files), progress=progress)


def model_of(row: Row) -> Model:
    """The model of a row of ``MODEL_COLUMNS``."""
    sha256, name, size, uploaded, facts = row
    return Model(sha256, name, size, uploaded, facts_of(json.loads(facts)))


def facts_of(fields: Mapping[str, Any]) -> ModelFacts | None:
    """The facts of a model of ``asdict(facts)`` as JSON; None if there are none."""
    if not fields:
        return None
    tensors = {
        name: tuple(
            TensorSummary(one["name"], one["dtype"], tuple(one["shape"])) for one in fields[name]
        )
        for name in ("inputs", "outputs")
    }
    return ModelFacts(**{**fields, **tensors})


def grouped(rows: Iterable[Row], make: Callable[[Row], T]) -> dict[str, list[T]]:
    """Things by the first column."""
    found: dict[str, list[T]] = {}
    for key, *rest in rows:
        found.setdefault(key, []).append(make(tuple(rest)))
    return found


def many(connection: sqlite3.Connection, sql: str, values: Collection[str]) -> Iterator[Row]:
    """The rows of a query whose ``{}`` becomes a mark for each value."""
    for part in parts(values):
        yield from connection.execute(sql.format(marks(part)), part)


def parts(values: Collection[str]) -> Iterator[list[str]]:
    """The values in lists that are short enough for one query."""
    found = list(values)
    for start in range(0, len(found), _MOST_VALUES):
        yield found[start : start + _MOST_VALUES]


def marks(values: Sequence[str]) -> str:
    """A mark for each value, for ``IN (...)``."""
    return ", ".join("?" * len(values))
