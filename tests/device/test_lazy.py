"""Lazy execution: nothing runs until somebody looks, and nobody can tell from the results."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import DeviceError, UtvmError
from utvm_deploy.device import Device, Module, Tensor
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.queue import QUEUE_LIMIT

CODE = """
#include <stdint.h>
static int32_t *kept;
void add(int32_t *to, const int32_t *from, int32_t n) { while (n--) *to++ += *from++; }
void scale(int32_t *x, int32_t by, int32_t n) { while (n--) *x++ *= by; }
void set(int32_t *x, int32_t value, int32_t n) { while (n--) *x++ = value; }
void keep(int32_t *x) { kept = x; }
void into_kept(const int32_t *from) { *kept += *from; }
void spin(uint32_t *count) { for (volatile uint32_t i = 0; i < 50; i++) { } ++*count; }
"""


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of the batches that went out."""
    from utvm_deploy.device.link.gdb.debug_link import DebugLink
    from utvm_deploy.device.link.monitor import MonitorLink

    sizes: list[int] = []

    def count(link: type[MonitorLink] | type[DebugLink]) -> None:
        execute = link.execute

        def counting(self: Any, tasks: Sequence[Task], timeout_s: float) -> object:
            sizes.append(len(tasks))
            return execute(self, tasks, timeout_s)

        monkeypatch.setattr(link, "execute", counting)

    count(MonitorLink)
    count(DebugLink)
    yield sizes


@pytest.mark.spread(2, among=("mps2_an500", "netduinoplus2"))
def test_repeats_and_ticks(device: Device) -> None:
    module = device.load_module(CODE)
    count = device.tensor(np.zeros(1, np.uint32))
    calls = [module["spin"](count, repeat=n) for n in (1, 100, 300, 7)]
    assert not any(call.is_done for call in calls)
    assert [len(call.ticks.all) for call in calls] == [1, 100, 300, 7]
    assert count.numpy()[0] == 408
    for call in calls:
        ticks = call.ticks
        assert 0 < ticks.min <= ticks.median <= max(ticks.all)
        assert ticks.unit == device.hello.tick_unit
        assert ticks.median_s == ticks.median / device.hello.ticks_per_second
    if device.hello.tick_unit == "instructions":
        assert len(set(calls[2].ticks.all)) == 1


def run_program(device: Device, module: Module, seed: int, steps: int) -> list[np.ndarray]:
    """A random program: calls, writes, reads, new and freed tensors, a pointer kept by the code."""
    rng = random.Random(seed)
    seen: list[np.ndarray] = []
    tensors: list[Tensor] = [device.tensor(np.full(4, n, np.int32)) for n in range(3)]
    kept = tensors[0]
    module["keep"](kept)
    for step in range(steps):
        x, y = rng.choice(tensors), rng.choice(tensors)
        match rng.randrange(9):
            case 0 | 1 | 2:
                module["add"](x, y, 4)
            case 3:
                module["scale"](x, rng.randrange(-3, 4), 4)
            case 4:
                x.write(np.full(4, step, np.int32))
            case 5:
                seen.append(x.numpy())
            case 6:
                tensors.append(device.tensor(np.full(4, -step, np.int32)))
            case 7:
                tensors.append(device.empty(4, np.int32))
                module["set"](tensors[-1], step, 4)
            case 8:
                if len(tensors) > 4:
                    gone = tensors.pop(rng.randrange(1, len(tensors)))
                    gone.free()
                module["into_kept"](x if x in tensors else kept)
    seen += [tensor.numpy() for tensor in tensors]
    for tensor in tensors:
        tensor.free()
    return seen


@pytest.mark.spread(1, among=("mps3_an547",))
def test_lazy_gives_what_eager_gives(device: Device, batches: list[int]) -> None:
    # An emulated serial line is slow; the process is quick enough for many more.
    programs = 25 if device.board.is_host else 3
    module = device.load_module(CODE)
    for seed in range(programs):
        device.strict = True
        batches.clear()
        eager = run_program(device, module, seed, 40)
        eager_batches = len(batches)
        device.strict = False
        batches.clear()
        lazy = run_program(device, module, seed, 40)
        assert len(batches) < eager_batches
        assert len(eager) == len(lazy)
        for a, b in zip(eager, lazy, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_flushes_and_what_does_not(host: Device, batches: list[int]) -> None:
    module = host.load_module(CODE)
    x = host.tensor(np.ones(4, np.int32))
    module["scale"](x, 3, 4)
    module["scale"](x, 5, 4)
    unrelated = host.tensor(np.zeros(4, np.int32))
    unrelated.write(np.ones(4, np.int32))
    unrelated.numpy()
    unrelated.free()
    host.empty(4, np.int32)
    assert not batches
    assert list(x.numpy()) == [15] * 4
    assert len(batches) == 1
    x.numpy()
    assert len(batches) == 1

    module["scale"](x, 2, 4)
    x.write(np.ones(4, np.int32))
    assert len(batches) == 2
    module["scale"](x, 2, 4)
    host.sync()
    assert len(batches) == 3
    module["scale"](x, 2, 4)
    host.read(x.address, 4)
    assert len(batches) == 4
    module["scale"](x, 2, 4)
    x.free()
    assert len(batches) == 5
    host.sync()
    assert len(batches) == 5


def test_a_full_queue_is_flushed(host: Device, batches: list[int]) -> None:
    module = host.load_module(CODE)
    x = host.tensor(np.zeros(1, np.uint32))
    calls = [module["spin"](x) for _ in range(QUEUE_LIMIT)]
    assert batches and all(call.is_done for call in calls)
    last = module["spin"](x)
    assert not last.is_done
    assert x.numpy()[0] == QUEUE_LIMIT + 1


def test_equal_calls_travel_as_one(host: Device, batches: list[int]) -> None:
    module = host.load_module(CODE)
    x, y = host.tensor(np.zeros(1, np.uint32)), host.tensor(np.zeros(1, np.uint32))
    calls = [module["spin"](x, repeat=n) for n in (1, 3, 2)]
    calls += [module["spin"](y), module["spin"](x)]
    assert (x.numpy()[0], y.numpy()[0]) == (7, 1)
    assert [len(call.ticks.all) for call in calls] == [1, 3, 2, 1, 1]
    # Three, and those that zero the module's variable, make its zones and check all zones.
    assert batches == [3 + 3]


def test_the_call_that_failed_among_equal_ones(host: Device) -> None:
    module = host.load_module(
        "void third(volatile int *x) { if (++*x == 3) *(volatile int *)8 = 1; }"
    )
    x = host.tensor(np.zeros(1, np.int32), name="x")
    calls = [module["third"](x) for _ in range(5)]
    with pytest.raises(UtvmError, match=r"third\(x\)"):
        host.sync()
    assert all(call.is_done and call.error is not None for call in calls)


@pytest.mark.tools
def test_strict_runs_at_once(batches: list[int]) -> None:
    with utvm_deploy.connect("host", strict=True) as device:
        module = device.load_module(CODE)
        x = device.tensor(np.ones(4, np.int32))
        call = module["scale"](x, 3, 4)
        assert call.is_done and len(batches) == 1
        device.strict = False
        module["scale"](x, 3, 4)
        assert len(batches) == 1
        device.strict = True
        assert len(batches) == 2
        assert list(x.numpy()) == [9] * 4


@pytest.mark.tools
def test_leaving_the_block_runs_what_waits() -> None:
    code = "void write_out(unsigned *x) { while (1) { if (*x) break; ++*x; } }"
    with utvm_deploy.connect("host") as device:
        module = device.load_module(code)
        x = device.tensor(np.zeros(1, np.uint32))
        call = module["write_out"](x)
        assert not call.is_done
    assert call.ticks.all


def test_a_refused_call_stops_those_behind_it(host: Device) -> None:
    module = host.load_module(CODE)
    x = host.tensor(np.ones(4, np.int32))
    session = host.session
    first = module["scale"](x, 3, 4)
    # No code lies there, and the device says so before it runs anything.
    bad = session.call(0x10, "nowhere", (x, 5))
    behind = module["scale"](x, 100, 4)
    with pytest.raises(DeviceError, match=r"^nowhere\(int32\[4\], 5\): "):
        host.sync()
    assert list(x.numpy()) == [3] * 4
    assert first.ticks.all
    with pytest.raises(DeviceError, match="nowhere"):
        _ = bad.ticks
    with pytest.raises(DeviceError, match=r"^scale\(int32\[4\], 100, 4\) did not run, because"):
        _ = behind.ticks
    assert behind.error is not None
    # The next one is not concerned.
    module["scale"](x, 2, 4)
    assert list(x.numpy()) == [6] * 4


@pytest.mark.spread(1, among=("mps2_an385",))
def test_a_call_may_be_given_any_time(device: Device) -> None:
    x = device.tensor(np.zeros(1, np.int32))
    more = device.load_module("void more(int *x) { ++*x; }")["more"]
    for long_s in (1e9, math.inf):
        more(x, timeout_s=long_s)
        device.sync()
    for wrong_s in (0, -1.0, math.nan):
        with pytest.raises(DeviceError, match=r"more cannot run within .* above zero"):
            more(x, timeout_s=wrong_s)
    assert x.numpy() == 2


def test_tensors_keep_type_and_shape(host: Device) -> None:
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "float32", "bool", ">i2"):
        values = np.arange(6).reshape(2, 3).astype(dtype)
        tensor = host.tensor(values)
        found = tensor.numpy()
        assert found.shape == (2, 3) and found.dtype == np.dtype(dtype).newbyteorder("<")
        np.testing.assert_array_equal(found, values)
        found[0] = 1  # it is the caller's own
    assert host.empty((2, 0)).numpy().shape == (2, 0)
    assert host.tensor(np.int32(7)).numpy() == 7
    x = host.tensor(np.zeros((2, 3), np.int8), name="x")
    assert str(x) == "x" and x.nbytes == 6 and "tensor x (int8 [2, 3])" in repr(x)
    for wrong in (np.zeros((3, 2), np.int8), np.zeros((2, 3))):
        with pytest.raises(DeviceError, match=r"tensor x .* cannot take an array of"):
            x.write(wrong)
    with pytest.raises(DeviceError, match="type object"):
        host.tensor(np.array(["a", None]))
    with pytest.raises(DeviceError, match="type <U1"):
        host.tensor(np.array(["a"]))
    with pytest.raises(DeviceError, match=r"shape \[-1\]"):
        host.empty(-1)


def test_freed_tensors_say_so(host: Device) -> None:
    with host.tensor(np.zeros(3, np.int8), name="x") as x:
        pass
    x.free()
    with pytest.raises(DeviceError, match=r"tensor x \(int8 \[3\]\) was freed"):
        x.numpy()
    address = host.allocate(10)
    host.free(address)
    with pytest.raises(DeviceError, match="nothing that was allocated"):
        host.free(address)
    assert host.session.memory.free_bytes == host.session.memory.size


def test_no_room_for_a_tensor(host: Device) -> None:
    with pytest.raises(DeviceError, match=r"no room for tensor big \(float64 .*bytes are missing"):
        host.empty((1 << 20, 16), np.float64, name="big")


@pytest.mark.tools
def test_the_wire_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import logging

    log = logging.getLogger("utvm_deploy.device.link")
    handlers, level = list(log.handlers), log.level
    monkeypatch.setenv("UTVM_TRACE", "1")
    try:
        for _ in range(2):
            with utvm_deploy.connect("host") as device:
                device.tensor(np.zeros(3, np.int8))
        shown = capsys.readouterr().err
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)
    lines = [line for line in shown.splitlines() if "-> HELLO" in line]
    assert len(lines) == 2 and all(" ms " in line for line in lines)
    assert "-> WRITE" in shown
