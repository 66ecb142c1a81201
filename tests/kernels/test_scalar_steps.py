"""The assembly of the scalar family's chunks on RISC-V, and the C of other compilers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.kernels.native.scalar import pairs, steps
from utvm_deploy.kernels.native.scalar.gemm import CHANNELS, ScalarProduct
from utvm_deploy.kernels.native.scalar.rounding import ONCE

BOARD = "qemu_rv32imc"
needs_board = pytest.mark.skipif(
    not all(map(shutil.which, ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"))),
    reason="needs riscv64-unknown-elf-gcc and qemu-system-riscv32: sudo apt install "
    "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc",
)
PARAMETERS = (
    "const int8_t *p, const int32_t *w, const int32_t *s, const int32_t *l, int8_t *o, "
    "int32_t count, int32_t channels, int32_t depth, int32_t pitch"
)
#: Pixels beside a tile of three, channels beside a group of four; one chunk, and many.
SHAPES = ((7, 6, 1), (3, 4, 9), (4, 5, 27), (6, 13, 64), (5, 3, 40))


def multiplied(device: Device, channels: int, text: str, given: list[np.ndarray]) -> np.ndarray:
    """What the C makes of pixels and the three tables."""
    count, depth = given[0].shape
    with device.load_module(text, name="product") as module:
        output = device.empty((count, channels), np.int8)
        tensors = [device.tensor(np.ascontiguousarray(one)) for one in given]
        module["run"](*tensors, output, count, channels, depth, depth)
        return output.numpy()


@pytest.mark.tools
@pytest.mark.emulator
@needs_board
def test_assembly_and_c_make_the_sums_of_numpy() -> None:
    rng = np.random.default_rng(37)
    with utvm_deploy.connect(BOARD) as device:
        for (count, channels, depth), largest in zip(SHAPES, (127, 1, 127, 40, 127), strict=True):
            weights = rng.integers(-largest, largest + 1, (channels, depth)).astype(np.int8)
            weights[0] = largest
            pixels = rng.integers(-128, 128, (count, depth)).astype(np.int8)
            pixels[0], pixels[-1] = -128, 127
            chunks = pairs.chunk_count(weights, 1, CHANNELS)
            product = ScalarProduct(steps.PIXELS, 1, ONCE, chunks, depth)
            # Outputs are sums without their lowest bits.
            bias, ones = rng.integers(-99, 99, channels), np.ones(channels, np.int64)
            shift = largest.bit_length() - 1
            rows = np.array([bias, ones << 30, 0 * ones, shift * ones])
            given = [pixels, *product.pack(weights, rows), np.array([-128, 127], np.int32)]
            sums = pixels.astype(np.int64) @ weights.T.astype(np.int64) + bias
            wanted = np.clip((sums * (1 << 30) >> 32) >> shift, -128, 127)
            called = f"{product.function}(p, w, s, l, o, count, channels, depth, pitch);"
            run = f"void run({PARAMETERS}) {{ {called} }}"
            text = "\n".join(("#include <stdint.h>", header(), *product.texts(""), run, ""))
            assert text.count(steps.CONDITION) == 1
            for form in (text, text.replace(steps.CONDITION, "0")):
                np.testing.assert_array_equal(multiplied(device, channels, form, given), wanted)


@pytest.mark.tools
@pytest.mark.emulator
@needs_board
def test_estimates_are_near_what_a_core_executes(tmp_path: Path) -> None:
    rng = np.random.default_rng(38)
    m = ModelWriter()
    x, given = m.input((1, 12, 12, 24), scale=0.05), {"weight_scale": 0.02, "scale": 3.0}
    for largest, size in ((127, 1), (127, 3), (12, 1)):
        values = rng.integers(-largest, largest + 1, (20, size, size, 24))
        m.output(m.conv2d(x, values, np.zeros(20), **given, stride=size))
    x = m.input((1, 160))
    m.output(m.fully_connected(x, rng.integers(-127, 128, (24, 160)), np.zeros(24), **given))
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    estimates = [lower(graph, one, "rv32imc").kernel.estimated_cycles for one in graph.operators]
    found = utvm_deploy.profile(path, BOARD).found.layers
    assert [one.ticks for one in found] == pytest.approx(estimates, rel=0.2)


@pytest.mark.tools
@pytest.mark.skipif(not shutil.which("clang"), reason="needs clang: sudo apt install clang")
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_clang_compiles_the_product(level: str) -> None:
    product = ScalarProduct(steps.PIXELS, 1, ONCE, 1, 9)
    called = f"{product.function}(p, w, s, l, o, count, channels, depth, pitch);"
    run = f"void run({PARAMETERS}) {{ {called} }}"
    text = "\n".join(("#include <stdint.h>", header(), *product.texts(""), run, ""))
    flags = ("--target=riscv32-unknown-elf", "-march=rv32imc", "-std=c99", "-ffreestanding", level)
    command = ["clang", *flags, "-x", "c", "-c", "-", "-o", "/dev/null"]
    subprocess.run(command, input=text, text=True, check=True, timeout=60)


def test_no_sum_of_a_chunk_leaves_16_bits() -> None:
    rng = np.random.default_rng(38)
    weights = rng.integers(-127, 128, (8, 50)).astype(np.int8)
    table, counts = pairs.packed(weights, 1, CHANNELS)
    at = 0
    for group, count in zip(weights.reshape(2, CHANNELS, 50), counts, strict=True):
        first = 0
        for _ in range(count):
            length = int(table[at]) & 0xFF
            assert table[at] == steps.header(length)
            chunk = group[:, first : first + length].astype(int)
            words = table[at + 1 : at + 1 + 2 * length].reshape(length, 2)
            np.testing.assert_array_equal(words, (chunk[::2] + (chunk[1::2] << 16)).T)
            assert (np.abs(chunk).sum(axis=1) * 128 <= pairs.RAISED).all()
            at, first = at + 1 + 2 * length, first + length
        assert first == 50
        assert table[at] == 0
        at += 1
    assert at == table.size
