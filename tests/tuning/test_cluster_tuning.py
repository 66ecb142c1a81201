"""Tuning at the workers of a cluster: the same results as here, and nothing lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tune_cases import small_works, write_model

from utvm_deploy.base.errors import TuneError
from utvm_deploy.base.process import child_environment
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.options import Objective
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.records import Record, read_records
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.dask_settings import load_distributed, starting
from utvm_deploy.service.cluster.measuring.members import PATIENCE, Patience
from utvm_deploy.service.cluster.measuring.places import cluster_places
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.measuring.workload import Work
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import Tuning, tune, tune_on

pytestmark = pytest.mark.tools

PATIENCE_S = 90.0
RESOURCES = {"core": 2.0, "board:host": 1.0, "board:mps2_an500": 1.0}


@contextmanager
def workers(count: int, folder: Path) -> Iterator[Any]:
    """A LocalCluster of ``count`` workers, each with one board of each kind."""
    distributed = load_distributed()
    with (
        starting(folder, has_pages=False),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=8,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=60,
            resources=RESOURCES,
            local_directory=str(folder),
            preload=["utvm_deploy.service.cluster.dask_settings"],
        ) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with workers(2, tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


def worker_pids(client: Any) -> dict[str, int]:
    pids: dict[str, int] = client.run(os.getpid)
    return pids


def descendants(pid: int) -> list[int]:
    """The processes below one, as Linux lists them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, level = [], {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found += sorted(level)
    return found


def wait_for_end(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, f"{pids} still run"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def on_cluster(
    client: Any,
    board: str,
    works: Sequence[Work],
    path: Path,
    watch: Any = lambda tuning: None,
    patience: Patience = PATIENCE,
) -> Tuning:
    said: list[str] = []
    with (
        RecordsFile(path) as file,
        cluster_places(
            client, load_board(board), works, Objective.TIME, tell=said.append, patience=patience
        ) as places,
    ):
        return tune_on(works, places, file, trials=10**6, watch=watch)


def listed(folder: Path, core: str) -> tuple[Work, ...]:
    """Kernels of which all candidates are tried soon."""
    works = small_works(folder, core)
    return tuple(replace(work, free=None, candidates=work.candidates[:6]) for work in works)


def facts(records: Sequence[Record]) -> dict[tuple[str, str], Record]:
    """The records without their time; each candidate has one."""
    found = {(r.kernel.key, r.candidate.label): replace(r, time="") for r in records}
    assert len(found) == len(records), "a candidate was counted twice"
    return found


@pytest.mark.emulator
def test_the_records_are_those_of_one_device(cluster: Any, tmp_path: Path) -> None:
    board = load_board("mps2_an500")
    works = listed(tmp_path, board.cpu.core)
    count = sum(len(work.candidates) for work in works)
    there, here = tmp_path / "there.jsonl", tmp_path / "here.jsonl"
    with open_cluster(cluster.scheduler_address) as client:
        found = on_cluster(client, board.name, works, there)
        used = [pid for worker in worker_pids(client).values() for pid in descendants(worker)]
    with connect(board, link=fastest_link(board)) as device, RecordsFile(here) as file:
        tune(works, device, file, trials=10**6)
    assert found.trials == count and found.run_s > 0
    assert facts(read_records(there)) == facts(read_records(here))
    # Nothing is left of the processes that measured, nor of their emulators.
    wait_for_end(used)


def test_a_killed_worker_loses_and_doubles_nothing(tmp_path: Path) -> None:
    works = listed(tmp_path, "host")
    count = sum(len(work.candidates) for work in works)
    path = tmp_path / "r.jsonl"
    killed: list[int] = []
    with (
        workers(2, tmp_path) as cluster,
        open_cluster(cluster.scheduler_address) as client,
    ):

        def kill_one(tuning: Tuning) -> None:
            if tuning.trials >= 5 and not killed:
                (_, pid), *_ = worker_pids(client).items()
                below = descendants(pid)
                assert below, "the worker measures in no process"
                killed.extend([pid, *below])
                os.kill(pid, signal.SIGKILL)

        found = on_cluster(client, "host", works, path, kill_one)
    assert killed and found.trials == count
    assert len(facts(read_records(path))) == count
    wait_for_end(killed)


def test_whole_models_run_again_when_their_worker_comes_back(tmp_path: Path) -> None:
    """It has another address then, at which Dask would not look."""
    works = listed(tmp_path, "host")
    graph = replace(simplify(load_model(write_model(tmp_path / "m.tflite"))), name="m")
    said: list[str] = []
    with (
        ThreadPoolExecutor(1) as thread,
        workers(1, tmp_path) as cluster,
        open_cluster(cluster.scheduler_address) as client,
        RecordsFile(tmp_path / "r.jsonl") as file,
        cluster_places(
            client, load_board("host"), works, Objective.TIME, tell=said.append
        ) as places,
    ):
        tune_on(works, places, file, trials=1)
        running = thread.submit(places.run_whole, [graph], file)
        deadline = time.monotonic() + PATIENCE_S
        while not any(
            "models" in str(key) for keys in client.processing().values() for key in keys
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (pid,) = worker_pids(client).values()
        os.kill(pid, signal.SIGKILL)
        (found,) = running.result(PATIENCE_S)
    assert found.name == "m" and not found.note
    assert "whole models are run again: the workers were lost" in said


def test_a_killed_measuring_process_is_started_again(cluster: Any, tmp_path: Path) -> None:
    works = listed(tmp_path, "host")
    count = sum(len(work.candidates) for work in works)
    path = tmp_path / "r.jsonl"
    killed: list[int] = []
    with open_cluster(cluster.scheduler_address) as client:

        def kill_one(tuning: Tuning) -> None:
            if tuning.trials >= 5 and not killed:
                for pid in worker_pids(client).values():
                    killed.extend(descendants(pid)[:1])
                os.kill(killed[0], signal.SIGKILL)

        found = on_cluster(client, "host", works, path, kill_one)
    assert killed and found.trials == count
    assert len(facts(read_records(path))) == count


def test_without_workers_it_ends_and_keeps_the_records(tmp_path: Path) -> None:
    works = listed(tmp_path, "host")
    path = tmp_path / "r.jsonl"
    with (
        workers(1, tmp_path) as cluster,
        open_cluster(cluster.scheduler_address) as client,
    ):
        is_killed = False

        def kill_all(tuning: Tuning) -> None:
            nonlocal is_killed
            if tuning.trials >= 5 and not is_killed:
                is_killed = True
                cluster.scale(0)

        with pytest.raises(TuneError, match=r"no worker measured on host for 2 s.*utvm worker"):
            on_cluster(client, "host", works, path, kill_all, Patience(lost_s=2.0))
    assert len(facts(read_records(path))) >= 5


def test_no_worker_has_the_board(cluster: Any, tmp_path: Path) -> None:
    works = listed(tmp_path, "cortex-m3")
    with (
        open_cluster(cluster.scheduler_address) as client,
        pytest.raises(TuneError, match="no worker measured on mps2_an385 within 1 s"),
    ):
        on_cluster(
            client, "mps2_an385", works, tmp_path / "r.jsonl", patience=Patience(first_s=1.0)
        )


def test_a_worker_with_another_compiler_is_left_out(tmp_path: Path) -> None:
    """Its ticks are of other code."""
    other = tmp_path / "cc"
    other.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "cc (other) 99.1" && exit\nexec /usr/bin/cc "$@"\n'
    )
    other.chmod(0o755)
    works = listed(tmp_path, "host")
    said: list[str] = []
    with (
        workers(1, tmp_path) as cluster,
        open_cluster(cluster.scheduler_address) as client,
        with_worker(cluster.scheduler_address, tmp_path, "other"),
    ):
        client.wait_for_workers(2, timeout=PATIENCE_S)
        with (
            RecordsFile(tmp_path / "r.jsonl") as file,
            cluster_places(
                client, load_board("host"), works, Objective.TIME, tell=said.append
            ) as places,
        ):
            found = tune_on(works, places, file, trials=8)
            slots = places.slots
    why = f"its compiler is 'cc (other) 99.1', not {found.setting.compiler!r}"
    assert said == [f"worker other is left out: {why}"]
    assert slots == 1 and found.trials == 8


@contextmanager
def with_worker(address: str, path: Path, name: str) -> Iterator[None]:
    """A worker whose programs are first looked for in a folder."""
    resources = " ".join(f"{key}={count}" for key, count in RESOURCES.items())
    options = ["--name", name, "--no-nanny", "--nthreads", "8", "--no-dashboard"]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
    environment = os.environ | child_environment() | {"PATH": f"{path}:{os.environ['PATH']}"}
    worker = subprocess.Popen(
        [*command, "--resources", resources, "--local-directory", str(path)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)


def command_of(cluster: Any, folder: Path, *more: str) -> list[str]:
    model, records = write_model(folder / "small.tflite"), folder / "r.jsonl"
    where = ["--cluster", cluster.scheduler_address, "--no-store"]
    return ["tune", str(model), "--board", "host", "--records", str(records), *where, *more]


def test_the_command(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command_of(cluster, tmp_path, "--trials", "6", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == 6 and found["unit"] == "nanoseconds"
    (model,) = found["models"]
    assert model["model"] == "small" and model["note"] == ""
    records = list(read_records(tmp_path / "r.jsonl"))
    assert len(facts(records)) == 6


def test_ctrl_c_keeps_what_came_back(cluster: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "utvm_deploy", *command_of(cluster, tmp_path)]
    path = tmp_path / "r.jsonl"
    tuning = subprocess.Popen(
        [*command, "--trials", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_bytes().count(b"\n") >= 5):
        assert tuning.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    with open_cluster(cluster.scheduler_address) as client:
        used = [pid for worker in worker_pids(client).values() for pid in descendants(worker)]
    tuning.send_signal(signal.SIGINT)
    _, said = tuning.communicate(timeout=PATIENCE_S)
    assert tuning.returncode == 130, said
    kept = facts(read_records(path))
    (last,) = said.rstrip().splitlines()[-1:]
    assert last == (
        f"interrupted; {len(kept)} trials are recorded in {path}; the same command continues "
        "from there"
    )
    assert used
    wait_for_end(used)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cluster", "here"], "'here' is not a scheduler's address"),
        (["--cluster", "tls://desk:8786"], "tls://desk:8786 needs certificates"),
        (["--cluster", "tcp://127.0.0.1:8786", "--link", "monitor"], "--link says where a board"),
        (
            ["--cluster", "tcp://127.0.0.1:8786", "--kernels", "cmsis-nn", "--cmsis-nn", "x"],
            "workers of a cluster have no CMSIS-NN of yours",
        ),
        (
            ["--cluster", "tcp://127.0.0.1:8786", "--board", "utvm://127.0.0.1/host"],
            "--board is a board of a server",
        ),
        (["--certificates", "certificates"], "--certificates is of a cluster; give --cluster"),
    ],
)
def test_options_that_make_no_sense(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_model(tmp_path / "small.tflite"))
    records = ["--records", str(tmp_path / "r.jsonl"), "--trials", "3"]
    assert main(["tune", model, "--board", "host", *records, *arguments]) in (1, 2)
    assert complaint in capsys.readouterr().err
