"""A device over a session behaves as one of this computer; what is lost says so.

The server is in this process: no network and no cluster. Real servers are in
tests/service/test_board_sessions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from needed_machine import skip_without_machine
from session_doubles import DirectServer, remote_device, round_trips

import utvm_deploy
from utvm_deploy.base.errors import (
    BoardError,
    DeviceError,
    DeviceFault,
    DeviceReset,
    LinkClosed,
    LinkError,
    LinkTimeout,
    TaskTimeout,
    UtvmError,
)
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.device import Device
from utvm_deploy.device.link.base import Task
from utvm_deploy.service.client.session_messages import encode

pytestmark = pytest.mark.tools

CODE = """
void inc(int *x) { ++*x; }
void add(int *x, int y) { *x += y; }
void stuck(int *x) { while (*(volatile int *)x) { } }
"""
EMULATED = pytest.param("mps2_an500", marks=pytest.mark.emulator)


@pytest.mark.parametrize("name", ["host", EMULATED, "wasm"])
def test_a_hundred_calls_are_one_execution(server: DirectServer, name: str) -> None:
    skip_without_machine(load_board(name))
    with remote_device(server, name) as device:
        module = device.load_module(CODE)
        x = device.tensor(np.zeros(1, np.int32))
        module["inc"](x)
        device.sync()
        before = round_trips(device)
        calls = [module["inc"](x) for _ in range(100)]
        assert round_trips(device) == before
        device.sync()
        # The batch, and what the check of the red zones found.
        assert round_trips(device) - before == 2
        assert x.numpy()[0] == 101
        assert round_trips(device) - before == 3
        assert all(call.ticks.all for call in calls)


def test_different_calls_share_a_batch_as_far_as_the_device_has_room(
    server: DirectServer,
) -> None:
    with remote_device(server, "host") as device:
        module = device.load_module(CODE)
        x = device.tensor(np.zeros(1, np.int32))
        module["inc"](x)
        device.sync()
        before = round_trips(device)
        for number in range(100):
            module["add"](x, number)
        device.sync()
        assert round_trips(device) - before <= 3
        assert x.numpy()[0] == 1 + sum(range(100))


def test_a_start_takes_an_opening_the_image_and_a_greeting(server: DirectServer) -> None:
    with remote_device(server, "host") as device:
        assert device.hello.tick_unit == "nanoseconds"
        # open, one part of the image, start, hello
        assert round_trips(device) == 4


@pytest.mark.parametrize("into", ["ram", "flash"])
def test_models_give_the_same_bytes(server: DirectServer, into: str) -> None:
    compiled = utvm_deploy.compile(data_dir("models") / "digits.tflite", "host")
    (entry,) = compiled.inputs
    values = np.arange(np.prod(entry.shape)).reshape(entry.shape).astype(entry.dtype)
    with utvm_deploy.connect("host") as here, remote_device(server, "host") as there:
        one, other = here.load(compiled, into=into), there.load(compiled, into=into)
        assert np.array_equal(one(values), other(values))
        # A whole model with a checksum behind each layer is one batch, too.
        before = round_trips(there)
        assert one.run_checked([values]) == other.run_checked([values])
        assert round_trips(there) - before <= 8


@pytest.mark.emulator
def test_modelled_cycles_and_the_report_are_the_same(server: DirectServer) -> None:
    def measure(device: Device) -> tuple[object, object]:
        with device:
            module = device.load_module(CODE)
            x = device.tensor(np.zeros(1, np.int32))
            calls = [module["inc"](x) for _ in range(3)]
            figures = device.figures([call.ticks.all[0] for call in calls])
            report = device.cycle_report()
            assert report is not None
            return figures, report["modelled"]

    there = measure(remote_device(server, "mps2_an500", cycle_model=True))
    assert there == measure(utvm_deploy.connect("mps2_an500"))


@pytest.mark.emulator
@pytest.mark.parametrize("link", ["monitor", "debug", "monitor+debug"])
def test_faults_are_decoded_and_name_our_functions(server: DirectServer, link: str) -> None:
    with remote_device(server, "mps2_an500", link) as device:
        module = device.load_module(CODE, name="code")
        with pytest.raises(DeviceFault, match=r"address 0x7ffffff0, in inc\+\d") as caught:
            module["inc"](0x7FFFFFF0)
            device.sync()
        assert caught.value.address == 0x7FFFFFF0 and caught.value.pc
        x = device.tensor(np.ones(1, np.int32))
        with pytest.raises(TaskTimeout, match=r"it was in stuck\+"):
            module["stuck"](x)
            device.sync()
        module["inc"](x)
        assert x.numpy()[0] == 2


def test_resets_and_strictness(server: DirectServer) -> None:
    with remote_device(server, "host") as device:
        x = device.tensor(np.zeros(1, np.int32), name="x")
        device.reset()
        with pytest.raises(DeviceReset, match=r"tensor x .* is lost, because host was reset"):
            x.numpy()
        device.strict = True
        module = device.load_module(CODE)
        with pytest.raises(UtvmError, match=r"inc\(8\)"):
            module["inc"](8)


def test_memory_of_several_parts_comes_whole(
    server: DirectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from utvm_deploy.service.client import session_messages

    with remote_device(server, "host") as device:
        data = bytes(range(256)) * 40
        address = device.allocate(len(data))
        device.sync()
        monkeypatch.setattr(session_messages, "PART_BYTES", 1000)
        before = round_trips(device)
        device.write(address, data)
        assert device.read(address, len(data)) == data
        assert round_trips(device) - before == 22


# What goes wrong.


def use(device: Device) -> bytes:
    return device.read(device.hello.workspace_address, 4)


def test_a_lost_session_is_told_and_the_next_use_begins_another(server: DirectServer) -> None:
    def gone(_timeout_s: float) -> bytes:
        raise LinkClosed("the connection was lost")

    with remote_device(server, "host") as device:
        x = device.tensor(np.ones(1, np.int32), name="x")
        server.transports[-1].receive = gone  # type: ignore[method-assign]
        with pytest.raises(LinkClosed, match="the connection was lost"):
            device.read(x.address, 4)
        with pytest.raises(DeviceReset, match=r"tensor x .* is lost, because host did not answer"):
            x.numpy()
        assert device.tensor(np.ones(3, np.int32)).numpy().sum() == 3
        assert len(server.transports) == 2


def test_the_reason_of_an_ended_session_is_told(server: DirectServer) -> None:
    ended = encode({"session": "ended", "reason": "nothing was heard of it for 30 s"})
    with remote_device(server, "host") as device:
        use(device)
        server.transports[-1].receive = lambda _timeout_s: ended  # type: ignore[method-assign]
        with pytest.raises(LinkClosed, match="ended: nothing was heard of it for 30 s"):
            use(device)


def test_a_server_that_says_nothing_is_left_after_a_deadline(server: DirectServer) -> None:
    waited: list[float] = []

    def silent(timeout_s: float) -> bytes:
        waited.append(timeout_s)
        raise LinkTimeout("nothing")

    with remote_device(server, "host") as device:
        use(device)
        server.transports[-1].receive = silent  # type: ignore[method-assign]
        with pytest.raises(LinkTimeout, match=r"host at utvm://direct did not answer within"):
            use(device)
        # Longer than the link over there, which has the better sentence.
        assert len(waited) == 1 and 5 < waited[0] < 60
        assert use(device)


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "noise": lambda _reply: b"\x00\xff noise",
    "truncated": lambda reply: reply[: len(reply) // 2],
    "another request's": lambda _reply: encode({"id": 10_000}),
    "no number": lambda _reply: encode({}),
    "too little memory": lambda reply: reply[:-1],
    "an unknown error": lambda _reply: encode({"id": 6, "error": {"kind": "os.system"}}),
}


@pytest.mark.parametrize("damage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_an_error_of_the_link(
    server: DirectServer, damage: Callable[[bytes], bytes]
) -> None:
    with remote_device(server, "host") as device:
        use(device)
        transport = server.transports[-1]
        receive = transport.receive
        transport.receive = lambda wait_s: damage(receive(wait_s))  # type: ignore[method-assign]
        with pytest.raises(LinkError):
            use(device)
        assert use(device)


def test_ctrl_c_leaves_a_session_that_goes_on(server: DirectServer) -> None:
    def interrupted(_timeout_s: float) -> bytes:
        raise KeyboardInterrupt

    with remote_device(server, "host") as device:
        x = device.tensor(np.ones(1, np.int32))
        transport = server.transports[-1]
        receive = transport.receive
        transport.receive = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            device.read(x.address, 4)
        # The late reply comes first, and is not taken for the next one.
        transport.receive = receive  # type: ignore[method-assign]
        assert x.numpy()[0] == 1


def test_another_board_of_the_same_name_is_refused(
    server: DirectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = load_board("host").source.replace("clock_hz", "# ours\nclock_hz", 1)
    (tmp_path / "host.toml").write_text(text)
    same = load_board(tmp_path / "host.toml")
    assert facts_digest(same) == facts_digest(load_board("host"))
    with remote_device(server, "mps2_an500") as device:
        monkeypatch.setattr(
            "utvm_deploy.service.client.remote_board.facts_digest", lambda _board: "another"
        )
        with pytest.raises(
            BoardError, match=r"other facts of the board mps2_an500 .* same version"
        ):
            use(device)


def test_requests_out_of_order_are_refused(server: DirectServer) -> None:
    server.open(load_board("host"))
    service = server.transports[-1].service
    for op, wanted in (("image", b"nobody waits"), ("start", b"no image"), ("hello", b"no image")):
        assert wanted in service.answer(encode({"op": op, "id": 1}))
    with pytest.raises(LinkError, match="no request 'exec'"):
        service.answer(encode({"op": "exec", "id": 1}))


def test_too_many_calls_at_once_are_refused(server: DirectServer) -> None:
    with remote_device(server, "host") as device:
        task = Task(device.symbol("utvm_fill"), (0, 0, 0), repeat=200_000)
        with pytest.raises(DeviceError, match="do not fit one message; run fewer"):
            device.execute([task], 1.0)
        with pytest.raises(DeviceError, match=r"too long for a session, .* run fewer calls"):
            device.execute([replace(task, repeat=1)] * 100_000, 1.0)
        assert use(device)
