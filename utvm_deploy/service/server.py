"""Puts the parts of a server together and runs it until it is told to end."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.service.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from utvm_deploy.service.parts import Parts

#: How long answers that are on their way may take after Ctrl-C.
_GRACE_S = 2
_BACKLOG = 128


@contextmanager
def open_parts(settings: Settings) -> Iterator[Parts]:
    """The database, the files, the cluster and the dispatcher."""
    from utvm_deploy.cluster.connection import open_cluster
    from utvm_deploy.service.database import Database
    from utvm_deploy.service.dispatcher import Dispatcher
    from utvm_deploy.service.files import Files
    from utvm_deploy.service.parts import Parts

    settings.data.mkdir(parents=True, exist_ok=True)
    jobs = settings.data / "jobs"
    with ExitStack() as stack:
        database = stack.enter_context(Database(settings.data / "service.sqlite"))
        files = Files(settings.data / "files")
        cluster = stack.enter_context(open_cluster(settings.scheduler, settings.certificates))
        dispatcher = stack.enter_context(Dispatcher(database, files, jobs, cluster))
        yield Parts(settings, database, files, dispatcher, jobs, cluster)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens. Raises UtvmError if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            # After a restart, connections of the earlier server may still be closing.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            yield listener
    except OSError as error:
        raise UtvmError(
            f"cannot listen at {host} port {port}: {error.strerror or error}; give another --port "
            "or --host"
        ) from error


def url_of(listener: socket.socket, settings: Settings) -> str:
    """Where a browser finds the server."""
    port = listener.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}/"


def http_server(app: FastAPI) -> uvicorn.Server:
    """Serves the application on a socket: ``run(sockets=[...])``."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )


def serve(settings: Settings, told: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. ``told`` gets the address when the server answers.

    Raises UtvmError where a package is missing or the port is taken.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UtvmError(
            "the server needs packages that are not installed; "
            "run pip install 'utvm-deploy[service]'"
        ) from error
    from utvm_deploy.service.app import make_app

    with listening(settings.host, settings.port) as listener, open_parts(settings) as parts:
        server = http_server(make_app(parts))
        told(url_of(listener, settings))
        server.run(sockets=[listener])
