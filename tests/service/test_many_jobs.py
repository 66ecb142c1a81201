"""Pages and lists cost the same with a few hundred jobs and with thousands."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_server import App, app_running
from stored_jobs import digest, fill, key_of

from utvm_deploy.service.server.store.settings import Settings

FEW, MANY, MODELS = 300, 3_000, 20
#: SQLite counts the steps of its programs by the thousand here.
_STEPS = 1000
PATHS = (
    "/",
    "/?part=live",
    "/jobs",
    "/jobs?state=failed&board=host",
    f"/jobs?before={key_of(FEW // 2)}",
    f"/jobs/{key_of(FEW - 1)}",
    "/models",
    f"/models/{digest(3)}",
    "/boards",
    "/boards/host",
    "/compare",
    "/api/v1/jobs",
    f"/api/v1/jobs?verb=tune&model={digest(3)}",
    "/api/v1/models",
    "/api/v1/boards",
    "/api/v1/counts",
)


class Cost:
    """What the database does for a request."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self._app = app
        self.queries, self.steps = 0, 0
        connections = app.parts.database._connections
        take = connections._take

        def watched() -> sqlite3.Connection:
            connection = take()
            connection.set_trace_callback(self._query)
            connection.set_progress_handler(self._step, _STEPS)
            return connection

        monkeypatch.setattr(connections, "_take", watched)

    def of(self, path: str) -> tuple[int, int]:
        """Queries and thousands of steps."""
        self.queries, self.steps = 0, 0
        answer = self._app.http.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return self.queries, self.steps

    def _query(self, statement: str) -> None:
        self.queries += statement.startswith("SELECT")

    def _step(self) -> int:
        self.steps += 1
        return 0


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, App]]:
    """Servers with few and with many jobs."""
    folder: Path = tmp_path_factory.mktemp("many")
    with (
        app_running(Settings(folder / "few")) as few,
        app_running(Settings(folder / "many")) as many,
    ):
        for app, count in ((few, FEW), (many, MANY)):
            fill(app.parts.database, count, MODELS)
        yield {FEW: few, MANY: many}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_the_cost_of_a_page_does_not_grow(
    apps: dict[int, App], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    costs = {count: Cost(app, monkeypatch).of(path) for count, app in apps.items()}
    few, many = costs[FEW], costs[MANY]
    # The dispatcher of the server looks at its queue now and then, by a few queries.
    assert abs(many[0] - few[0]) <= 6, costs
    assert many[0] <= 60, costs
    # Counting the jobs of each state, or of each model, reads an index: some steps for each job.
    assert many[1] <= few[1] + 20 * MANY / _STEPS, costs
