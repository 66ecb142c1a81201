"""WebAssembly: traps have names, modules are loaded at run time, counts are exact."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from needed_machine import skip_without_machine

import utvm_deploy
from utvm_deploy.base.errors import (
    BuildError,
    DeviceError,
    DeviceFault,
    DeviceReset,
    LinkClosed,
    MissingTool,
    StoppedTask,
    TaskTimeout,
)
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.device.link.base import Task
from utvm_deploy.device.link.in_process import InProcessLink
from utvm_deploy.device.module import Module
from utvm_deploy.project import build_image
from utvm_deploy.targets.wasm import binary, machine, toolchain
from utvm_deploy.targets.wasm.binary import CODE_BASE, MAGIC, parse, read_binary

pytestmark = pytest.mark.tools

SOURCE = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int32_t kept[2] = {3, 4};
int32_t zeros[64];
static int32_t far;
void inc(int32_t *x) { *x += 1; }
void use(int32_t *x) { *x += kept[1]++ + zeros[5]; zeros[5] = ++far; }
void wild(int32_t at) { *(volatile int32_t *)at = 7; }
void divide(int32_t *x, int32_t by) { *x /= by; }
void loop(volatile int32_t *x) { for (;;) { *x += 1; } }
int32_t recurse(int32_t n) { volatile char b[1000]; b[0] = n; recurse(n + 1); return b[0]; }
void never(void) { __builtin_trap(); }
void by_pointer(int32_t at, int32_t *x) { ((void (*)(int32_t *))at)(x); }
void scale(float by, float *x) { *x *= by; }
void utvm_fill(uint8_t *, uint32_t, uint8_t);
void of_image(int32_t *x) { utvm_fill((uint8_t *)x, 4, 9); }
void of_library(int32_t *x) { *x = abs(*x) + (memcmp(x, kept, 4) > 0); }
"""


@pytest.fixture
def wasm() -> Iterator[Device]:
    board = load_board("wasm")
    skip_without_machine(board)
    with utvm_deploy.connect(board) as device:
        yield device


@pytest.fixture
def module(wasm: Device) -> Module:
    return wasm.load_module(SOURCE, name="bad")


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "words"),
    [
        ("wild", (0xF000_0000,), DeviceFault, "access outside its memory at address 0xf0000000, "),
        ("divide", (0,), DeviceFault, "division by zero, "),
        ("recurse", (1,), DeviceFault, "stack overflow, "),
        ("never", (), DeviceFault, "unreachable code, "),
        ("by_pointer", (10_000,), DeviceFault, "call through a pointer to no function, "),
        ("wild", (toolchain.STACK_BYTES // 2 - 100,), DeviceFault, "stack overflow, "),
        ("loop", (), TaskTimeout, "did not end within its deadline and was stopped: it was "),
    ],
)
def test_what_stops_a_call_is_named_and_nothing_is_lost(
    wasm: Device,
    module: Module,
    name: str,
    arguments: tuple[int, ...],
    kind: type[StoppedTask],
    words: str,
) -> None:
    x = wasm.tensor(np.array([20, 1], np.int32))
    before = module["use"](x).ticks
    first = (x,) if name in ("divide", "loop") else ()
    last = (x,) if name == "by_pointer" else ()
    module[name](*first, *arguments, *last)
    with pytest.raises(kind, match=f"{words}in {name}\\+"):
        wasm.sync()
    if name != "loop":
        assert x.numpy()[0] == 24
    assert module["use"](x).ticks.all == before.all
    assert module.address("kept") and x.numpy()[1] == 1


def test_modules_have_variables_and_call_the_image_and_the_library(
    wasm: Device, module: Module
) -> None:
    kept = module.address("kept")
    assert np.frombuffer(wasm.read(kept, 8), np.int32).tolist() == [3, 4]
    x = wasm.tensor(np.array([-5], np.int32))
    module["use"](x)
    module["use"](x)
    assert x.numpy()[0] == -5 + 4 + 5 + 1
    module["of_image"](x)
    assert x.numpy()[0] == 0x09090909
    module["of_library"](x)
    assert x.numpy()[0] == 0x09090909 + 1
    real = wasm.tensor(np.array([1.5], np.float32))
    module["scale"](int(np.float32(2.0).view(np.int32)), real)
    assert real.numpy()[0] == 3.0
    with wasm.load_module(SOURCE, name="another") as other:
        other["use"](x)
        assert np.frombuffer(wasm.read(kept, 8), np.int32).tolist() == [3, 6]
        wasm.write(other.block.address, bytes(other.size_bytes))
        with pytest.raises(DeviceError, match="do not allow that"):
            other["use"](x)
            wasm.sync()
    with pytest.raises(BuildError, match="uses nowhere, which neither it nor the image"):
        wasm.load_module("void nowhere(void); void call(void) { nowhere(); }")


def test_data_that_begin_like_a_module_are_data(wasm: Device) -> None:
    x = wasm.tensor(np.zeros(64, np.uint8))
    for at in (0, 16, 32):
        data = bytearray(64)
        data[at : at + len(MAGIC)] = MAGIC
        x.write(np.frombuffer(bytes(data), np.uint8))
        assert x.numpy().tobytes() == bytes(data)
    source = "const unsigned char a[] __attribute__((aligned(16))) = "
    listed = ",".join(map(str, MAGIC))
    module = wasm.load_module(f"{source}{{{listed}}}; void at(int *x) {{ *x = a[3]; }}")
    x = wasm.tensor(np.array([5], np.int32))
    module["at"](x)
    assert x.numpy()[0] == ord("m")


def test_data_with_many_beginnings_of_modules_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model's weights may be anything."""
    read: list[int] = []

    def digest(data: bytes) -> bytes:
        read.append(len(data))
        return bytes(16)

    monkeypatch.setattr(binary, "_digest", digest)
    for tail in (b"", (800).to_bytes(4, "little"), bytes(16) + (800).to_bytes(4, "little")):
        found = binary.module_in(MAGIC * 100 + tail)
    assert found == (0, 800) and read == [800]


def test_ctrl_c_ends_a_call(wasm: Device, module: Module) -> None:
    x = wasm.tensor(np.array([20, 1], np.int32))
    pressed = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    pressed.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        module["loop"](x, timeout_s=600.0)
        wasm.sync()
    assert time.monotonic() - begin < 5
    x.write(np.array([20, 1], np.int32))
    module["inc"](x)
    assert x.numpy()[0] == 21


def test_ram_has_the_stack(wasm: Device) -> None:
    image = build_image(None, wasm.board)
    assert image.section_bytes["stack"] == toolchain.STACK_BYTES
    assert image.ram_bytes > toolchain.STACK_BYTES


def test_a_missing_model_is_missed_before_a_missing_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "is_installed", lambda package: False)
    for verb, *more in (["verify"], ["profile"], ["run"], ["eval", "--data", "d.npz"]):
        assert main([verb, "missing.tflite", "--board", "wasm", *more]) == 1
        assert "cannot read the model missing.tflite: No such file" in capsys.readouterr().err


def test_the_link_has_bounds_and_an_end(wasm: Device, module: Module) -> None:
    hello, link = wasm.hello, wasm.link
    end = hello.workspace_address + hello.workspace_size
    for address in (0, hello.workspace_address - 1, end - 3, CODE_BASE - 4):
        with pytest.raises(DeviceError, match="do not allow that"):
            link.write(address, bytes(4))
        with pytest.raises(DeviceError, match="do not allow that"):
            link.read(address, 4)
    assert link.read(CODE_BASE, 4) == b"\0asm"
    for function in (0, CODE_BASE, module["inc"].address + 1):
        with pytest.raises(DeviceError, match="do not allow that"):
            link.execute([Task(function)], 1.0)
    x = wasm.tensor(np.array([1], np.int32))
    wasm.reset()
    assert wasm.hello.nonce != hello.nonce
    with pytest.raises(DeviceReset, match="is lost"):
        x.numpy()
    wasm.close()
    with pytest.raises(LinkClosed, match="closed"):
        link.hello()


def test_counts_are_exact(wasm: Device) -> None:
    loop = "void turn(volatile int *x) { for (int i = 0; i < *x; i++) { x[1] = i; } }"
    module = wasm.load_module(loop)
    x = wasm.tensor(np.array([10, 0], np.int32))
    counts = []
    for turns in (10, 20, 40):
        x.write(np.array([turns, 0], np.int32))
        ticks = module["turn"](x, repeat=3).ticks
        assert ticks.unit == "instructions" and len(set(ticks.all)) == 1
        counts.append(ticks.all[0])
    assert 2 * (counts[1] - counts[0]) == counts[2] - counts[1] > 0


def test_a_file_that_is_cut_or_spoiled_is_refused(wasm: Device, tmp_path: Path) -> None:
    image = build_image(None, wasm.board)
    whole = image.elf.read_bytes()
    assert parse(whole, "it").exports["utvm_fill"][0] == 0
    for size in (0, 3, 8, 9, 20, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"{size}.wasm"
        path.write_bytes(whole[:size])
        if size != 8:  # a module without sections
            with pytest.raises(BuildError, match="WebAssembly file; build it again"):
                read_binary(path)
    spoiled = tmp_path / "spoiled.wasm"
    body = parse(whole, "it").bodies[0]
    spoiled.write_bytes(whole[:body] + b"\xff" * 4 + whole[body + 4 :])
    kind = wasm.board.cpu.target.machine
    assert kind is not None
    with pytest.raises(BuildError, match="wasmtime refuses the module"):
        kind.open(spoiled)


def test_memory_ends_where_the_image_has_it_and_not_where_it_says(wasm: Device) -> None:
    image = build_image(None, wasm.board)
    kind = wasm.board.cpu.target.machine
    assert kind is not None
    symbols = {**read_binary(image.elf).objects, "utvm_workspace_end": 0xFFFF_0000}
    faults = wasm.board.cpu.target.faults
    link = InProcessLink(lambda: kind.open(image.elf), symbols, 1, faults, str)
    for touch in (lambda at: link.write(at, bytes(9)), lambda at: link.read(at, 9)):
        with pytest.raises(BuildError, match="has no memory for 9 bytes at 0x70000000"):
            touch(0x7000_0000)


def test_modules_of_a_long_session_are_ours_to_limit(
    wasm: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MOST_LOADED", 2)
    with utvm_deploy.connect(wasm.board) as device:
        device.load_module("int one(void) { return 1; }", name="one")
        with pytest.raises(BuildError, match="instance count too high at 3"):
            device.load_module("int two(void) { return 2; }", name="two")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("wasm")
    monkeypatch.setattr(toolchain, "is_installed", lambda package: False)
    with pytest.raises(MissingTool, match=r"wasmtime is not installed.*pip install '.*\[wasm\]'"):
        utvm_deploy.connect(board).check_ready()
    monkeypatch.setattr(toolchain, "IS_ZIG", False)
    monkeypatch.setattr(toolchain.shutil, "which", lambda program: None)
    with pytest.raises(MissingTool, match=r"\[wasm\]', or sudo apt install clang-19 lld-19"):
        toolchain.prepare()
