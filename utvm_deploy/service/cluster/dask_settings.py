"""Loads Dask distributed with the settings that every process of a cluster has here.

Also a preload of Dask's workers (``dask_setup``), which are processes that Dask itself starts.
"""

from __future__ import annotations

import logging
import signal
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from utvm_deploy.base.errors import ClusterError

logger = logging.getLogger("utvm_deploy.service.cluster.dask")

INSTALL = "pip install 'utvm-deploy[cluster]'"

#: How long a connection may take to open, and how long a silent peer counts as alive.
CONNECT_TIMEOUT_S = 10
SILENCE_TIMEOUT_S = 15
#: A worker whose process was killed is noticed at once; one whose machine vanished, after this.
WORKER_LIFE_S = 60

SETTINGS = {
    "distributed.comm.timeouts.connect": f"{CONNECT_TIMEOUT_S}s",
    "distributed.comm.timeouts.tcp": f"{SILENCE_TIMEOUT_S}s",
    "distributed.scheduler.worker-ttl": f"{WORKER_LIFE_S}s",
    # Jobs inherit a worker's environment: they shall run as they do from a shell.
    "distributed.nanny.pre-spawn-environ": {},
    # A cluster of this process gives up a worker that is not back so long after it died. Its
    # replacement takes longer than Dask's 15 s to start if the machine is loaded.
    "distributed.deploy.lost-worker-timeout": "10 minutes",
    # Jobs are separate processes: a profile of the threads that wait for them is of no use.
    "distributed.worker.profile.enabled": False,
    # Jobs are sent where there is room for them. Dask would move one by counting threads, of which
    # a worker here has many more than room for jobs.
    "distributed.scheduler.work-stealing": False,
    "distributed.admin.event-loop": "asyncio",
    # Jobs carry their models with them.
    "distributed.admin.large-graph-warning-threshold": "1 GiB",
    # The scheduler keeps this many of what jobs told, of which each may have 64 KiB.
    "distributed.admin.low-level-log-length": 200,
    # Each worker has a web server, which nobody here looks at: it has no pages.
    "distributed.worker.http.routes": [],
}

#: The loggers that Dask gives handlers that write to standard error.
_LOGGERS = ("distributed", "distributed.client", "distributed.gc", "tornado", "tornado.application")


class _Forward(logging.Handler):
    """Hands Dask's messages to our logger, which shows them with -vv."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.debug("%s: %s", record.name, record.getMessage())


def load_distributed() -> ModuleType:
    """The package ``distributed``, quiet and with our settings."""
    try:
        import dask
        import distributed
    except ImportError as error:
        raise ClusterError(f"Dask distributed is not installed; install it: {INSTALL}") from error
    dask.config.set(SETTINGS)
    # Dask warns its own code of its deprecations.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"distributed\.")
    for name in _LOGGERS:
        one = logging.getLogger(name)
        one.handlers[:] = [_Forward()]
        one.propagate = False
    module: ModuleType = distributed
    return module


def starting(scratch: Path, *, has_pages: bool) -> AbstractContextManager[Any]:
    """Settings while a scheduler starts: its folder, and whether its web server has pages."""
    import dask

    settings: dict[str, Any] = {"temporary-directory": str(scratch)}
    if not has_pages:
        settings["distributed.scheduler.http.routes"] = []
    block: AbstractContextManager[Any] = dask.config.set(settings)
    return block


def dask_setup(_worker: Any) -> None:
    """Called by Dask in each worker before it starts."""
    load_distributed()
    # A terminal sends Ctrl-C to all processes of a command. The server then ends its worker. Jobs
    # do not inherit a handler, as they would inherit an ignored signal.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
