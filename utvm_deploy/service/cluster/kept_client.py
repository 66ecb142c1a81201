"""A client of a cluster that is opened again when the cluster was lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from utvm_deploy.base.errors import ClusterError, UtvmError

#: How long a cluster of this process may be without a worker: a killed one is started again.
_WORKER_RESTART_S = 30.0
#: How long a scheduler may take for an answer.
_ANSWER_S = 20.0


class KeptClient:
    """A context manager that stands for ``distributed.Client``: it has what that has.

    ``renew`` is called now and then. It opens the cluster again with ``opens`` if the connection
    was lost, or if ``is_inside`` and its worker does not come back.
    """

    def __init__(
        self, opens: Callable[[], AbstractContextManager[Any]], *, is_inside: bool
    ) -> None:
        self._opens = opens
        self._is_inside = is_inside
        self._stack = contextlib.ExitStack()
        self._client: Any = None
        self._connection: Any = None
        self._absent_since: float | None = None  # the workers

    def __enter__(self) -> KeptClient:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._client = None
        self._stack.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client_now(), name)

    def _client_now(self) -> Any:
        if self._client is None:
            raise ClusterError(
                "the scheduler does not answer; the server tries again until it comes back"
            )
        return self._client

    def run_on_scheduler(self, function: Any) -> Any:
        """Call a function in the scheduler's process.

        Raises TimeoutError if it does not answer: Dask itself would wait forever.
        """
        client = self._client_now()
        return client.sync(client._run_on_scheduler, function, callback_timeout=_ANSWER_S)

    def run_on_worker(self, worker: str, function: Any, *arguments: Any) -> Any:
        """Call a function in a worker's process, as ``run_on_scheduler`` does it."""
        client = self._client_now()
        answers = client.sync(
            *(client._run, function, *arguments), workers=[worker], callback_timeout=_ANSWER_S
        )
        return answers[worker]

    def renew(self, *, has_workers: bool | None) -> bool:
        """Open the cluster again if it was lost; whether what was started there is lost.

        ``has_workers`` is None if the caller did not ask. Raises ClusterError if the cluster
        cannot be opened now.
        """
        client = self._client
        if client is not None and client.status == "running" and not self._is_empty(has_workers):
            # Dask itself may have connected again, and then has forgotten what was started.
            is_new = client.scheduler_comm is not self._connection
            self._connection = client.scheduler_comm
            return is_new
        self._client = None
        # A cluster that is lost may not close well.
        with contextlib.suppress(OSError, RuntimeError, UtvmError):
            self._stack.close()
        self._open()
        return True

    def _is_empty(self, has_workers: bool | None) -> bool:
        """Whether this process's cluster has been without a worker for too long."""
        if has_workers is not None:
            now = time.monotonic()
            self._absent_since = None if has_workers else self._absent_since or now
        absent_since = self._absent_since
        if not self._is_inside or absent_since is None:
            return False
        return time.monotonic() - absent_since > _WORKER_RESTART_S

    def _open(self) -> None:
        self._absent_since = None
        client = self._stack.enter_context(self._opens())
        self._connection = client.scheduler_comm
        self._client = client
