"""Candidates a second of a tuning at many workers that answer like a board on a serial line.

    python benchmarks/cluster/simulated.py [--workers 1 10 50 100] [--seconds 30]

The search, the messages, Dask and the records file are real. The workers sleep instead of measuring
(serial_double.py), and no candidate is built. All of them are in one process, the scheduler is in
another one, and the search is in this one. For both of these the table has the share of a core that
they took, and at how many candidates a second that share would be a whole core.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import serial_double

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import Objective
from utvm_deploy.graph.model import Graph
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.dask_settings import load_distributed
from utvm_deploy.service.cluster.measuring import places as measuring
from utvm_deploy.service.cluster.offers import DESK, Offer, resources
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import tune_on

BOARD = "nucleo_f746zg"
THREADS = 4
START_S = 120.0
#: What a tuning of many kernels without much data consists of.
SMALL_BYTES = 4096
CANDIDATES = 5000
TICKS_OF_CLOCK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Simulated:
    """What a tuning at simulated workers took."""

    workers: int
    candidates: int
    seconds: float
    client_s: float  # processor time of this process
    scheduler_s: float

    @property
    def per_second(self) -> float:
        return self.candidates / self.seconds

    @property
    def possible(self) -> float:
        """Candidates a second that the boards could measure."""
        return self.workers / (serial_double.LOAD_S + serial_double.RUN_S)


def _scheduler(connection: Connection) -> None:
    distributed = load_distributed()

    async def serve() -> None:
        async with distributed.Scheduler(
            host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0"
        ) as scheduler:
            connection.send(scheduler.address)
            await scheduler.finished()

    asyncio.run(serve())


def _workers(address: str, count: int, folder: str, connection: Connection) -> None:
    distributed = load_distributed()
    offered = resources([Offer(BOARD, 1, DESK)], 1)

    async def serve() -> None:
        workers = [
            distributed.Worker(
                address,
                nthreads=THREADS,
                resources=offered,
                host="127.0.0.1",
                dashboard=False,
                local_directory=folder,
                memory_limit=0,
                name=f"simulated {number}",
            )
            for number in range(count)
        ]
        await asyncio.gather(*workers)
        connection.send(count)
        await asyncio.gather(*(worker.finished() for worker in workers))

    asyncio.run(serve())


@contextmanager
def simulated_cluster(count: int, folder: Path) -> Iterator[tuple[str, int]]:
    """The address of a scheduler with simulated workers, and its process id."""
    context = multiprocessing.get_context("spawn")
    started: list[Any] = []

    def start(target: Any, *arguments: object) -> Any:
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
        process.start()
        started.append(process)
        if not ours.poll(START_S):
            raise SystemExit(f"{target.__name__} did not start within {START_S:.0f} s")
        return ours.recv()

    try:
        address = start(_scheduler)
        start(_workers, address, count, str(folder))
        yield address, started[0].pid
    finally:
        for process in reversed(started):
            process.kill()
            process.join()


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_OF_CLOCK


def simulate(
    works: Sequence[Work], workers: int, seconds: float | None, trials: int, records: Path
) -> Simulated:
    """A tuning that ends after ``seconds`` or ``trials``."""
    with (
        tempfile.TemporaryDirectory() as folder,
        simulated_cluster(workers, Path(folder)) as (address, scheduler),
        open_cluster(address) as client,
        RecordsFile(records) as file,
        measuring.cluster_places(
            client, load_board(BOARD), works, Objective.TIME, tell=print
        ) as places,
    ):
        before = processor_s(os.getpid()), processor_s(scheduler)
        found = tune_on(
            works, places, file, trials=trials, minutes=None if seconds is None else seconds / 60
        )
        mine, theirs = processor_s(os.getpid()), processor_s(scheduler)
    return Simulated(workers, found.trials, found.seconds, mine - before[0], theirs - before[1])


def small_kernels(works: Sequence[Work]) -> tuple[Work, ...]:
    """Copies of those with few weights, by other names, with about 5,000 candidates.

    The weights go to each worker once. Here all workers are in one process, which would do nothing
    else for a while. What has no template is searched by TVM, and is left out.
    """
    small = [work for work in works if weight_bytes(work.graph) <= SMALL_BYTES]
    copies = CANDIDATES // sum(len(work.candidates) for work in small) + 1
    return tuple(
        replace(work, free=None, kernel=replace(work.kernel, name=f"{work.kernel.name}_{copy}"))
        for copy in range(copies)
        for work in small
    )


def weight_bytes(graph: Graph) -> int:
    return sum(tensor.size_bytes for tensor in graph.tensors if tensor.data is not None)


def use_doubles() -> None:
    """Send the doubles' tasks instead of those that measure."""
    measuring.open_session = serial_double.open_session
    measuring.measure_batch = serial_double.measure_batch


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tune"))
    from zoo import zoo

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 10, 50, 100])
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    use_doubles()
    works = small_kernels(workload(list(zoo()), load_board(BOARD).cpu.kernel_core))
    count = sum(len(work.candidates) for work in works)
    print(f"{len(works)} kernels with {count} candidates, {os.cpu_count()} cores of this computer")
    print(
        "| workers | candidates | seconds | a second | possible | client | scheduler | client "
        "saturates at | scheduler at |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for workers in options.workers:
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records.jsonl"
            found = simulate(works, workers, options.seconds, count, records)
        print(
            f"| {workers} | {found.candidates} | {found.seconds:.1f} | {found.per_second:.1f} "
            f"| {found.possible:.1f} | {found.client_s / found.seconds:.0%} "
            f"| {found.scheduler_s / found.seconds:.0%} "
            f"| {found.candidates / found.client_s:,.0f} "
            f"| {found.candidates / max(found.scheduler_s, 0.01):,.0f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
