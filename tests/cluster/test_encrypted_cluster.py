"""A cluster beyond this machine: who has its certificates gets in, and nobody else."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import (
    name_of_worker,
    wait_to_go,
    web_server_of_scheduler,
    web_server_of_worker,
)
from processes import PATIENCE_S, is_running, running, wait_for_text, wait_until, worker

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster.certificates import make_certificates
from utvm_deploy.service.cluster.connection import open_cluster
from utvm_deploy.service.cluster.facts import worker_facts
from utvm_deploy.service.cluster.offers import Offer

pytestmark = pytest.mark.tools

OFFERED = (Offer("host", 2, "host"),)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "keys"
    make_certificates(folder, ["127.0.0.1"])
    return folder


@pytest.fixture(scope="module")
def other_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("others") / "keys"
    make_certificates(folder, ["127.0.0.1"])
    return folder


@pytest.fixture(scope="module")
def address(keys: Path) -> Iterator[str]:
    with open_cluster(certificates=keys, listen="127.0.0.1:0", offered=OFFERED, cores=2) as inside:
        yield inside.scheduler.address


def test_who_has_the_certificates_gets_in(address: str, keys: Path, tmp_path: Path) -> None:
    assert address.startswith("tls://")
    with (
        worker(tmp_path, address, "near", "--certificates", str(keys)),
        open_cluster(address, keys) as client,
    ):
        wait_for_text(tmp_path / "near.txt", "connected to")
        future = client.submit(name_of_worker, 0, workers=["near"], pure=False)
        assert future.result(PATIENCE_S) == "near"


def test_only_what_is_encrypted_listens_beyond_this_machine(keys: Path, tmp_path: Path) -> None:
    with (
        open_cluster(certificates=keys, listen="0.0.0.0:0", offered=OFFERED, cores=1) as client,
        worker(
            tmp_path,
            f"tls://127.0.0.1:{client.scheduler.address.rsplit(':')[-1]}",
            *("beyond", "--certificates", str(keys)),
        ),
    ):
        wait_for_text(tmp_path / "beyond.txt", "connected to")
        listening = client.run(web_server_of_worker)
        assert len(listening) == 2 and set(listening.values()) == {"127.0.0.1"}
        assert client.run_on_scheduler(web_server_of_scheduler) == "127.0.0.1"


def test_without_certificates_nobody_gets_in(address: str) -> None:
    from distributed import Client

    with pytest.raises(ClusterError, match="needs certificates"), open_cluster(address):
        pass
    # Not by our tools, either: Dask's own client, and one that speaks TLS.
    with pytest.raises(OSError):
        Client(address.replace("tls:", "tcp:"), timeout=1)
    assert not answers(address, None)


def test_with_others_certificates_nobody_gets_in(
    address: str, keys: Path, other_keys: Path, tmp_path: Path
) -> None:
    sentence = f"the scheduler at {address} has other certificates than {other_keys}"
    with pytest.raises(ClusterError, match=sentence), open_cluster(address, other_keys):
        pass
    with worker(tmp_path, address, "alien", "--certificates", str(other_keys)) as alien:
        assert alien.wait(PATIENCE_S) == 1
    assert f"error: {sentence}; copy the folder" in (tmp_path / "alien.txt").read_text()
    # Somebody who does not look at the scheduler's certificate is refused by the scheduler.
    assert not answers(address, other_keys)
    assert answers(address, keys)


def answers(address: str, folder: Path | None) -> bool:
    """Whether a Dask peer with these certificates, which trusts everybody, is spoken to."""
    host, port = address.removeprefix("tls://").rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if folder is not None:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain) as wrapped:
                return bool(wrapped.recv(1))  # the scheduler speaks first
        except (ssl.SSLError, ConnectionError):
            return False


def test_certificates_without_encryption_are_refused(keys: Path) -> None:
    with (
        pytest.raises(ClusterError, match="certificates have no use there"),
        open_cluster("tcp://127.0.0.1:8786", keys),
    ):
        pass


def test_wrong_certificates_are_told_before_anything_starts(keys: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(keys, tmp_path / "keys"))
    (folder / "authority.pem").unlink()
    with worker(tmp_path, "tls://127.0.0.1:1", "half", "--certificates", str(folder)) as half:
        assert half.wait(PATIENCE_S) == 1
    assert "has no authority.pem" in (tmp_path / "half.txt").read_text()


@contextmanager
def other_machine() -> Iterator[tuple[str, str, str]]:
    """A network namespace with an own address: its name, and both sides' addresses."""
    name = f"utvm-{os.getpid()}"
    outside, inside = f"uo{os.getpid()}"[:15], f"ui{os.getpid()}"[:15]
    network = f"198.18.{os.getpid() // 64 % 256}.{os.getpid() % 64 * 4}"  # for tests (RFC 2544)
    here, there = (str(ipaddress.ip_address(network) + number) for number in (1, 2))

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no network namespace may be made here: {done.stderr.strip()}")

    if shutil.which("ip") is None:
        pytest.skip("no network namespace can be made without the program ip (iproute2)")
    with ExitStack() as stack:
        ip("netns", "add", name)
        stack.callback(subprocess.run, ["ip", "netns", "del", name], check=True)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        stack.callback(subprocess.run, ["ip", "link", "del", outside], check=True)
        ip("address", "add", f"{here}/30", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", name, "address", "add", f"{there}/30", "dev", inside)
        ip("-n", name, "link", "set", inside, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name, here, there


def test_a_worker_at_another_address(tmp_path: Path) -> None:
    with ExitStack() as stack:
        name, here, there = stack.enter_context(other_machine())
        keys = tmp_path / "keys"
        make_certificates(keys, [here])
        client: Any = stack.enter_context(
            open_cluster(certificates=keys, listen=f"{here}:0", offered=OFFERED, cores=2)
        )
        address = client.scheduler.address
        assert address.startswith(f"tls://{here}:")
        desk = tmp_path / "desk.toml"
        desk.write_text('[boards.nucleo_f746zg]\nprobe_serial = "0670FF01"\n')
        log = tmp_path / "far.txt"
        argv = [
            *("ip", "netns", "exec", name, sys.executable, "-m", "utvm_deploy", "worker", address),
            *("--certificates", str(keys), "--name", "far"),
        ]
        stack.enter_context(running(argv, log, UTVM_BENCH=str(desk)))
        wait_for_text(log, "connected to")
        resources = {"core": 1, "board:nucleo_f746zg": 1}
        future = client.submit(name_of_worker, 0, resources=resources, pure=False)
        assert future.result(PATIENCE_S) == "far"
        (far,) = (one for one in worker_facts(client) if one.name == "far")
        assert far.address.startswith(f"tls://{there}:")


@pytest.mark.soak
def test_a_computer_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    with ExitStack() as stack:
        name, here, _ = stack.enter_context(other_machine())
        keys = tmp_path / "keys"
        make_certificates(keys, [here])
        client: Any = stack.enter_context(
            open_cluster(certificates=keys, listen=f"{here}:0", offered=(), cores=1)
        )
        log, notes = tmp_path / "far.txt", tmp_path / "notes"
        argv = [
            *("ip", "netns", "exec", name, sys.executable, "-m", "utvm_deploy", "worker"),
            *(client.scheduler.address, "--certificates", str(keys), "--name", "far"),
        ]
        stack.enter_context(running(argv, log))
        wait_for_text(log, "connected to")
        resources = {"core": 1, "board:host": 1}
        future = client.submit(wait_to_go, str(tmp_path), resources=resources, pure=False)
        wait_for_text(notes, "far")
        # Nobody says goodbye: no packet arrives any more.
        link = ["ip", "-n", name, "link", "set", f"ui{os.getpid()}"]
        subprocess.run([*link, "down"], check=True)
        wait_until(lambda: len(worker_facts(client)) == 1, "the scheduler does not notice")
        job = int(notes.read_text().split()[1])
        wait_until(lambda: not is_running(job), "the worker continues the job")
        subprocess.run([*link, "up"], check=True)
        wait_for_text(log, "connected to", 2)
        wait_for_text(notes, "far", 2)
        (tmp_path / "go").touch()
        assert future.result(PATIENCE_S) == "far"
