"""Candidates a second of `utvm tune --cluster` by 1, 2 and 4 workers of this computer.

    python benchmarks/cluster/workers.py MODEL.tflite... --board BOARD [--workers 1 2 4]

Each worker is a process with one board, held to one core with all that it starts. Every row begins
with an empty cache of compiled candidates and an empty records file. The first row is `utvm tune`
without a cluster, on all cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.options import Objective
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.project import build_image
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.dask_settings import load_distributed, starting
from utvm_deploy.service.cluster.measuring.places import cluster_places
from utvm_deploy.service.cluster.offers import Offer, resources
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import Tuning, tune, tune_on

THREADS = 8


@contextmanager
def local_workers(count: int, board: str, folder: Path) -> Iterator[str]:
    """The address of a scheduler with ``count`` workers, each with one board."""
    distributed = load_distributed()
    with (
        starting(folder, has_pages=False),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=THREADS,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            resources=resources([Offer(board, 1, "emulator")], 1),
            local_directory=str(folder),
            preload=["utvm_deploy.service.cluster.dask_settings"],
        ) as cluster,
    ):
        yield cluster.scheduler_address


def hold(core: int) -> None:
    """Hold a worker's threads, and so all that they start, to one core."""
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), {core})


def measured(board: Board, works: Sequence[Work], workers: int, trials: int) -> Tuning:
    """One tuning from nothing; 0 workers: without a cluster."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        os.environ["UTVM_CACHE"] = str(folder / "cache")
        build_image(None, board)
        file = stack.enter_context(RecordsFile(folder / "records.jsonl"))
        if not workers:
            device = stack.enter_context(connect(board, link=fastest_link(board)))
            return tune(works, device, file, trials=trials)
        address = stack.enter_context(local_workers(workers, board.name, folder))
        client = stack.enter_context(open_cluster(address))
        client.wait_for_workers(workers)
        cores = sorted(os.sched_getaffinity(0))
        for number, worker in enumerate(client.nthreads()):
            client.run(hold, cores[number % len(cores)], workers=[worker])
        places = stack.enter_context(
            cluster_places(client, board, works, Objective.TIME, tell=print)
        )
        return tune_on(works, places, file, trials=trials)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    board = load_board(options.board)
    works = workload([simplify(load_model(path)) for path in options.models], board.cpu.kernel_core)
    print(f"{len(works)} kernels on {board.name}, {os.cpu_count()} cores of this computer")
    print("| workers | trials | failed | seconds | a second | lower | load | run |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for workers in [0, *options.workers]:
        found = measured(board, works, workers, options.trials)
        print(
            f"| {workers or 'without a cluster'} | {found.trials} | {found.errors} "
            f"| {found.seconds:.1f} | {found.per_second:.1f} | {found.lower_s:.1f} "
            f"| {found.load_s:.1f} | {found.run_s:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
