"""Opens a cluster: one inside this process, or a scheduler's elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from utvm_deploy.boards.board import board_names

_THREADS = 64


@contextmanager
def open_cluster(address: str | None, certificates: Path | None) -> Iterator[Client]:
    """A client of the scheduler at ``address``; None starts a cluster on this computer."""
    if address is not None:
        with Client(address) as client:
            yield client
        return
    cores = os.cpu_count() or 1
    resources: dict[str, Any] = {"core": cores}
    resources |= {f"board:{name}": cores for name in board_names()}
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=_THREADS,
            dashboard_address=None,
            resources=resources,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
