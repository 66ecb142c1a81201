"""Puts the parts of a server together and runs it until it is told to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from utvm_deploy.base.errors import UtvmError

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(frozen=True)
class Settings:
    """What `utvm serve` is started with."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8086
    scheduler: str | None = None  # the address of a Dask scheduler; None: a cluster inside
    certificates: Path | None = None


@contextmanager
def application(settings: Settings) -> Iterator[FastAPI]:
    """The application with all that it uses."""
    from utvm_deploy.cluster.connection import open_cluster
    from utvm_deploy.service.app import make_app
    from utvm_deploy.service.database import Database
    from utvm_deploy.service.dispatcher import Dispatcher
    from utvm_deploy.service.files import Files

    settings.data.mkdir(parents=True, exist_ok=True)
    jobs = settings.data / "jobs"
    with ExitStack() as stack:
        database = stack.enter_context(Database(settings.data / "service.sqlite"))
        files = Files(settings.data / "files")
        client = stack.enter_context(open_cluster(settings.scheduler, settings.certificates))
        dispatcher = stack.enter_context(Dispatcher(database, files, jobs, client))
        yield make_app(database, files, dispatcher, jobs)


def serve(settings: Settings) -> None:
    """Serve until Ctrl-C or SIGTERM. Raises UtvmError where a package is missing."""
    try:
        import uvicorn
    except ImportError as error:
        raise UtvmError(
            "the server needs packages that are not installed; "
            "run pip install 'utvm-deploy[service]'"
        ) from error
    with application(settings) as app:
        uvicorn.run(app, host=settings.host, port=settings.port, log_level="warning")
