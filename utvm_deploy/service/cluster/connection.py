"""Opens a cluster: one inside this process, or one that a scheduler elsewhere has."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ClusterError, UtvmError
from utvm_deploy.base.process import interrupts_held
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.service.cluster.addresses import Place, check_address, check_listen
from utvm_deploy.service.cluster.certificates import private_security, security
from utvm_deploy.service.cluster.dask_settings import CONNECT_TIMEOUT_S, load_distributed, starting
from utvm_deploy.service.cluster.facts import KEY, Told, check_software, machine_facts
from utvm_deploy.service.cluster.offers import Offer, offers, resources, usable_cores

logger = logging.getLogger("utvm_deploy.service.cluster.connection")

LOOPBACK = "127.0.0.1"
#: A worker's threads wait for jobs, which are processes. Resources say how many jobs there may be.
THREADS = 64
#: How long the cluster inside may take to start: its worker's process loads Dask.
START_TIMEOUT_S = 60
#: How long the cluster inside may take to end before its worker is killed.
CLOSE_TIMEOUT_S = 10


@contextlib.contextmanager
def open_cluster(
    address: str | None = None,
    certificates: Path | None = None,
    *,
    listen: str | None = None,
    offered: Sequence[Offer] | None = None,
    cores: int | None = None,
    dashboard_port: int | None = None,
) -> Iterator[Any]:
    """A ``distributed.Client`` of a cluster, which ends with the block.

    With ``address``, the cluster is that scheduler's. Without, it is inside this process, with one
    worker that offers this machine's boards (``offered``, if given) and cores. Nobody else can join
    it, unless ``listen`` says where: HOST or HOST:PORT. ``certificates`` is the folder that
    ``make_certificates`` made; beyond this machine it is needed.

    If the scheduler elsewhere is lost, what the block raises for it becomes one ClusterError.
    """
    if address is not None:
        check_address(address, certificates)
        with _client_of(address, certificates) as client:
            yield client
        return
    place = check_listen(listen, certificates) if listen is not None else None
    with (
        TemporaryFolder("cluster") as scratch,
        _inside(certificates, place, offered, cores, dashboard_port, scratch) as client,
    ):
        yield client


@contextlib.contextmanager
def _inside(
    certificates: Path | None,
    place: Place | None,
    offered: Sequence[Offer] | None,
    cores: int | None,
    dashboard_port: int | None,
    scratch: Path,
) -> Iterator[Any]:
    distributed = load_distributed()
    offered = offers() if offered is None else tuple(offered)
    cores = usable_cores() if cores is None else cores
    if dashboard_port is not None:
        _check_free("the dashboard", Place(LOOPBACK, dashboard_port))
    if place is not None:
        _check_free("the scheduler", place)
    if certificates is not None:
        keys = security(certificates)
    else:
        # Other users of this machine reach its ports, too. Who may join is asked for by `listen`.
        keys = private_security() if place is None else distributed.Security()
    with contextlib.ExitStack() as stack:
        try:
            # Dask cannot close a cluster that is half started, so Ctrl-C waits until it is whole.
            # The pages have no password: they are for this machine, and only if asked for.
            with interrupts_held(), starting(scratch, has_pages=dashboard_port is not None):
                cluster = distributed.LocalCluster(
                    n_workers=1,
                    threads_per_worker=THREADS,
                    processes=True,
                    host=place.in_address if place else LOOPBACK,
                    scheduler_port=place.port if place else 0,
                    dashboard_address=f"{LOOPBACK}:{dashboard_port or 0}",
                    scheduler_kwargs={"dashboard": dashboard_port is not None},
                    # Its web server has no pages, and no encryption.
                    worker_dashboard_address=f"{LOOPBACK}:0",
                    security=keys,
                    silence_logs=logging.CRITICAL,
                    resources=resources(offered, cores),
                    startup_information={KEY: Told(machine_facts(offered))},
                    memory_limit=0,  # jobs are other processes
                    local_directory=str(scratch),
                    # What jobs that are killed leave behind is removed with it.
                    env={"TMPDIR": str(scratch)},
                    preload=["utvm_deploy.service.cluster.dask_settings"],
                )
                stack.callback(cluster.close, timeout=CLOSE_TIMEOUT_S)
        except (OSError, RuntimeError) as error:
            raise ClusterError(f"the cluster inside did not start: {error}") from error
        client = distributed.Client(cluster, timeout=START_TIMEOUT_S, set_as_default=False)
        yield stack.enter_context(client)


def _check_free(what: str, place: Place) -> None:
    """Raise ClusterError if nobody can listen there.

    Dask would take another port for its dashboard, and leave a socket open for a scheduler.
    """
    try:
        family, *_, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as trial:
            # As Dask does: connections of an earlier scheduler may still be closing.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen()
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ClusterError(
            f"{what} cannot listen at {place.host} port {place.port}: {reason}; name another host "
            "or port"
        ) from error


@contextlib.contextmanager
def _client_of(address: str, certificates: Path | None) -> Iterator[Any]:
    distributed = load_distributed()
    keys = security(certificates) if certificates is not None else None
    try:
        client = distributed.Client(
            address, security=keys, timeout=CONNECT_TIMEOUT_S, set_as_default=False
        )
    except (OSError, TimeoutError) as error:
        check_trusted(error, address, certificates)
        raise ClusterError(unreachable(address, certificates, CONNECT_TIMEOUT_S)) from error
    with client:
        theirs = client.sync(client.scheduler.versions, packages=["utvm-deploy"])
        check_software("scheduler", theirs)
        try:
            yield client
        except UtvmError:
            raise
        except Exception as error:
            # Dask reports the loss of its scheduler by several exceptions, and as a canceled task.
            if is_lost(client):
                raise ClusterError(
                    f"the scheduler at {address} does not answer any more; start it again, and "
                    "repeat this"
                ) from error
            raise


def is_lost(client: Any) -> bool:
    """Whether the client has no connection to its scheduler; then its tasks are canceled.

    It tries to reconnect for a while (``CONNECT_TIMEOUT_S``). After that, a new one is needed.
    """
    return bool(client.status != "running")


def check_trusted(error: BaseException, address: str, certificates: Path | None) -> None:
    """Raise ClusterError if the certificates are why the scheduler could not be reached."""
    from distributed.comm.core import FatalCommClosedError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError | FatalCommClosedError):
            raise ClusterError(
                f"the scheduler at {address} has other certificates than {certificates}; copy the "
                "folder that it uses"
            ) from error
        cause = cause.__cause__ or cause.__context__


def unreachable(address: str, certificates: Path | None, waited_s: float) -> str:
    """The sentence about a scheduler that does not answer, or refuses."""
    advice = "check that it runs there"
    if certificates is not None:
        advice += f" and has the certificates of {certificates}"
    return f"no scheduler answers at {address} within {waited_s:g} s; {advice}"
