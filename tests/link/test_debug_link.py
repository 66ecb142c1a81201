"""The debug link against QEMU's stub: the four primitives, and what goes wrong with a core."""

from __future__ import annotations

import gc
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from tests.link.fakes import PATIENCE_S
from utvm_deploy.base.errors import (
    BoardError,
    DeviceError,
    DeviceFault,
    DeviceReset,
    LinkClosed,
    LinkError,
    LinkTimeout,
    TaskTimeout,
)
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device import Device
from utvm_deploy.device.link.base import Link, Task
from utvm_deploy.device.link.fault import nearest_symbol
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.link.gdb.combined import CombinedLink
from utvm_deploy.device.link.gdb.debug_link import POINT_SYMBOL, DebugLink
from utvm_deploy.device.link.messages import Status
from utvm_deploy.device.probe import RunningBoard, choose_link, open_link, start
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import Image, build_image
from utvm_deploy.targets.arm_m.target import ARM_M

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(
        shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed"
    ),
]

DIGITS = data_dir("models") / "digits.tflite"
TIMEOUT_S = 10.0
# Thumb: "cpsid f; udf": a fault where faults cannot be taken.
LOCK_UP = bytes.fromhex("72b6 71b6 00de")
# "b ." with interrupts, and with them the device's own deadline, off.
RETURN = bytes.fromhex("7047")
STUCK = bytes.fromhex("72b6 fee7")

CODE = """
unsigned peek(const unsigned *at) { return *at; }
void spin(void) { for (;;) { } }
void fill(unsigned char *to, int n) { for (int i = 0; i < n; ++i) { to[i] = (unsigned char)i; } }
"""


@pytest.fixture(params=["mps2_an500", "mps2_an386", "netduinoplus2"])
def debug_board(request: pytest.FixtureRequest) -> Board:
    return load_board(request.param)


@pytest.fixture
def image(debug_board: Board) -> Image:
    return build_image(None, debug_board)


@pytest.fixture
def running(debug_board: Board, image: Image) -> Iterator[RunningBoard]:
    with start(debug_board, image, has_debug_stream=True) as running:
        yield running


@pytest.fixture
def link(running: RunningBoard) -> Iterator[Link]:
    link = open_link(running, "debug", "{:#010x}".format)
    yield link
    link.close()


@pytest.fixture
def device(debug_board: Board) -> Iterator[Device]:
    with utvm_deploy.connect(debug_board, link="debug") as device:
        yield device


def test_a_board_without_any_uart_has_none_in_its_image() -> None:
    board = load_board("netduinoplus2")
    assert board.project.uart is not None and board.project.uart.settings == ()
    assert not any(name.startswith("USART") for name in build_image(None, board).symbols)


def test_the_four_primitives(link: Link, image: Image) -> None:
    hello = link.hello()
    assert hello.workspace_address == image.symbols["utvm_workspace"]
    assert hello.workspace_size == image.workspace_bytes
    assert len(link.regions()) >= 2
    at, data = hello.workspace_address, os.urandom(10_001)
    # Odd addresses and sizes, several packets.
    link.write(at + 3, data)
    assert link.read(at + 3, len(data)) == data
    assert link.checksum(at + 3, len(data)) == zlib.crc32(data)
    crc = image.symbols["utvm_crc32_of"]
    out = at + 12_000
    # More than one request holds.
    tasks = [Task(crc, (at + 3, 100, out + 4 * (n % 9)), repeat=1 + n % 3) for n in range(200)]
    ticks = link.execute(tasks, TIMEOUT_S)
    assert [len(of_task) for of_task in ticks] == [task.repeat for task in tasks]
    if hello.tick_unit == "instructions":  # modelled cycles depend on what the caches hold
        assert len({t for of_task in ticks for t in of_task}) == 1
    assert link.read(out, 4) == zlib.crc32(data[:100]).to_bytes(4, "little")
    nonce = link.hello().nonce
    assert nonce == hello.nonce
    link.reset()
    assert link.hello().nonce != nonce


@pytest.mark.parametrize("debug_board", ["mps2_an386"], indirect=True)
def test_a_server_may_forget_breakpoints_at_a_reset(
    link: Link, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As st-util does."""
    reset = GdbClient.reset

    def forgetful(client: GdbClient) -> None:
        reset(client)
        client.request(b"z1,%x,2" % (image.symbols[POINT_SYMBOL] & ~1), "to forget")

    monkeypatch.setattr(GdbClient, "reset", forgetful)
    nonce = link.hello().nonce
    link.reset()
    assert link.hello().nonce != nonce


def test_what_regions_forbid_is_refused(link: Link, debug_board: Board) -> None:
    flash = debug_board.main_flash
    assert len(link.read(flash.address, 8)) == 8
    for act in (
        lambda: link.write(flash.address, b"1234"),
        lambda: link.read(flash.end - 2, 4),
        lambda: link.read(0x4000_0000, 4),
        lambda: link.execute([Task(0x4000_0000)], TIMEOUT_S),
        lambda: link.checksum(0x4000_0000, 4),
    ):
        with pytest.raises(DeviceError, match="regions do not allow") as caught:
            act()
        assert caught.value.status == Status.ADDRESS


def test_digits_byte_for_byte(device: Device) -> None:
    held_out = np.load(data_dir("models") / "digits_test.npz")
    model = device.load(utvm_deploy.compile(DIGITS, device.board))
    assert isinstance(device.link, DebugLink)
    answers = np.array([model(x) for x in held_out["inputs"][:10]])
    np.testing.assert_array_equal(answers, held_out["outputs"][:10])
    ((x,),) = random_samples(load_model(DIGITS), 1).inputs
    runs = model.run_layers(x)
    np.testing.assert_array_equal(runs[-1].outputs[0], model(x))


def test_a_fault_is_decoded_and_the_next_call_works(device: Device) -> None:
    module = device.load_module(CODE)
    with pytest.raises(DeviceFault, match=r"fault: .* at address 0xf0000000, in peek\+\d+ \("):
        module["peek"](0xF000_0000)
        device.sync()
    # In the image's own code the source line is known, too.
    with pytest.raises(DeviceFault, match=r"utvm_crc.*, utvm_crc\.c:\d+"):
        device.execute([Task(device.symbol("utvm_crc32_of"), (0xF000_0000, 4, 0))], TIMEOUT_S)
    x = device.empty(16, np.uint8)
    module["fill"](x, 16)
    np.testing.assert_array_equal(x.numpy(), np.arange(16, dtype=np.uint8))


def test_an_endless_loop_ends_at_its_deadline(link: Link) -> None:
    at = link.hello().workspace_address
    for code in (bytes.fromhex("fee7"), STUCK):
        link.write(at, code)
        began = time.monotonic()
        with pytest.raises((TaskTimeout, LinkTimeout)) as caught:
            link.execute([Task(at)], 0.3)
        assert time.monotonic() - began < PATIENCE_S
        assert f"{at & ~3:#010x}"[:-1] in str(caught.value)
        # Whether RAM was kept is the error's to say; the next call works in any case.
        link.write(at, RETURN)
        assert len(link.execute([Task(at)], TIMEOUT_S)) == 1


def test_a_lock_up_says_so_and_the_next_call_works(running: RunningBoard, image: Image) -> None:
    client = GdbClient(running.debug_stream, ARM_M)
    link = DebugLink(client, image.symbols)
    at = link.hello().workspace_address
    link.write(at, LOCK_UP)
    # What tasks are not allowed to do, who stands at the point is.
    client.write_register("pc", at)
    client.resume()
    with pytest.raises(LinkClosed):
        client.wait_for_stop(TIMEOUT_S)
    with pytest.raises(LinkClosed):
        link.read(at, 4)
    assert "Lockup" in running.last_words()
    running.reset()
    link.write(at, RETURN)
    assert len(link.execute([Task(at)], TIMEOUT_S)) == 1
    link.close()


def test_a_fault_of_the_runtime_itself_is_decoded(running: RunningBoard, image: Image) -> None:
    def place_of(address: int) -> str:
        return f"{nearest_symbol(address, image.symbols, ARM_M.code_bit)}, {image.line_of(address)}"

    client = GdbClient(running.debug_stream, ARM_M)
    link = DebugLink(client, image.symbols, place_of=place_of)
    at = link.hello().workspace_address
    link.write(at, RETURN)
    # The runtime's state, which tasks cannot touch and a debugger can: nowhere.
    client.write_memory(image.symbols["served"], b"\x00\x00\x00\xf0")
    with pytest.raises(DeviceReset, match=r"the device faulted \(.*utvm.*\.c:\d+") as caught:
        link.execute([Task(at)], TIMEOUT_S)
    assert "RAM is lost" in str(caught.value)
    assert len(link.hello().image) > 0
    link.close()


def test_a_server_that_dies_is_an_error_and_can_be_restarted(
    running: RunningBoard, link: Link
) -> None:
    nonce = link.hello().nonce
    running.reset()
    # Behind the link's back: what it knew of the device is void.
    assert link.hello().nonce != nonce
    assert running.pid is not None
    os.kill(running.pid, 9)
    with pytest.raises(LinkError):
        link.read(link.hello().workspace_address, 4)
    running.reset()
    assert len(link.read(link.hello().workspace_address, 4)) == 4


def test_nothing_is_left_behind(debug_board: Board, image: Image) -> None:
    descriptors = Path("/proc/self/fd")
    gc.collect()  # images of other tests hold their entries of the cache
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        with start(debug_board, image, has_debug_stream=True) as running:
            link = open_link(running, "debug", str)
            link.hello()
            pid = running.pid
            running.reset()
            link.close()
            link.close()
        assert not Path(f"/proc/{pid}").exists()
    assert len(list(descriptors.iterdir())) == before


def test_much_memory_goes_through_the_debugger_and_batches_over_the_line() -> None:
    board = load_board("mps2_an386")
    with utvm_deploy.connect(board) as device:
        link = device.link
        assert isinstance(link, CombinedLink)
        data = os.urandom(40_000)
        at = device.hello.workspace_address
        for size in (1, 511, 512, len(data)):
            device.write(at, data[:size])
            assert device.read(at, size) == data[:size]
            assert device.checksum(at, size) == zlib.crc32(data[:size])
        with pytest.raises(DeviceError, match="regions do not allow"):
            device.write(board.main_flash.address, data)
        device.reset()
        device.write(at, data)
        assert device.read(at, len(data)) == data
        module = device.load_module(CODE)
        with pytest.raises(DeviceFault):
            module["peek"](0xF000_0000)
            device.sync()
        device.write(at + 60_000, data)
        assert device.read(at + 60_000, len(data)) == data


def test_instructions_are_the_same_over_every_link() -> None:
    counts: list[object] = []
    for kind in ("monitor", "debug", "monitor+debug"):
        with utvm_deploy.connect("mps2_an386", link=kind) as device:
            at = device.hello.workspace_address
            device.write(at, bytes(4096))
            crc = Task(device.symbol("utvm_crc32_of"), (at, 4096, at + 4096), repeat=3)
            ((*ticks,),) = device.execute([crc], TIMEOUT_S)
            # Modelled cycles depend on what the caches hold, and a link's code is in them.
            slack = 0 if device.hello.tick_unit == "instructions" else 0.2
            counts.append(pytest.approx(ticks, rel=slack))
            assert ticks == counts[0]


def test_an_interrupted_call_does_not_spoil_the_next(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = link.hello().workspace_address
    link.write(at, STUCK)

    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GdbClient, "wait_for_stop", interrupted)
        link.execute([Task(at)], TIMEOUT_S)
    link.write(at, RETURN)
    assert len(link.execute([Task(at)], TIMEOUT_S)) == 1


def test_links_have_names() -> None:
    both, debug_only, line_only = map(load_board, ("mps2_an500", "netduinoplus2", "host"))
    assert choose_link(both) == "monitor+debug"
    assert choose_link(both, "debug") == "debug"
    assert (choose_link(debug_only), choose_link(line_only)) == ("debug", "monitor")
    with pytest.raises(BoardError, match="has no monitor link"):
        choose_link(debug_only, "monitor")
    with pytest.raises(BoardError, match="has no debug link"):
        choose_link(line_only, "monitor+debug")
    with pytest.raises(BoardError, match="no link 'jtag'"):
        choose_link(both, "jtag")


def test_without_a_debug_stream_there_is_no_debug_link() -> None:
    board = load_board("mps2_an386")
    image = build_image(None, board)
    with start(board, image) as running, pytest.raises(LinkError, match="without a debug server"):
        open_link(running, "debug", str)
    with pytest.raises(BoardError, match="no debug server"):
        start(load_board("host"), build_image(None, load_board("host")), has_debug_stream=True)
