"""The port for ESP-IDF as a process, by a double of ESP-IDF: what every board can do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import DeviceReset, TaskTimeout
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.results.verifying.on_board import verify

pytestmark = pytest.mark.tools

MODEL = data_dir("models") / "digits.tflite"
INPUTS = np.arange(64, dtype=np.int8).reshape(1, 8, 8, 1)

FUNCTIONS = """
#include <stdint.h>
static const int32_t steps[] = {1, 10, 100};
static int32_t calls;
static int32_t (*const table[])(int32_t);
static int32_t twice(int32_t x) { return 2 * x; }
static int32_t (*const table[])(int32_t) = {twice};
void add(int32_t *x, int32_t n) {
    for (int i = 0; i < n; i++) x[i] += table[0](steps[i % 3]);
    calls++;
}
void count(int32_t *x) { *x = calls; }
void spin(void) { for (volatile int i = 1; i;) { } }
void stray(void) { *(volatile int *)64 = 1; }
void turn(uint32_t n) { for (volatile uint64_t i = 0; i < 1000ull * n; i++) { } }
"""


def test_models_and_modules(double: Board) -> None:
    """Code in RAM is written by one address and executed by another."""
    compiled = utvm_deploy.compile(MODEL, board=double)
    samples = random_samples(load_model(MODEL), 2)
    outputs = []
    with utvm_deploy.connect(double) as device:
        for into in ("flash", "ram"):
            model = device.load(compiled, into=into)
            outputs.append(model(INPUTS).tobytes())
            assert verify(model, MODEL, samples).ok
        found = profile(model, samples)
        assert all(layer.ticks > 0 for layer in found.layers) and device.hello.tick_unit == "cycles"
        module = device.load_module(FUNCTIONS)
        ram = device.board.main_ram
        assert module["add"].address - module.block.address >= double.code_offset > 0
        x = device.tensor(np.zeros(4, np.int32))
        module["add"](x, 4)
        module["count"](device.tensor(np.zeros(1, np.int32)))
        np.testing.assert_array_equal(x.numpy(), [2, 20, 200, 2])
        assert ram.alias is not None
    with utvm_deploy.connect("host") as host:
        outputs.append(host.load(utvm_deploy.compile(MODEL, board="host"))(INPUTS).tobytes())
    assert len(set(outputs)) == 1


def test_deadlines_faults_and_restarts(double: Board) -> None:
    with utvm_deploy.connect(double) as device:
        module = device.load_module(FUNCTIONS)
        x = device.tensor(np.zeros(3, np.int32))
        nonce = device.hello.nonce
        for deadline_s in (0.2, *(us * 1e-6 for us in range(20, 60, 4))):
            module["spin"](timeout_s=deadline_s)
            with pytest.raises(TaskTimeout, match=r"spin\(\)"):
                device.sync()
        module["add"](x, 3)
        np.testing.assert_array_equal(x.numpy(), [2, 20, 200])
        assert device.hello.nonce == nonce
        # A fault restarts the chip; the record of it is told once.
        with pytest.raises(DeviceReset, match=r"in stray\+"):
            module["stray"]()
            device.sync()
        assert device.hello.nonce != nonce
        with pytest.raises(DeviceReset):
            module["add"](x, 3)
        again = device.load_module(FUNCTIONS)
        x = device.tensor(np.zeros(3, np.int32))
        again["add"](x, 3)
        np.testing.assert_array_equal(x.numpy(), [2, 20, 200])


def test_ticks_pass_the_counters_wrap(double: Board) -> None:
    """The double's counter has 32 bits, which wrap after 1.1 s. The link is that of USB."""
    assert double.project.esp_idf is not None
    esp_idf = replace(double.project.esp_idf, has_usb=True)
    usb = replace(double, project=replace(double.project, esp_idf=esp_idf))
    with utvm_deploy.connect(usb) as device:
        module = device.load_module(FUNCTIONS)
        turns, ticks = 10_000, 0
        # Another process may have slowed the first turns: then too few follow.
        for _ in range(4):
            turns = int(turns * 1.8 * (1 << 32) / (ticks or module["turn"](turns).ticks.min))
            ticks = module["turn"](turns, timeout_s=60.0).ticks.min
            if ticks > 1 << 32:
                break
    assert ticks > 1 << 32
