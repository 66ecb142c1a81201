"""The vector kernels of RISC-V: how they round, and vectors of another length."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from odd_shapes import compare_on, write_convolutions, write_dense, write_pools
from test_int16_shapes import write_depthwise
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device
from utvm_deploy.graph.rounding import requantized
from utvm_deploy.kernels.choose.lowering import families_for
from utvm_deploy.kernels.contract.c_texts import VECTORS
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.kernels.native.rvv.gemm import INT16, TWICE, WIDE_EACH, VectorProduct
from utvm_deploy.kernels.native.single_rounding import first_sums

BOARD = "qemu_rv32imcv"
CORE = "rv32imc_zve32x"
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"))),
    reason="needs riscv64-unknown-elf-gcc and qemu-system-riscv32: sudo apt install "
    "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc",
)
SHIFTS = (1, 2, 7, 15, 22, 31)
MULTIPLIERS = (1 << 30, (1 << 30) + 1, 1_234_567_891, 1_999_999_999, (1 << 31) - 1)
#: Sums at the ends of their range and around 0.
SUMS = (-(2**31), -(2**31) + 1, 2**31 - 1, -2, -1, 0, 1, 2)


@pytest.fixture(scope="module")
def vectors() -> Iterator[Device]:
    with utvm_deploy.connect(BOARD) as device:
        yield device


def outputs_of(
    device: Device, rounding: str, scaling: np.ndarray, limits: tuple[int, ...]
) -> np.ndarray:
    """What a kernel makes of the sums in the first row of its scaling, by its assembly."""
    product = VectorProduct(2, 1, rounding)
    kind = np.dtype(np.int16 if rounding == INT16 else np.int8)
    name, c_type = product.function, f"{kind}_t"
    parameters = (
        f"const {c_type} *p, const int8_t *w, const int32_t *s, const int32_t *l, {c_type} *o, "
        "int32_t count, int32_t channels, int32_t depth, int32_t pitch"
    )
    run = f"void run({parameters}) {{ {name}(p, w, s, l, o, count, channels, depth, pitch); }}\n"
    text = "\n".join(("#include <stdint.h>", header(), *product.texts(CORE), run))
    channels = scaling.shape[1]
    with device.load_module(text, name="product") as module:
        pixel, output = device.tensor(np.zeros(1, kind)), device.empty(channels, kind)
        tables = [device.tensor(one) for one in (np.zeros(channels, np.int8), scaling)]
        limit = device.tensor(np.array(limits, np.int32))
        module["run"](pixel, *tables, limit, output, 1, channels, 1, 1)
        return output.numpy()


@pytest.mark.tools
@pytest.mark.emulator
def test_rounding_twice_at_all_borders(vectors: Device) -> None:
    """Each output's first sum, and the one before it."""
    rows = []
    for shift in SHIFTS:
        multipliers = np.array(MULTIPLIERS, np.int64)[:, None]
        right, outputs = np.full_like(multipliers, shift), np.arange(-128, 128, 7)[None, :]
        first = first_sums(multipliers, right, outputs)
        for multiplier, firsts in zip(MULTIPLIERS, first, strict=True):
            sums = np.unique(np.clip([*firsts, *(firsts - 1), *SUMS], -(2**31), 2**31 - 1))
            rows += [(int(one), multiplier, shift) for one in sums]
    scaling = np.array(rows, dtype=np.int64).astype(np.int32).T.copy()
    found = outputs_of(vectors, TWICE, scaling, (3, -128, 127))
    wanted = [requantized(sum_, multiplier, -shift) + 3 for sum_, multiplier, shift in rows]
    np.testing.assert_array_equal(found, np.clip(wanted, -128, 127))


@pytest.mark.tools
@pytest.mark.emulator
def test_rounding_once_in_64_bits(vectors: Device) -> None:
    rng = np.random.default_rng(5)
    sums = [*SUMS, *rng.integers(-(2**31), 2**31, 400).tolist()]
    multiplier = rng.integers(1 << 30, 1 << 31, len(sums))
    shift = rng.integers(15, 23, len(sums))
    offset = (1 << (shift + 31)) + (rng.integers(-128, 128, len(sums)) << (shift + 32))
    rows = [sums, multiplier, offset & 0xFFFFFFFF, (offset >> 32) & 0xFFFFFFFF, shift]
    scaling = np.array(rows, dtype=np.int64).astype(np.uint32).view(np.int32)
    found = outputs_of(vectors, WIDE_EACH, scaling, (-120, 100))
    numbers = zip(sums, multiplier.tolist(), offset.tolist(), shift.tolist(), strict=True)
    wanted = [(sum_ * m + o) >> (s + 32) for sum_, m, o, s in numbers]
    np.testing.assert_array_equal(found, np.clip(wanted, -120, 100))


@pytest.mark.tools
@pytest.mark.emulator
def test_rounding_once_to_int16(vectors: Device) -> None:
    rng = np.random.default_rng(6)
    sums = [*SUMS, *rng.integers(-(2**31), 2**31, 400).tolist()]
    multiplier = rng.integers(1 << 14, 1 << 15, len(sums)) << 16
    shift = rng.integers(1, 31, len(sums))
    scaling = np.array([sums, multiplier, shift], dtype=np.int64).astype(np.int32)
    found = outputs_of(vectors, INT16, scaling, (0, -32768, 32000))
    numbers = zip(sums, multiplier.tolist(), shift.tolist(), strict=True)
    wanted = [((sum_ * m >> 32) + (1 << (s - 1))) >> s for sum_, m, s in numbers]
    np.testing.assert_array_equal(found, np.clip(wanted, -32768, 32000))


@pytest.mark.tools
@pytest.mark.emulator
@pytest.mark.parametrize("write", [write_convolutions, write_dense, write_pools, write_depthwise])
def test_vectors_of_256_bits(write: Callable[[Path], ModelWriter], tmp_path: Path) -> None:
    source = load_board(BOARD).source
    path = tmp_path / f"{BOARD}.toml"
    path.write_text(source.replace("vlen=128", "vlen=256"))
    assert path.read_text() != source
    with utvm_deploy.connect(load_board(path)) as device:
        compare_on(device, tmp_path, write, "", scales_up=False)


def test_a_core_without_vectors_has_no_such_kernels() -> None:
    assert "rvv" in families_for(CORE)
    assert "rvv" not in (*families_for("rv32imc"), *families_for("rv32imafc"))


@pytest.mark.parametrize(
    ("flags", "has_vectors"),
    [
        (["-march=rv32imc_zve32x_zvl128b", "-mabi=ilp32"], True),
        (["-march=rv32imc", "-mabi=ilp32", "-DUTVM_VECTORS"], True),
        # Vectors may be shorter than a group of channels of int16x8.
        (["-march=rv32imc_zve32x", "-mabi=ilp32"], False),
        # The assembly loads addresses by LW.
        (["-march=rv64imac_zve32x_zvl128b", "-mabi=lp64"], False),
        (["-march=rv32imc", "-mabi=ilp32"], False),
    ],
)
def test_where_the_compiler_takes_the_assembly(flags: list[str], has_vectors: bool) -> None:
    command = ["riscv64-unknown-elf-gcc", *flags, "-Wundef", "-Werror", "-E", "-P", "-"]
    text = f"#if {VECTORS}\nvectors\n#endif\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["vectors"] * has_vectors
