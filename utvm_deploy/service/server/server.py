"""Puts the parts of a server together and runs it until a signal ends it."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

from utvm_deploy.base.errors import UsageError, UtvmError
from utvm_deploy.service.client.session_messages import MESSAGE_BYTES
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.kept_client import KeptClient
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.jobs.dispatcher import Dispatcher
from utvm_deploy.service.server.security.listener import Listener
from utvm_deploy.service.server.security.tokens import access_of
from utvm_deploy.service.server.store.data_folder import held_folder
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.retention import Retention
from utvm_deploy.service.server.store.settings import Settings, Tls

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

#: How long answers that are on their way may take after Ctrl-C.
_GRACE_S = 2
_BACKLOG = 128
#: Messages of a WebSocket that wait until they are read.
_MOST_MESSAGES = 4


@contextmanager
def open_parts(settings: Settings) -> Iterator[Parts]:
    """The database, the files, the cluster and the dispatcher."""
    jobs = settings.data / "jobs"
    access = access_of(settings.token, settings.host, is_encrypted=settings.tls is not None)
    with ExitStack() as stack:
        stack.enter_context(held_folder(settings.data))
        database = stack.enter_context(Database(settings.data / "service.sqlite"))
        files = Files(settings.data / "files")
        stack.enter_context(Retention(database, files, settings))
        cluster = stack.enter_context(
            KeptClient(
                lambda: open_cluster(
                    settings.scheduler, settings.certificates, listen=settings.listen
                ),
                is_inside=settings.scheduler is None,
            )
        )
        dispatcher = stack.enter_context(Dispatcher(database, files, jobs, cluster))
        yield Parts(settings, database, files, dispatcher, jobs, cluster, access)


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """A socket that listens.

    Raises UtvmError if the address cannot be had, and UsageError if other computers would reach the
    server without a token or TLS.
    """
    try:
        listener = _listen(settings)
    except OSError as error:
        raise UtvmError(
            f"cannot listen at {settings.host} port {settings.port}: {error.strerror or error}; "
            "give another --port or --host"
        ) from error
    with listener:
        yield listener


def _listen(settings: Settings) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    _check_reach(settings, str(address[0]))
    listener = Listener(family, kind, protocol)
    try:
        # After a restart, connections of the earlier server may still be closing.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _check_reach(settings: Settings, address: str) -> None:
    is_loopback = ipaddress.ip_address(address.partition("%")[0]).is_loopback
    if is_loopback or (settings.token is not None and settings.tls is not None):
        return
    raise UsageError(
        f"other computers reach {settings.host}, so the server needs a token and TLS: run `utvm "
        f"serve --make-certificates DIR --host {_name_of(address, settings)}` once, then add "
        "--certificates DIR"
    )


def url_of(listener: socket.socket, settings: Settings) -> str:
    """Where a browser finds the server."""
    address, port = listener.getsockname()[:2]
    host = _name_of(address, settings)
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls else 'http'}://{host}:{port}/"


def _name_of(address: str, settings: Settings) -> str:
    """What others call this computer: at all its addresses it has its own name."""
    is_any = ipaddress.ip_address(address.partition("%")[0]).is_unspecified
    return socket.gethostname() if is_any else settings.host


def http_server(app: ASGIApp, closing: Event, tls: Tls | None = None) -> uvicorn.Server:
    """Serves the application on a socket: ``run(sockets=[...])``. Sets ``closing`` at its end."""
    import uvicorn

    from utvm_deploy.service.server.security.guard import MOST_HEADER_BYTES
    from utvm_deploy.service.server.security.protocol import GuardedProtocol

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """A closed terminal ends the server in the same way as Ctrl-C."""
            with super().capture_signals(), _hangups(self.handle_exit):
                yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            closing.set()
            await super().shutdown(sockets)

    # It warns of each malformed request, and of what it cuts off at the end.
    logging.getLogger("uvicorn.error").addFilter(_is_bug)
    config = uvicorn.Config(
        app,
        http=GuardedProtocol,
        # The others do not ask the listener for connections.
        loop="asyncio",
        log_config=None,
        access_log=False,
        # Nobody else may say where a request comes from.
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        ws_max_size=MESSAGE_BYTES,
        ws_max_queue=_MOST_MESSAGES,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    return Server(config)


@contextmanager
def _hangups(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGHUP goes to ``handler``, unless it is ignored, as `nohup` has it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        yield
        return
    earlier = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, earlier)


def _is_bug(record: logging.LogRecord) -> bool:
    return record.exc_info is not None


def serve(settings: Settings, told: Callable[[str, str | None], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. ``told`` gets the server's address when it answers,
    and the address where workers may join, if there is one.

    Raises UtvmError where a package is missing, the port is taken or another server has the data.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UtvmError(
            "the server needs packages that are not installed; "
            "run pip install 'utvm-deploy[service]'"
        ) from error
    from utvm_deploy.service.server.app import make_app

    with listening(settings) as listener, open_parts(settings) as parts:
        closing = Event()
        server = http_server(make_app(parts, closing), closing, settings.tls)
        workers_join = parts.cluster.scheduler.address if settings.listen else None
        told(url_of(listener, settings), workers_join)
        server.run(sockets=[listener])
