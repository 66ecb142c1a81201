"""The process of one worker: joins a scheduler, runs what it sends, and ends when it is lost.

``utvm worker`` starts it, and starts it again (``service/cluster/worker.py``). Each connection to
the scheduler has a new process. The jobs are its children, so the kernel ends them with it, and the
next connection starts clean.

It takes its settings as a JSON object, and says what happens by lines of JSON on standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from utvm_deploy.base.errors import ClusterError, UtvmError
from utvm_deploy.service.cluster.addresses import is_loopback
from utvm_deploy.service.cluster.certificates import security
from utvm_deploy.service.cluster.connection import LOOPBACK, THREADS, check_trusted, unreachable
from utvm_deploy.service.cluster.dask_settings import CONNECT_TIMEOUT_S, load_distributed
from utvm_deploy.service.cluster.facts import KEY, Told, check_software
from utvm_deploy.service.cluster.worker_news import CONNECTED, LOST, NAME_TAKEN, REFUSED, WAITING

#: How long one try to reach the scheduler may take, and the pause before the next.
_TRY_S = 5.0
_RETRY_S = 1.0
#: How often the state of the connection is looked at.
_LOOK_S = 0.2
#: How long saying goodbye may take: who ends this process waits little longer.
_GOODBYE_S = 1.0


def main() -> NoReturn:
    """Run until the scheduler is lost, or until SIGTERM."""
    settings = json.loads(sys.argv[1])
    load_distributed()
    code = 0
    try:
        asyncio.run(_run(settings))
    except BaseException:  # the process that started this one shows the last line
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Jobs run in threads, which would be waited for. Their processes end with this one.
    os._exit(code)


async def _run(settings: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    work = loop.create_task(_joined(settings))
    loop.add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return
    except UtvmError as error:
        _tell(REFUSED, str(error))


async def _joined(settings: dict[str, Any]) -> None:
    """Join the scheduler and work for it until it is lost."""
    from distributed import Status, Worker

    class QuickWorker(Worker):  # type: ignore[misc]
        """Does not wait for its jobs when the scheduler is lost: nobody would get their results."""

        async def close(self, *arguments: Any, **options: Any) -> Any:
            return await super().close(*arguments, **{**options, "executor_wait": False})

    address, folder = settings["address"], settings["certificates"]
    certificates = Path(folder) if folder is not None else None
    keys = security(certificates) if certificates is not None else None
    await _check_scheduler(address, certificates, keys, settings["patience_s"])
    host = address.split("://")[1].rpartition(":")[0]
    worker = QuickWorker(
        address,
        nthreads=THREADS,
        name=settings["name"],
        resources=settings["resources"],
        startup_information={KEY: Told(settings["facts"])},
        memory_limit=0,  # jobs are other processes
        # A scheduler that only this machine reaches needs no more of its workers.
        host=LOOPBACK if is_loopback(host) and keys is None else None,
        # Its web server has no pages, and no encryption.
        dashboard_address=f"{LOOPBACK}:0",
        security=keys,
        local_directory=settings["scratch"],
    )
    try:
        await asyncio.wait_for(worker.start(), settings["patience_s"])
    except (RuntimeError, ValueError) as error:
        if "name taken" not in f"{error} {error.__cause__}":
            raise
        _tell(NAME_TAKEN, "")
        return
    except (OSError, TimeoutError, asyncio.TimeoutError) as error:
        raise ClusterError(unreachable(address, certificates, settings["patience_s"])) from error
    _tell(CONNECTED, "")
    try:
        while worker.status in (Status.running, Status.paused, Status.closing_gracefully):
            await asyncio.sleep(_LOOK_S)
        _tell(LOST, "")
    except asyncio.CancelledError:
        # The scheduler gives its jobs to others without counting this as a failure.
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(worker.close(timeout=_GOODBYE_S), _GOODBYE_S)
        raise


async def _check_scheduler(
    address: str, certificates: Path | None, keys: Any, patience_s: float
) -> None:
    """Wait for the scheduler; ClusterError if its software is another, or it does not come."""
    from distributed.core import connect
    from distributed.security import Security

    deadline = time.monotonic() + patience_s
    options = (keys or Security()).get_connection_args("worker")
    told = False
    while True:
        left = deadline - time.monotonic()
        try:
            comm = await connect(address, timeout=min(_TRY_S, max(left, 1)), **options)
            try:
                await comm.write({"op": "versions", "packages": ["utvm-deploy"], "reply": True})
                theirs = await asyncio.wait_for(comm.read(), CONNECT_TIMEOUT_S)
            finally:
                comm.abort()
        except (OSError, asyncio.TimeoutError) as error:
            check_trusted(error, address, certificates)
            if time.monotonic() >= deadline:
                raise ClusterError(unreachable(address, certificates, patience_s)) from error
            if not told:
                _tell(WAITING, unreachable(address, certificates, _TRY_S))
                told = True
            await asyncio.sleep(_RETRY_S)
            continue
        check_software("scheduler", theirs)
        return


def _tell(what: str, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"worker": what, "text": text}), flush=True)


if __name__ == "__main__":
    main()
