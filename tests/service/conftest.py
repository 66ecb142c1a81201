"""``server``: a real server for a module. ``app``: the application without Dask, for fast tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from app_server import App, app_running
from fork_server import ForkServer
from server_process import Server, serving

from utvm_deploy.service.server.jobs import uploads
from utvm_deploy.service.server.store.settings import Settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, image_cache: Path) -> Iterator[Server]:
    """`utvm serve` with the emulated boards of this computer."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder / "data", env={"UTVM_CACHE": str(image_cache)}) as started:
        yield started


@pytest.fixture(scope="session")
def reader() -> Iterator[ForkServer]:
    """A process that has everything loaded which reads uploaded files."""
    with ForkServer("uploads") as started:
        started.start()
        yield started


@pytest.fixture
def quick_uploads(reader: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The children that read uploads of this process are forks of ``reader``."""
    monkeypatch.setattr(uploads, "process", reader.stand_in())


@pytest.fixture
def app(tmp_path: Path, quick_uploads: None) -> Iterator[App]:
    """A server whose jobs are calls of ``app.cluster.run``."""
    with app_running(Settings(tmp_path / "data")) as running:
        yield running
