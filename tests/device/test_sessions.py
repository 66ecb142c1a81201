"""What a restart of the device takes away says so, and the next use works."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tiny_model import tiny_model

import utvm_deploy
from utvm_deploy.base.errors import DeviceError, DeviceFault, DeviceReset, LinkError, UtvmError
from utvm_deploy.device import Device

CODE = "void inc(int *x) { ++*x; } void stuck(int *x) { while (*(volatile int *)x) { } }"


@pytest.mark.spread(2, among=("mps2_an500", "netduinoplus2"))
def test_everything_is_lost_at_a_reset(device: Device) -> None:
    model = device.load(tiny_model(device.board), into="ram")
    module = device.load_module(CODE, name="code")
    function = module["inc"]
    x = device.tensor(np.zeros(1, np.int32), name="x")
    call = function(x)
    device.reset()
    assert call.ticks.all  # it ran before
    uses = {
        "tensor x": (x.numpy, lambda: x.write(np.zeros(1, np.int32)), lambda: x.address),
        "module 'code'": (lambda: function(x), lambda: module["inc"], lambda: module.address("x")),
        "model tiny": (model, model.run_layers),
    }
    for name, some in uses.items():
        for use in some:
            with pytest.raises(DeviceReset) as caught:
                use()
            said = str(caught.value)
            assert said.startswith(name), said
            assert said.endswith(f"is lost, because {device.board.name} was reset; make it again")
    # Nothing to give back, and no harm.
    x.free()
    module.unload()
    model.unload()
    assert device.session.memory.free_bytes == device.session.memory.size
    x = device.tensor(np.zeros(1, np.int32))
    device.load_module(CODE)["inc"](x)
    assert x.numpy()[0] == 1


def test_a_new_image_takes_everything_away(host: Device) -> None:
    x = host.tensor(np.zeros(1, np.int32), name="x")
    host.load(tiny_model(host.board))
    with pytest.raises(DeviceReset, match=r"tensor x .* image\.elf was started on host"):
        x.numpy()
    host.close()
    with pytest.raises(DeviceReset, match="tensor x"):
        x.numpy()


def test_a_restart_that_nobody_asked_for(host: Device) -> None:
    x = host.tensor(np.zeros(1, np.int32), name="x")
    waiting = host.load_module(CODE)["inc"](x)
    started = host._started
    assert started is not None
    started.reset()
    with pytest.raises(DeviceReset):
        host.read(host.hello.workspace_address, 4)
    with pytest.raises(DeviceReset, match=r"did not run|restarted"):
        _ = waiting.ticks
    with pytest.raises(DeviceReset, match=r"tensor x .* restarted by itself"):
        x.numpy()
    assert host.tensor(np.array([3], np.int32)).numpy()[0] == 3


def test_a_process_that_died(host: Device) -> None:
    x = host.tensor(np.zeros(1, np.int32), name="x")
    started = host._started
    assert started is not None
    started.close()
    with pytest.raises(LinkError):
        host.read(x.address, 4)
    with pytest.raises(DeviceReset, match=r"tensor x .* did not answer any more"):
        x.numpy()


@pytest.mark.spread(2, among=("mps2_an385", "mps3_an547"))
def test_an_endless_loop_is_an_error_on_that_call(device: Device) -> None:
    module = device.load_module(CODE)
    x = device.tensor(np.ones(1, np.int32), name="x")
    began_s = time.monotonic()
    module["inc"](x)
    call = module["stuck"](x)
    with pytest.raises(UtvmError, match=r"stuck\(x\)"):
        device.sync()
    # Its own 0.2 s, two more for the way, and a busy computer.
    assert time.monotonic() - began_s < 10
    assert call.error is not None
    # Whether RAM was lost depends on the port; what is lost says so, and the next call works.
    y = device.tensor(np.ones(1, np.int32))
    device.load_module(CODE)["inc"](y)
    assert y.numpy()[0] == 2


def test_a_wild_write_is_an_error_on_that_call(device: Device) -> None:
    module = device.load_module(CODE)
    x = device.tensor(np.ones(1, np.int32), name="x")
    before = module["inc"](x)
    wild = module["inc"](0xF000_0000)
    behind = module["inc"](x)
    with pytest.raises(UtvmError, match=r"inc\(0xf0000000\)") as caught:
        device.sync()
    for call in (before, wild, behind):
        assert call.is_done
    if isinstance(caught.value, DeviceFault):
        # The port stopped it: what came before ran, nothing is lost.
        assert caught.value.index == 1 and wild.error is caught.value
        why = r"^inc\(x\) did not run, because inc\(0xf0000000\) before it"
        with pytest.raises(DeviceError, match=why):
            _ = behind.ticks
        assert x.numpy()[0] == 2
        module["inc"](x)
        assert x.numpy()[0] == 3
    else:
        with pytest.raises(DeviceReset, match="tensor x"):
            x.numpy()
        assert device.tensor(np.ones(3, np.int8)).numpy().sum() == 3


@pytest.mark.tools
def test_two_devices_share_nothing() -> None:
    with utvm_deploy.connect("host") as one, utvm_deploy.connect("host") as two:
        a, b = one.tensor(np.array([1], np.int32)), two.tensor(np.array([2], np.int32))
        module = one.load_module(CODE)
        module["inc"](a)
        two.reset()
        assert a.numpy()[0] == 2
        with pytest.raises(DeviceReset):
            b.numpy()


def test_models_go_into_flash_or_ram(host: Device) -> None:
    with pytest.raises(DeviceError, match="into 'flash' or 'ram', not into 'rom'"):
        host.load(tiny_model(host.board), into="rom")
    with pytest.raises(DeviceError, match=r"utvm_deploy.compile\(...\) gives, not 'digits.tflite'"):
        host.load("digits.tflite")  # type: ignore[arg-type]
