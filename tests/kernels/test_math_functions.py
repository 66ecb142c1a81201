"""The mathematical functions of kernels/c/math: their errors, their special values, their bytes."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
from math_errors import BINARY, all_texts, measuring_library

from utvm_deploy.kernels.contract.math_functions import MATH_FUNCTIONS, math_texts

pytestmark = pytest.mark.tools

#: Largest error in units in the last place (docs/reference/float.md). Others: at most 0.6.
BOUNDS = {"erff": 0.75, "erfcf": 0.75, "expm1f": 0.7, "rsqrtf": 1.5} | dict.fromkeys(
    [
        *("ceilf", "copysignf", "fabsf", "floorf", "fmodf", "nearbyintf", "rintf", "roundf"),
        *("truncf", "nextafterf", "ldexpf"),
    ],
    0.0,
)
UNARY = sorted(MATH_FUNCTIONS.keys() - BINARY)
_ALL = 1 << 32
#: A prime, so that the sample has all exponents and all low bits.
_SAMPLED = 9973
_SPECIALS = [
    *(0x0, 0x1, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F000000, 0x40000000),
    *(0x3FC00000, 0x40400000, 0x4B000000, 0x4B7FFFFF, 0x4F000000, 0x7F7FFFFF, 0x7F800000),
    *(0x42B17218, 0x42CFF1B5, 0x43150000, 0x421A209A, 0x3FC90FDB, 0x49E84A00, 0x7FC00000),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return measuring_library(tmp_path_factory.mktemp("math"))


def check(library: ctypes.CDLL, name: str, first: int, end: int, step: int) -> None:
    where = ctypes.c_uint32()
    worst = getattr(library, f"worst_{name}")(first, end, step, ctypes.byref(where))
    print(f"{name}: {worst:.4f} units in the last place at bits {where.value:#x}")
    assert worst <= BOUNDS.get(name, 0.6), f"{name} of bits {where.value:#x}"


@pytest.mark.parametrize("name", UNARY)
def test_errors_of_a_sample_are_within_the_bounds(name: str, library: ctypes.CDLL) -> None:
    check(library, name, 17, _ALL, _SAMPLED)
    for bits in _SPECIALS:
        for signed in (bits, bits | 0x80000000):
            check(library, name, signed, signed + 1, 1)


@pytest.mark.soak
@pytest.mark.parametrize("name", UNARY)
def test_errors_of_all_arguments_are_within_the_bounds(name: str, library: ctypes.CDLL) -> None:
    check(library, name, 0, _ALL, 1)


def test_the_root_without_an_instruction_is_exact(tmp_path: Path) -> None:
    """Cores without a floating-point unit compute it with integers."""
    check(measuring_library(tmp_path, "-U__SSE__"), "sqrtf", 17, _ALL, _SAMPLED)


def arguments(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of special values, of any bits, and of common sizes."""
    rng = np.random.default_rng(1)
    specials = np.array([b | s for b in _SPECIALS for s in (0, 0x80000000)], np.uint32)
    pairs = np.array(list(itertools.product(specials, specials)), np.uint32).view(np.float32)
    bits = rng.integers(0, _ALL, (count, 2), dtype=np.uint32).view(np.float32)
    common = (rng.standard_normal((count, 2)) * [3, 9]).astype(np.float32)
    near = np.stack([1 + common[:, 0] * 1e-4, common[:, 1] * 1e5], 1).astype(np.float32)
    both = np.ascontiguousarray(np.concatenate([pairs, bits, common, near]).T)
    return both[0].copy(), both[1].copy()


def check_pairs(library: ctypes.CDLL, name: str, count: int) -> None:
    x, y = arguments(count)
    where = ctypes.c_int()
    measure = getattr(library, f"worst_{name}")
    worst = measure(x.ctypes.data, y.ctypes.data, len(x), ctypes.byref(where))
    at = (x[where.value], y[where.value])
    print(f"{name}: {worst:.4f} units in the last place at {at}")
    assert worst <= BOUNDS.get(name, 0.6), f"{name} of {at}"


@pytest.mark.parametrize("name", sorted(BINARY & MATH_FUNCTIONS.keys()))
def test_errors_of_pairs_are_within_the_bounds(name: str, library: ctypes.CDLL) -> None:
    check_pairs(library, name, 100_000)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(BINARY & MATH_FUNCTIONS.keys()))
def test_errors_of_many_pairs_are_within_the_bounds(name: str, library: ctypes.CDLL) -> None:
    check_pairs(library, name, 50_000_000)


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m7"])
def test_no_function_calls_the_c_library(core: str, tmp_path: Path) -> None:
    """Only the compiler's own arithmetic, such as ``__aeabi_fadd``."""
    source, built = tmp_path / "all.c", tmp_path / "all.o"
    uses = "".join(
        f"float use_{name}(float x, float y) {{\n  (void)y;\n  return utvm_{name}(x"
        f"{', y' if name in BINARY else ''});\n}}\n"
        for name in MATH_FUNCTIONS
    )
    source.write_text(all_texts() + uses)
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O3", f"-mcpu={core}"]
    fpu = ["-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"] if core == "cortex-m7" else []
    command = ["arm-none-eabi-gcc", *flags, "-mthumb", *fpu, "-c", "-o", str(built), str(source)]
    subprocess.run(command, check=True, timeout=60)
    listed = subprocess.run(
        ["arm-none-eabi-nm", "-u", str(built)], check=True, timeout=60, capture_output=True
    )
    names = [line.split()[1] for line in listed.stdout.decode().splitlines()]
    assert all(name.startswith(("__aeabi_", "__clzsi2", "__gnu_thumb1_case")) for name in names)


def test_only_the_texts_that_are_called_are_given() -> None:
    assert math_texts("y = utvm_requantize(x);") == ()
    assert math_texts("y = expf(x);") == ()
    joined = "".join(math_texts("utvm_expf(x) + utvm_sqrtf(y)"))
    assert "utvm_expf(float x) {" in joined
    assert "utvm_logf(" not in joined
