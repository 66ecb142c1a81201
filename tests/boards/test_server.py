"""GDB servers of real boards: started, used, and ended with all their children.

The board is an emulated chip that is treated like one on a desk: its flashing program copies the
image to a file, its server is an emulator that runs it. Where OpenOCD is installed it serves too,
for a core that its dummy adapter makes up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_probe import wait_until_gone

import utvm_deploy
from utvm_deploy.base.errors import BoardError, DeviceError, LinkError, NoDevice, ProbeError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.probe import open_link, start
from utvm_deploy.device.probe import server as server_module
from utvm_deploy.device.probe.server import start_server
from utvm_deploy.project import Image, build_image
from utvm_deploy.targets.arm_m.target import ARM_M

EMULATOR = ["qemu-system-arm", "-machine", "netduinoplus2", "-icount", "shift=6,sleep=off"]
QUIET = ["-nodefaults", "-display", "none", "-monitor", "none", "-serial", "none", "-S"]
EXECUTE_TIMEOUT_S = 20.0

# How OpenOCD serves a core without an adapter: what its dummy driver reads looks like an ARM7TDMI.
DUMMY_ADAPTER = [
    "adapter driver dummy; adapter speed 1000; transport select jtag",
    "jtag newtap t cpu -irlen 4 -ircapture 0xf -irmask 0xf",
    "target create t.cpu arm7tdmi -chain-position t.cpu",
    "t.cpu configure -event gdb-attach { echo attached }",
]


def on_a_desk(folder: Path, server: str, extra: str = "") -> Board:
    """The emulated chip as a real board; ``server`` is the shell script that is its GDB server."""
    text = load_board("netduinoplus2").source
    text = text[: text.index("[emulator]")].replace('"netduinoplus2"', '"desk"')
    text = text.replace('kinds = ["qemu"]', 'kinds = ["mine"]\n' + COMMANDS + extra)
    (folder / "flash.sh").write_text(f'#!/bin/sh\ncp "$1" "{folder}/flashed.elf"\n')
    (folder / "reset.sh").write_text(f"#!/bin/sh\necho reset >> {folder}/resets\n")
    (folder / "serve.sh").write_text(f"#!/bin/sh\n{server}\n")
    for script in folder.glob("*.sh"):
        script.chmod(0o755)
    path = folder / "desk.toml"
    path.write_text(text.replace("FOLDER", str(folder)))
    return load_board(path, trust=True)


COMMANDS = """
[probe.commands.mine]
program = "sh"
image_format = "elf"
select = []
flash = ["FOLDER/flash.sh", "{image}"]
reset = ["FOLDER/reset.sh"]
server_program = "sh"
server = ["FOLDER/serve.sh", "{gdb_port}"]
"""


@pytest.fixture
def desk(tmp_path: Path) -> Board:
    if shutil.which(EMULATOR[0]) is None:
        pytest.skip(f"{EMULATOR[0]} is not installed")
    emulator = " ".join([*EMULATOR, *QUIET])
    return on_a_desk(
        tmp_path,
        # Noisy, as servers are: nobody reads its output while it runs.
        f"head -c 300000 /dev/zero | tr '\\0' x; echo $$ >> {tmp_path}/pids\n"
        f'exec {emulator} -kernel "{tmp_path}/flashed.elf" -gdb tcp:127.0.0.1:$1',
    )


@pytest.fixture
def image(desk: Board) -> Image:
    return build_image(None, desk)


@pytest.mark.tools
def test_batches_run_through_the_server_of_a_real_board(
    desk: Board, image: Image, tmp_path: Path
) -> None:
    with start(desk, image, has_line=False, has_debug_stream=True) as running:
        assert (tmp_path / "flashed.elf").read_bytes() == image.elf.read_bytes()
        with pytest.raises(LinkError, match="desk was started without its serial line"):
            _ = running.stream
        link = open_link(running, "debug", "{:#010x}".format)
        first = link.hello()
        data = bytes(range(256)) * 8
        at = first.workspace_address
        link.write(at, data)
        out = at + len(data)
        link.execute(
            [Task(image.symbols["utvm_crc32_of"], (at, len(data), out))], EXECUTE_TIMEOUT_S
        )
        assert int.from_bytes(link.read(out, 4), "little") == zlib.crc32(data)
        # The server lets go of the probe while another program resets the board.
        running.reset()
        assert link.hello().workspace_address == at
        assert (tmp_path / "resets").read_text() == "reset\n"
        assert len(set((tmp_path / "pids").read_text().split())) == 2
    for pid in (tmp_path / "pids").read_text().split():
        wait_until_gone(int(pid))


@pytest.mark.tools
def test_a_server_that_runs_already_gets_the_image_too(
    desk: Board, image: Image, tmp_path: Path
) -> None:
    with free_port() as port:
        address = f"127.0.0.1:{port}"
    other = subprocess.Popen([*EMULATOR, *QUIET, "-gdb", f"tcp:{address}"])
    try:
        (tmp_path / "bench.toml").write_text(f'[boards.desk]\nserver = "{address}"\n')
        wait_for(port)
        with start(desk, image, has_line=False, has_debug_stream=True) as running:
            link = open_link(running, "debug", "{:#010x}".format)
            hello = link.hello()
            assert hello.image == image_id(image)
            running.reset()
            assert link.hello().workspace_address == hello.workspace_address
        assert not (tmp_path / "flashed.elf").exists() and not (tmp_path / "resets").exists()
        assert other.poll() is None  # it is not ours to end
    finally:
        other.kill()
        other.wait(10)
    with pytest.raises(NoDevice, match=rf"no GDB server answers at {address} \(.*refused\); start"):
        start(desk, image, has_line=False, has_debug_stream=True)


@pytest.mark.parametrize(
    ("script", "kind", "sentence"),
    [
        (
            "echo 'Error: open failed' >&2; exit 1",
            NoDevice,
            "starting a debug server for desk with sh failed: no debug probe is there (Error: open "
            "failed); plug the board in, or correct the probe's serial number",
        ),
        (
            "exit 3",
            ProbeError,
            "starting a debug server for desk with sh failed: status 3; is the board plugged in, "
            "and does no other program use its probe?",
        ),
        (
            "sleep 600 & echo $! > child; wait",
            ProbeError,
            "starting a debug server for desk with sh took longer than 0.7 s; replug the board",
        ),
    ],
)
def test_a_server_that_does_not_come_up_gives_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    kind: type[ProbeError],
    sentence: str,
) -> None:
    monkeypatch.setattr(server_module, "START_TIMEOUT_S", 0.7)
    with pytest.raises(ProbeError) as caught:
        start_server(on_a_desk(tmp_path, script))
    assert type(caught.value) is kind and str(caught.value) == sentence
    if (tmp_path / "child").exists():
        wait_until_gone(int((tmp_path / "child").read_text()))


def test_a_server_that_hangs_up_gives_a_sentence(tmp_path: Path) -> None:
    python = (
        "import socket,sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
        "s.accept()[0].close(); print('Error: Target not examined yet'); sys.stdin.read()"
    )
    board = on_a_desk(tmp_path, f'exec {sys.executable} -u -c "{python}" $1')
    with contextlib.closing(start_server(board)) as server:
        with pytest.raises(LinkError, match="the debug server sh went away"):
            GdbClient(server.stream, ARM_M).greet()
        assert "Target not examined yet" in server.last_words()


@pytest.mark.slow
def test_a_server_does_not_outlive_a_killed_host(tmp_path: Path) -> None:
    python = (
        "import socket,sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
        "c = s.accept(); sys.stdin.read()"
    )
    on_a_desk(tmp_path, f'exec {sys.executable} -c "{python}" $1')
    host = (
        "from utvm_deploy import load_board\n"
        "from utvm_deploy.device.probe.server import start_server\n"
        f"server = start_server(load_board({str(tmp_path / 'desk.toml')!r}, trust=True))\n"
        "print(server.pid, flush=True); import time; time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", host], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()
    wait_until_gone(pid)


def test_a_probe_without_a_server_says_who_has_one() -> None:
    disco = load_board("stm32f746g_disco")
    with pytest.raises(BoardError, match=r"has no debug server for .* \(openocd, pyocd, jlink, st"):
        start_server(disco, probe="stm32cubeprogrammer")
    with pytest.raises(BoardError, match=r"mps2_an500 has no debug server: none of its probes"):
        start_server(load_board("mps2_an500"))


def openocd_or_skip() -> None:
    if shutil.which("openocd") is None:
        pytest.skip("openocd is not installed")


def test_a_real_openocd_serves_without_a_probe(tmp_path: Path) -> None:
    openocd_or_skip()
    config = tmp_path / "dummy.cfg"
    config.write_text("\n".join(DUMMY_ADAPTER))
    text = load_board("stm32f746g_disco").source
    path = tmp_path / "stm32f746g_disco.toml"
    path.write_text(text.replace("board/stm32f746g-disco.cfg", str(config)))
    with contextlib.closing(start_server(load_board(path, trust=True))) as server:
        client = GdbClient(server.stream, ARM_M)
        client.greet()
        assert client.dialect.name == "OpenOCD"
        assert client.offer.packet_bytes == 0x4000
        assert client.offer.has("vContSupported") and client.offer.has("QStartNoAckMode")
        assert all(client.read_register(name) >= 0 for name in ("r0", "sp", "pc", "cpsr"))
        client.write_memory(0x2000_0000, bytes(range(64)))
        assert len(client.read_memory(0x2000_0000, 4096)) == 4096
        assert client.command("echo hello") == "hello\n"
        # At every restart of the device those of the one before are still there.
        client.insert_breakpoint(0x100)
        client.insert_breakpoint(0x100)
        with pytest.raises(DeviceError, match="how to reset"):
            client.reset()
        pid = server.pid
    assert pid is not None
    wait_until_gone(pid)


@pytest.mark.parametrize("probe", ["openocd", "pyocd", "st_flash"])
def test_real_servers_say_that_no_probe_is_there(probe: str) -> None:
    board = load_board("stm32f746g_disco")
    commands = next(one for one in board.probe.commands if one.name == probe)
    assert commands.server is not None
    if shutil.which(commands.server.program) is None:
        pytest.skip(f"{commands.server.program} is not installed")
    with pytest.raises(NoDevice, match=r"starting a debug server .* no debug probe is there"):
        start_server(board, probe=probe, serial="0" * 24)


@contextlib.contextmanager
def free_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def wait_for(port: int) -> None:
    deadline = time.monotonic() + EXECUTE_TIMEOUT_S
    while True:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, f"nothing listens at {port}"
        time.sleep(0.05)


def image_id(image: Image) -> str:
    text = (image.elf.parent.parent / "image_id.cmake").read_text()
    return text.split('[["')[1].split('"]]')[0]


@pytest.mark.tools
def test_a_device_runs_over_the_debug_link_of_a_real_board(desk: Board) -> None:
    """No serial port is known for it, and none is needed."""
    with utvm_deploy.connect(desk, link="debug") as device:
        twice = device.load_module("void twice(int *x) { *x *= 2; }")["twice"]
        x = device.tensor(np.array([21], np.int32))
        twice(x)
        assert x.numpy().tolist() == [42]
        device.reset()
        assert device.hello.workspace_size > 0


def test_a_server_that_listens_everywhere_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("utvm_deploy.device.probe.server.START_TIMEOUT_S", 0.0)
    tool = tmp_path / "st-util"
    tool.write_text("#!/bin/sh\npwd >&2\nexit 3\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ProbeError):
        start_server(load_board("nucleo_f746zg"), probe="st_flash")
    assert "st-util listens on every network interface" in caplog.text
