"""The cluster inside a process: it runs jobs, nobody else gets in, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE_S, is_running, wait_until

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.base.process import child_environment
from utvm_deploy.service.cluster import dask_settings
from utvm_deploy.service.cluster.addresses import DEFAULT_PORT, Place, check_listen
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.facts import worker_facts
from utvm_deploy.service.cluster.offers import Offer

pytestmark = pytest.mark.tools

OFFERED = (Offer("host", 2, "host"), Offer("nucleo_f746zg", 1, "desk"))


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


PROGRAM = """
import os, subprocess, sys, time

def job(folder):
    from utvm_deploy.base import process
    from utvm_deploy.base.temporary import TemporaryFolder
    with TemporaryFolder("job"), process.start(["sleep", "600"]) as child:
        with open(f"{folder}/job", "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        child.popen.wait()

if __name__ == "__main__":
    from utvm_deploy.service.cluster.connection import open_cluster
    from utvm_deploy.service.cluster.offers import Offer
    try:
        with open_cluster(offered=[Offer("host", 2, "host")], cores=2) as client:
            future = client.submit(job, sys.argv[1], resources={"core": 1})
            while not os.path.exists(f"{sys.argv[1]}/job"):
                time.sleep(0.02)
            print("runs", flush=True)
            future.result()
    except KeyboardInterrupt:
        sys.exit(130)
"""

#: Ctrl-C as soon as the worker's process exists: it then needs a while to load Dask.
INTERRUPTED_START = """
import os, signal, sys, threading, time
import psutil

def interrupt():
    while len(psutil.Process().children()) < 2:  # multiprocessing's tracker, and the worker
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    from utvm_deploy.service.cluster.connection import open_cluster
    from utvm_deploy.service.cluster.offers import Offer
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with open_cluster(offered=[Offer("host", 2, "host")], cores=2):
            print("started", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with open_cluster(offered=OFFERED, cores=2) as client:
        yield client


def test_a_job_runs_where_its_board_is(client: Any) -> None:
    resources = {"core": 1, "board:nucleo_f746zg": 1}
    assert client.submit(os.getpid, resources=resources, pure=False).result(PATIENCE_S)
    assert client.submit(os.getpid, pure=False).result(PATIENCE_S) != os.getpid()
    nowhere = client.submit(os.getpid, resources={"board:absent": 1}, pure=False)
    with pytest.raises(TimeoutError):
        nowhere.result(0.2)
    nowhere.cancel()


def test_what_the_worker_tells(client: Any) -> None:
    (facts,) = worker_facts(client)
    assert facts.offers == OFFERED
    assert facts.versions["utvm"] and facts.versions["cmake"]
    assert abs(facts.last_seen - time.time()) < PATIENCE_S


def test_a_killed_worker_is_replaced(client: Any) -> None:
    pid = client.submit(os.getpid, pure=False).result(PATIENCE_S)
    os.kill(pid, signal.SIGKILL)
    resources = {"core": 1, "board:nucleo_f746zg": 1}
    assert client.submit(os.getpid, resources=resources, pure=False).result(PATIENCE_S) != pid
    (facts,) = worker_facts(client)
    assert facts.offers == OFFERED


def test_a_replacement_has_time_to_start_on_a_loaded_machine(client: Any) -> None:
    import dask

    # Dask would give the worker up for lost.
    given_up_after = dask.config.get("distributed.deploy.lost-worker-timeout")
    assert dask.utils.parse_timedelta(given_up_after) > PATIENCE_S


def test_jobs_have_the_environment_of_this_process(client: Any) -> None:
    theirs = client.submit(lambda: dict(os.environ), pure=False).result(PATIENCE_S)
    assert {"OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"}.isdisjoint(theirs.keys() - os.environ)


def test_nobody_else_gets_in(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.scheduler.address.startswith("tls://127.0.0.1:")
    monkeypatch.setattr("utvm_deploy.service.cluster.connection.CONNECT_TIMEOUT_S", 1)
    plain = client.scheduler.address.replace("tls:", "tcp:")
    with pytest.raises(ClusterError, match="no scheduler answers"), open_cluster(plain):
        pass


def test_a_dashboard_is_served_on_this_machine_and_only_if_asked_for(client: Any) -> None:
    def fetched(served_by: Any) -> int:
        port = served_by.cluster.scheduler.http_server.port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert fetched(client) == 404
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ClusterError, match=f"the dashboard cannot listen at .* port {port}"),
            open_cluster(offered=(), dashboard_port=port),
        ):
            pass
    with open_cluster(offered=(), cores=1, dashboard_port=port) as other:
        assert other.cluster.scheduler.http_server.port == port
        assert other.cluster.scheduler.http_server.address == "127.0.0.1"
        assert fetched(other) == 200


def test_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utvm_deploy.service.cluster.connection.CONNECT_TIMEOUT_S", 1)
    with (
        pytest.raises(ClusterError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1 within"),
        open_cluster("tcp://127.0.0.1:1"),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("tcp://192.0.2.1:8786", "is not encrypted; start its scheduler with certificates"),
        ("tls://192.0.2.1:8786", "needs certificates"),
        ("192.0.2.1:8786", "is not a scheduler's address"),
        ("tcp://127.0.0.1:65536", "is not a scheduler's address"),
        ("inproc://127.0.0.1/1/1", "is not a scheduler's address"),
    ],
)
def test_addresses_that_are_refused(address: str, sentence: str) -> None:
    with pytest.raises(ClusterError, match=sentence), open_cluster(address):
        pass


@pytest.mark.parametrize("listen", ["0.0.0.0", "192.0.2.1:9000", "::", "[::]:8786"])
def test_beyond_this_machine_only_with_certificates(listen: str) -> None:
    with pytest.raises(ClusterError, match="would run what anybody sends it"):
        open_cluster(listen=listen).__enter__()


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "a b", "", ":8786", "127.0.0.1:x"])
def test_places_that_are_none(listen: str) -> None:
    with pytest.raises(ClusterError, match="is not HOST or HOST:PORT"):
        open_cluster(listen=listen).__enter__()


def test_a_place_that_cannot_be_had() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                ClusterError, match=rf"cannot listen at 127\.0\.0\.1 port {port}: Address already"
            ),
            open_cluster(listen=f"127.0.0.1:{port}", offered=()),
        ):
            pass


@pytest.mark.skipif(not has_ipv6(), reason="this computer has no IPv6")
def test_ipv6() -> None:
    with open_cluster(listen="[::1]:0", offered=OFFERED, cores=1) as here:
        address = here.scheduler.address
        assert address.startswith("tcp://[::1]:")
        with open_cluster(address) as there:
            assert there.submit(pow, 2, 3).result(PATIENCE_S) == 8
    assert check_listen("::1", None) == Place("::1", DEFAULT_PORT)


def test_absent_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"pip install 'utvm-deploy\[cluster\]'"):
        dask_settings.load_distributed()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left(ending: signal.Signals, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, **child_environment(), "TMPDIR": str(scratch)}
    with subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        try:
            assert parent.stdout.readline() == "runs\n"
            pids = [int(word) for word in (tmp_path / "job").read_text().split()]
            assert all(map(is_running, pids))
            if ending == signal.SIGINT:
                # As a terminal sends it: to all processes of the command.
                os.killpg(parent.pid, ending)
            else:
                parent.send_signal(ending)
            code = parent.wait(PATIENCE_S)
        finally:
            parent.kill()
        wait_until(lambda: not any(map(is_running, pids)), "a process was left")
        if ending == signal.SIGINT:
            assert (code, parent.stderr.read()) == (130, "")
            assert list(scratch.iterdir()) == []


def test_ctrl_c_during_the_start_prints_no_traceback(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED_START)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **child_environment(), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert list(scratch.iterdir()) == []


def test_a_large_model_is_sent_without_a_warning(client: Any) -> None:
    # pytest makes an error of the warning.
    assert client.submit(len, bytes(11 << 20), pure=False).result(PATIENCE_S) == 11 << 20
