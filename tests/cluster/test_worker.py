"""Workers as processes: who gets a job, and what happens when one of the processes is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import hold_the_board, name_of_worker, wait_to_go
from processes import (
    PATIENCE_S,
    children,
    free_port,
    is_running,
    running,
    scheduler,
    wait_for_text,
    wait_until,
    worker,
)

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster import facts
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.facts import worker_facts
from utvm_deploy.service.cluster.offers import Offer

pytestmark = pytest.mark.tools

BOARD = "nucleo_f746zg"
DESK = f'[boards.{BOARD}]\nprobe_serial = "0670FF01"\n'
OTHER_DESK = '[boards.stm32f746g_disco]\nport = "/dev/ttyACM7"\n'


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    """A scheduler with two workers: `left` has a board, `right` another one."""
    with ExitStack() as stack:
        _, address = stack.enter_context(scheduler(place))
        stack.enter_context(worker(place, address, "left", desk=DESK))
        stack.enter_context(worker(place, address, "right", desk=DESK + OTHER_DESK))
        for name in ("left", "right"):
            wait_for_text(place / f"{name}.txt", "connected to")
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with open_cluster(address) as client:
        yield client


def test_a_job_goes_to_the_worker_that_has_the_board(client: Any) -> None:
    resources = {"core": 1, "board:stm32f746g_disco": 1}
    futures = client.map(name_of_worker, range(8), resources=resources, pure=False)
    assert client.gather(futures) == ["right"] * 8


def test_what_workers_offer_is_known(client: Any, place: Path) -> None:
    left, right = worker_facts(client)
    assert (left.name, right.name) == ("left", "right")
    assert Offer(BOARD, 1, "desk") in left.offers
    assert {one.board for one in right.offers} - {one.board for one in left.offers} == {
        "stm32f746g_disco"
    }
    assert left.versions["cmake"] == right.versions["cmake"]
    assert BOARD in (place / "left.txt").read_text()


def test_one_board_has_one_job_at_a_time(client: Any, tmp_path: Path) -> None:
    # Both desks name the same board, as two workers on one machine do.
    resources = {"core": 1, f"board:{BOARD}": 1}
    futures = [
        client.submit(hold_the_board, str(tmp_path), BOARD, number, resources=resources, pure=False)
        for number in range(6)
    ]
    client.gather(futures)
    assert notes(tmp_path) == ["begin", "end"] * 6


def test_a_second_worker_of_the_same_name_is_refused(address: str, tmp_path: Path) -> None:
    with worker(tmp_path, address, "left") as second:
        assert second.wait(PATIENCE_S) == 1
    said = (tmp_path / "left.txt").read_text()
    assert "error: the scheduler has another worker named left; give another --name" in said


def test_ctrl_c_leaves_nothing(client: Any, address: str, tmp_path: Path) -> None:
    with worker(tmp_path, address, "third", desk='[boards.microbit]\nport = "x"\n') as third:
        wait_for_text(tmp_path / "third.txt", "connected to")
        future = client.submit(wait_to_go, str(tmp_path), workers=["third"], pure=False)
        wait_until(lambda: len(notes(tmp_path)) == 1, "the job does not run")
        pids = [int(notes(tmp_path)[0].split()[1]), *children(third.pid)]
        assert len(pids) == 2 and all(map(is_running, pids))
        third.send_signal(signal.SIGINT)
        assert third.wait(PATIENCE_S) == 130
        wait_until(lambda: not any(map(is_running, pids)), "a process is left")
        assert list((tmp_path / "third-scratch").iterdir()) == []
        assert [one.name for one in worker_facts(client)] == ["left", "right"]
        future.cancel()


def test_the_job_of_a_killed_worker_is_done_elsewhere_once(client: Any, tmp_path: Path) -> None:
    address = client.scheduler.address
    with worker(tmp_path, address, "doomed") as doomed:
        wait_for_text(tmp_path / "doomed.txt", "connected to")
        future = client.submit(
            wait_to_go,
            str(tmp_path),
            workers=["doomed", "left"],
            resources={"core": 1, "board:host": 1},
            pure=False,
        )
        wait_until(lambda: len(notes(tmp_path)) == 1, "the job does not run")
        first, pid = notes(tmp_path)[0].split()
        if first == "doomed":
            doomed.kill()
            doomed.wait()
        else:
            # A worker's process that is killed is started again, so the job may run again by now.
            os.kill(worker_pid(client, "left"), signal.SIGKILL)
        wait_until(lambda: not is_running(int(pid)), "the killed worker's program is left")
        wait_until(lambda: len(notes(tmp_path)) == 2, "nobody does the job again")
        (tmp_path / "go").touch()
        assert future.result(PATIENCE_S) in ("doomed", "left")
        assert len(notes(tmp_path)) == 2


def worker_pid(client: Any, name: str) -> int:
    found = client.run(os.getpid)
    (address,) = (one.address for one in worker_facts(client) if one.name == name)
    pid: int = found[address]
    return pid


def test_a_worker_whose_process_is_killed_comes_back(
    client: Any, address: str, tmp_path: Path
) -> None:
    with worker(tmp_path, address, "phoenix") as phoenix:
        log = tmp_path / "phoenix.txt"
        wait_for_text(log, "connected to")
        (process,) = children(phoenix.pid)
        os.kill(process, signal.SIGKILL)
        wait_for_text(log, "connected to", 2)
        assert (
            "the worker's process ended: SIGKILL ended it; it is started again" in log.read_text()
        )


def test_a_killed_scheduler_is_told_and_workers_wait_for_the_next(tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "faithful.txt"
    with ExitStack() as stack:
        with scheduler(tmp_path, port) as (pid, address):
            stack.enter_context(worker(tmp_path, address, "faithful"))
            wait_for_text(log, "connected to")
            with (
                pytest.raises(
                    ClusterError, match=f"the scheduler at {address} does not answer any more"
                ),
                open_cluster(address) as client,
            ):
                future = client.submit(wait_to_go, str(tmp_path), pure=False)
                wait_until(lambda: len(notes(tmp_path)) == 1, "the job does not run")
                os.kill(pid, signal.SIGKILL)
                future.result(PATIENCE_S)
        wait_for_text(log, "does not answer any more; the worker waits 600 s for it")
        # What it did for the scheduler is ended with it.
        wait_until(lambda: not is_running(int(notes(tmp_path)[0].split()[1])), "a job is left")
        with scheduler(tmp_path, port) as (_, address):
            wait_for_text(log, "connected to", 2)
            with open_cluster(address) as client:
                assert client.submit(name_of_worker, 0).result(PATIENCE_S) == "faithful"


def test_a_scheduler_that_never_comes(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with worker(tmp_path, address, "lonely", "--patience", "1") as lonely:
        assert lonely.wait(PATIENCE_S) == 1
    said = (tmp_path / "lonely.txt").read_text()
    assert f"error: no scheduler answers at {address} within 1 s" in said


def test_another_version_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(facts, "__version__", "9.9.9")
        with (
            pytest.raises(ClusterError, match=r"utvm-deploy .* this machine 9\.9\.9; install the"),
            open_cluster(address),
        ):
            pass
    # The same of a worker: a package of that version is in front of the real one.
    front = tmp_path / "sitecustomize.py"
    front.write_text("import utvm_deploy\nutvm_deploy.__version__ = '9.9.9'\n")
    argv = [sys.executable, "-m", "utvm_deploy", "worker", address, "--name", "old"]
    root = str(Path(facts.__file__).parents[2])
    log = tmp_path / "old.txt"
    with running(argv, log, PYTHONPATH=os.pathsep.join([str(tmp_path), root])) as old:
        assert old.wait(PATIENCE_S) == 1
    assert "and this machine 9.9.9; install the same version on both" in log.read_text()


def test_a_worker_with_a_scheduler_of_its_own(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    argv = [sys.executable, "-m", "utvm_deploy", "worker", "--listen", address]
    log = tmp_path / "own.txt"
    with running(argv, log) as own:
        wait_for_text(log, f"the scheduler is tcp://{address}; Ctrl-C ends it")
        with open_cluster(f"tcp://{address}") as client:
            assert client.submit(pow, 2, 5).result(PATIENCE_S) == 32
        own.send_signal(signal.SIGINT)
        assert own.wait(PATIENCE_S) == 130
    assert "error" not in log.read_text() and "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        ([], "give the ADDRESS of a scheduler, or --listen HOST to start one", 2),
        (["tcp://192.0.2.1:8786"], "start its scheduler with certificates", 1),
        (["tcp://127.0.0.1:8786", "--dashboard", "8787"], "--dashboard belongs to --listen", 2),
        (["--listen", "127.0.0.1", "--name", "b"], "--name belongs to ADDRESS", 2),
        (["--listen", "127.0.0.1", "--patience", "5"], "--patience belongs to ADDRESS", 2),
        (["--listen", "0.0.0.0"], "would run what anybody sends it", 1),
    ],
)
def test_command_lines_that_are_refused(
    arguments: list[str], sentence: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from utvm_deploy.cli.main import main

    assert main(["worker", *arguments]) == code
    assert sentence in capsys.readouterr().err
