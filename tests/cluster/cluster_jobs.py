"""Jobs that the tests of a cluster send to its workers, which import this module by its name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from distributed import get_worker

from utvm_deploy.base import process
from utvm_deploy.service.cluster.lease import held


def name_of_worker(_number: int) -> Any:
    return get_worker().name


def hold_the_board(folder: str, board: str, number: int) -> None:
    """Say when the board's job begins and ends, in one file."""
    with held(board, "0670FF01", 60, f"job {number}"):
        note(folder, "begin")
        time.sleep(0.1)
        note(folder, "end")


def wait_to_go(folder: str) -> Any:
    """Say that it runs, start a program, and end when the file ``go`` is there."""
    with process.start(["sleep", "600"]) as child:
        note(folder, f"{get_worker().name} {child.pid}")
        while not Path(folder, "go").exists():
            time.sleep(0.05)
    return get_worker().name


def note(folder: str, text: str) -> None:
    with open(Path(folder, "notes"), "a") as file:
        file.write(f"{text}\n")


def web_server_of_worker(dask_worker: Any) -> str:
    """The address at which a worker's web server listens."""
    return str(dask_worker.http_server.address)


def web_server_of_scheduler(dask_scheduler: Any) -> str:
    """The same of the scheduler."""
    return str(dask_scheduler.http_server.address)
