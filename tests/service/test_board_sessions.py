"""Sessions on the boards of a real server: the same figures, and what ends a session."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
from server_process import PATIENCE_S, ROOT, Server

import utvm_deploy
from utvm_deploy.base.errors import DeviceReset, LinkError, ServerError, UtvmError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.project import build_image
from utvm_deploy.records import read_records
from utvm_deploy.service.client.session_exchange import Exchange
from utvm_deploy.service.client.session_server import HttpServer
from utvm_deploy.service.client.settings import ServerSettings

pytestmark = [pytest.mark.tools, pytest.mark.emulator]

BOARD = "mps2_an500"
CODE = "void inc(int *x) { ++*x; }"
DIGITS = data_dir("models") / "digits.tflite"


@pytest.fixture
def address(server: Server) -> str:
    return f"utvm://{server.url.removeprefix('http://')}/{BOARD}"


def held_by(server: Server) -> list[str]:
    answer = server.http.get(f"/api/v1/boards/{BOARD}/session")
    found: list[str] = answer.json()["held_by"]
    return found


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def emulators(server: Server) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=True):
        try:
            if process.name().startswith("qemu-system"):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_model_in_flash_has_the_bytes_and_cycles_of_a_board_here(address: str) -> None:
    compiled = utvm_deploy.compile(DIGITS, BOARD)
    (entry,) = compiled.inputs
    values = np.arange(np.prod(entry.shape)).reshape(entry.shape).astype(entry.dtype)

    def measure(device: Device) -> tuple[object, ...]:
        with device:
            model = device.load(compiled)
            checked, timed = model.run_checked([values]), model.run_timed([values])
            figures = device.figures(timed)
            report = device.cycle_report()
            assert report is not None
            return checked, timed, figures, model.compiled.name, report["core_name"]

    assert measure(utvm_deploy.connect(address)) == measure(utvm_deploy.connect(BOARD))


def test_verbs_take_a_board_of_a_server(
    address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["verify", str(DIGITS), "--board", address, "--json", "--samples", "2"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert main(["verify", str(DIGITS), "--board", BOARD, "--json", "--samples", "2"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert there["board"] == here["board"] == BOARD
    assert there.keys() == here.keys()
    assert main(["profile", str(DIGITS), "--board", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["board"] == BOARD
    records = tmp_path / "records.jsonl"
    options = ["--trials", "3", "--records", str(records)]
    assert main(["tune", str(DIGITS), "--board", address, *options]) == 0
    assert [record.board for record in read_records(records)] == [BOARD] * 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--port", "/dev/ttyACM0"], "the server knows where its mps2_an500 is connected"),
        (["run", "--dry-run"], "--dry-run shows commands of this computer"),
    ],
)
def test_what_a_board_elsewhere_cannot_have(
    address: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    verb, *options = arguments
    assert main([verb, str(DIGITS), "--board", address, *options]) != 0
    assert says in capsys.readouterr().err


def test_programs_for_the_server_itself_are_refused(server: Server, address: str) -> None:
    with (
        utvm_deploy.connect(address.replace(BOARD, "host")) as device,
        pytest.raises(ServerError, match=r"a program that would run on the server.*--allow-code"),
    ):
        device.check_ready()
    # Nor does the WebSocket let anybody in who does not ask first.
    with pytest.raises(ServerError, match="a program that would run on the server"):
        HttpServer(ServerSettings(server.url)).open(load_board("host"))


def test_a_board_that_nobody_offers_is_refused(address: str) -> None:
    with (
        utvm_deploy.connect(address.replace(BOARD, "nucleo_f746zg")) as device,
        pytest.raises(ServerError, match="no worker of this server offers a board 'nucleo_f746zg'"),
    ):
        device.read(0, 4)


def test_who_waits_too_long_is_told_who_has_the_board(server: Server, address: str) -> None:
    with ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0))):
            assert stack.enter_context(utvm_deploy.connect(address)).hello
        assert emulators(server)
        waiting = HttpServer(ServerSettings(server.url), wait_s=1.5)
        with pytest.raises(ServerError, match=r"not free within 1\.5 s: a session of .*@.* for"):
            waiting.open(load_board(BOARD))
    until(lambda: not held_by(server), "the boards stay with clients that left")
    until(lambda: not emulators(server), "emulators of ended sessions are left")
    waiting.open(load_board(BOARD)).close()


def damaged(elf: bytes) -> Iterator[bytes]:
    """Images that nobody built."""
    rng = random.Random(20261122)
    yield b"\x7fELF"
    yield elf[: len(elf) // 2]
    # The tables that the header leads to are nowhere.
    yield elf[:28] + b"\xff" * 24 + elf[52:]
    for _ in range(7):
        changed = bytearray(elf)
        for at in rng.choices(range(16, 52), k=2) + rng.choices(range(len(elf)), k=20):
            changed[at] = rng.randrange(256)
        yield bytes(changed)


def test_damaged_images_end_in_an_error_or_run(server: Server) -> None:
    board = load_board(BOARD)
    elf = build_image(None, board).elf.read_bytes()
    place = HttpServer(ServerSettings(server.url))
    for image in damaged(elf):
        exchange = Exchange("the board", str)
        exchange.open(place.open(board))
        with contextlib.closing(exchange), contextlib.suppress(UtvmError):
            facts = {"digest": facts_digest(board), "template": board.template, "link": "monitor"}
            exchange.ask(
                *("open", 30.0), version=1, cycle_model=False, image_bytes=len(image), **facts
            )
            exchange.ask("image", 30.0, image)
            exchange.ask("start", 60.0)
            # It is not asked for a greeting, which would take its deadline of 10 seconds.
    until(lambda: not emulators(server), "emulators of damaged images are left")
    assert server.process.poll() is None


CLIENT = """
import sys, utvm_deploy
with utvm_deploy.connect(sys.argv[1]) as device:
    device.hello
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def client(address: str) -> Iterator[subprocess.Popen[str]]:
    """A program that holds the board."""
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, address],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_killed_client_gives_its_board_back(
    server: Server, client: subprocess.Popen[str]
) -> None:
    assert held_by(server)
    client.kill()
    until(lambda: not held_by(server), "the board stays with a dead client")
    until(lambda: not emulators(server), "the emulator of a dead client is left")


def test_a_killed_process_of_the_board_is_told_and_the_next_use_works(
    server: Server, address: str
) -> None:
    with utvm_deploy.connect(address) as device:
        x = device.tensor(np.ones(1, np.int32), name="x")
        (emulator,) = emulators(server)
        emulator.parent().kill()
        with pytest.raises(LinkError, match="the process that owns the board ended"):
            device.read(x.address, 4)
        with pytest.raises(DeviceReset, match=r"tensor x .* is lost"):
            x.numpy()
        assert is_usable(device)
        # Only the emulator dies. As on this computer, the session continues with another emulator.
        (emulator,) = emulators(server)
        emulator.kill()
        with pytest.raises(LinkError):
            device.read(device.hello.workspace_address, 4)
        assert is_usable(device)


def test_a_killed_worker_is_told_and_the_next_use_works(server: Server, address: str) -> None:
    with utvm_deploy.connect(address) as device:
        x = device.tensor(np.ones(1, np.int32))
        (emulator,) = emulators(server)
        worker = emulator.parent().parent()
        assert worker.pid != server.process.pid
        worker.send_signal(signal.SIGKILL)
        with pytest.raises(LinkError, match="worker that had the board was lost"):
            device.read(x.address, 4)
        until(lambda: is_usable(device), "the board does not come back")
    until(lambda: not emulators(server), "an emulator of the dead worker is left")


def is_usable(device: Device) -> bool:
    try:
        return bool(device.tensor(np.ones(1, np.int32)).numpy()[0])
    except UtvmError:  # Dask starts the worker again
        return False


def test_a_killed_server_is_told(server: Server, address: str) -> None:
    # The last test of the module, because it ends the server.
    with utvm_deploy.connect(address) as device:
        x = device.tensor(np.ones(1, np.int32))
        children = psutil.Process(server.process.pid).children(recursive=True)
        server.process.kill()
        with pytest.raises(LinkError, match="was lost"):
            device.read(x.address, 4)
        with pytest.raises(ServerError, match="no server answers at"):
            device.tensor(np.ones(1, np.int32))
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive, "processes of a killed server are left"
