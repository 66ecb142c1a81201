"""Writes beside a tensor are found, and said of the right tensor, side and call."""

from __future__ import annotations

import re

import numpy as np
import pytest

from utvm_deploy.base.errors import DeviceError, DeviceFault
from utvm_deploy.device import Device

CODE = """
#include <string.h>
void poke(char *x, int at, int value) { x[at] = (char)value; }
void copy(char *to, const char *from, int n) { memcpy(to, from, (unsigned)n); }
char buffer[16];
void overrun(int n) { memset(buffer, 1, (unsigned)n); }
"""


@pytest.mark.spread(1)
@pytest.mark.parametrize("is_strict", [False, True])
def test_a_write_beside_a_tensor(device: Device, is_strict: bool) -> None:
    module = device.load_module(CODE, name="code")
    x = device.empty(7, name="x")
    y = device.tensor(np.zeros(20, np.int8), name="y")
    device.strict = is_strict
    for tensor, at, side in ((x, 7, "after"), (x, -1, "before"), (y, 20 + 31, "after")):
        says = re.escape(f"memory {side} tensor {tensor.name} ")
        with pytest.raises(DeviceError, match=f"^{says}.*by poke\\({tensor.name}, {at}, 1\\)$"):
            module["poke"](tensor, at, 1)
            device.sync()
        # Told once, and whole again.
        module["poke"](tensor, 0, 1)
        device.sync()


def test_copying_what_lies_beside_another_tensor(host: Device) -> None:
    module = host.load_module(CODE)
    x, y = host.tensor(np.ones(8, np.int8), name="x"), host.empty(8, name="y")
    call = module["copy"](y, x, 9)
    with pytest.raises(DeviceError, match=r"memory after tensor y .* by copy\(y, x, 9\)"):
        host.sync()
    with pytest.raises(DeviceError, match="memory after tensor y"):
        _ = call.ticks
    assert list(y.numpy()) == [1] * 8


def test_several_suspects_are_all_named(host: Device) -> None:
    module = host.load_module(CODE)
    x, z = host.empty(8, name="x"), host.empty(8, name="z")
    module["poke"](z, 0, 1)
    for at in range(6, 12):
        module["poke"](x, at, 1)
    with pytest.raises(DeviceError) as caught:
        host.sync()
    said = str(caught.value)
    assert "by one of poke(x, 6, 1), poke(x, 7, 1), poke(x, 8, 1), poke(x, 9, 1), 2 more" in said
    assert "poke(z" not in said and "strict" in said


def test_variables_of_a_module_and_raw_memory(host: Device) -> None:
    module = host.load_module(CODE, name="code")
    module["overrun"](16)
    host.sync()
    with pytest.raises(DeviceError, match=r"memory after module 'code' .* by overrun\(64\)"):
        module["overrun"](64)
        host.sync()


def test_zones_that_waited_behind_a_failing_call_are_made(host: Device) -> None:
    module = host.load_module(CODE)
    x = host.tensor(np.zeros(3, np.int8), name="x")
    with pytest.raises(DeviceError, match="nowhere"):
        host.session.call(0x10, "nowhere", (x,))
        y = host.empty(8, name="y")
        module["poke"](y, 0, 1)
        host.sync()
    module["poke"](y, 0, 1)
    host.sync()
    with pytest.raises(DeviceError, match="memory after tensor y"):
        module["poke"](y, 8, 1)
        host.sync()


def test_many_tensors_at_once(host: Device) -> None:
    source = "void f(char *a, char *b, char *c, char *d, char *e, char *f, int at) { f[at] = 1; }"
    module = host.load_module(source)
    tensors = [host.empty(5, name=f"t{n}") for n in range(6)]
    module["f"](*tensors, 4)
    host.sync()
    with pytest.raises(DeviceError, match="memory after tensor t5"):
        module["f"](*tensors, 5)
        host.sync()


def test_zones_that_waited_behind_a_stopped_call_are_not_blamed_on_it(host: Device) -> None:
    module = host.load_module(
        "void crash(void) { *(volatile int *)0 = 1; } void f(char *x) { *x = 1; }"
    )
    # Where the tensor will lie something else was: its zones differ from what lies there now.
    with host.tensor(np.arange(256, dtype=np.uint8)):
        pass
    module["crash"]()
    y = host.empty(8, name="y")
    module["f"](y)
    with pytest.raises(DeviceFault, match=r"^task 0 \(crash\(\)\) faulted") as caught:
        host.sync()
    assert "overwritten" not in str(caught.value)
    module["f"](y)
    host.sync()
