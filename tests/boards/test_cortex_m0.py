"""The Cortex-M0 on an emulated micro:bit: a core without Thumb-2, and 16 KiB of RAM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import DeviceFault, TaskTimeout
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device
from utvm_deploy.device.link.base import Task
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.results.verifying.on_board import verify

pytestmark = [pytest.mark.emulator, pytest.mark.tools]

DIGITS = data_dir("models") / "digits.tflite"
TIMEOUT_S = 20.0
#: Nothing is there, and a word at an odd address.
NOWHERE, ODD = 0x6000_0000, 0x2000_2001
CODE = """
unsigned peek(const unsigned *at) { return *(const volatile unsigned *)at; }
void spin(void) { for (;;) { __asm volatile(""); } }
/* Arguments from the fifth on, and registers that Thumb code without Thumb-2 seldom uses. */
unsigned twelve(unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                unsigned h, unsigned i, unsigned j, unsigned k, unsigned l);
unsigned twelve(unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                unsigned h, unsigned i, unsigned j, unsigned k, unsigned l) {
    unsigned sum = b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + i * 9 + j * 10 + k * 11
                   + l * 12;
    __asm volatile("mov r8, %0\\n\\tmov r9, %0\\n\\tmov r10, %0\\n\\tmov r11, %0" : : "l"(sum)
                   : "r8", "r9", "r10", "r11");
    *(volatile unsigned *)a = sum;
    return sum;
}
"""


@pytest.fixture(params=["monitor", "debug"])
def microbit(request: pytest.FixtureRequest) -> Iterator[Device]:
    with utvm_deploy.connect("microbit", link=request.param) as device:
        yield device


@pytest.mark.parametrize("link", ["monitor", "debug"])
def test_digits_is_byte_exact_on_a_cortex_m0(link: str) -> None:
    compiled = utvm_deploy.compile(DIGITS, "microbit")
    own = {layer.kind for layer in compiled.layers if layer.engine == "thumb"}
    assert own == {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
    with utvm_deploy.connect("microbit", link=link) as device:
        found = verify(device.load(compiled), DIGITS, random_samples(load_model(DIGITS), 2))
    assert found.ok and found.samples_run == 2
    assert len(found.layers) == len(compiled.layers)


def test_depthwise_layers_are_byte_exact_on_a_cortex_m0(tmp_path: Path) -> None:
    """Rows of whole tiles and with each rest, windows in a loop, several outputs of a channel."""
    rng, model = np.random.default_rng(5), ModelWriter()
    for width, channels, factor, kernel, stride, padding in (
        (8, 3, 1, (3, 3), 1, "SAME"),
        (5, 4, 1, (3, 3), 1, "SAME"),
        (9, 2, 1, (3, 3), 1, "VALID"),
        (13, 5, 1, (3, 3), 2, "SAME"),
        (3, 6, 1, (3, 3), 1, "VALID"),
        (6, 2, 3, (5, 5), 1, "SAME"),
        (10, 3, 1, (2, 7), 1, "SAME"),
    ):
        outputs = channels * factor
        x = model.input((1, 4, width, channels), 0.05, int(rng.integers(-128, 128)))
        y = model.depthwise_conv2d(
            x,
            rng.integers(-127, 128, (1, *kernel, outputs), dtype=np.int8),
            rng.integers(-5000, 5000, outputs, dtype=np.int32),
            weight_scale=rng.uniform(0.003, 0.02, outputs),
            stride=stride,
            padding=padding,
            activation="RELU6",
            scale=0.2,
        )
        model.output(y)
    path = model.save(tmp_path / "model.tflite")
    compiled = utvm_deploy.compile(path, "microbit")
    assert {layer.engine for layer in compiled.layers} == {"thumb"}
    with utvm_deploy.connect("microbit") as device:
        found = verify(device.load(compiled), path, random_samples(load_model(path), 2))
    assert found.ok and found.samples_run == 2


def test_a_task_gets_all_its_arguments(microbit: Device) -> None:
    out = microbit.empty(4, np.uint8)
    microbit.load_module(CODE)["twelve"](out, *range(1, 12))
    expected = sum(n * (n + 1) for n in range(1, 12))
    assert int.from_bytes(microbit.read(out.address, 4), "little") == expected


@pytest.mark.parametrize("address", [NOWHERE, ODD])
def test_a_fault_of_a_cortex_m0_names_its_place(microbit: Device, address: int) -> None:
    module = microbit.load_module(CODE)
    module["peek"](address)
    with pytest.raises(DeviceFault, match=r"hard fault: .*, in peek\+\d+ \("):
        microbit.sync()
    # The runtime and its RAM are as before.
    kept = microbit.tensor(np.arange(8, dtype=np.uint8))
    with pytest.raises(DeviceFault):
        module["peek"](address)
        microbit.sync()
    np.testing.assert_array_equal(kept.numpy(), np.arange(8, dtype=np.uint8))


def test_an_endless_loop_on_a_cortex_m0_ends(microbit: Device) -> None:
    module = microbit.load_module(CODE)
    kept = microbit.tensor(np.arange(8, dtype=np.uint8))
    with pytest.raises(TaskTimeout, match="spin"):
        microbit.execute([Task(module["spin"].address, (), deadline_s=0.2)], TIMEOUT_S)
    np.testing.assert_array_equal(kept.numpy(), np.arange(8, dtype=np.uint8))


def test_a_cortex_m0_has_no_extensions() -> None:
    board = load_board("microbit")
    assert board.cpu.compiler_flags == ("-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft")
    assert "dwt" not in board.cpu.facts.timers and not board.has_cycle_model
