"""The mathematical functions give equal bytes on every core, with and without an FPU."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest
from math_errors import FLAGS, checksum_functions
from tvm import te, tirx

import utvm_deploy
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.kernels.contract.math_functions import MATH_FUNCTIONS

pytestmark = pytest.mark.tools

#: Functions that compute otherwise without a floating-point unit or a wide product.
_FEW = ("expf", "floorf", "fmodf", "powf", "sinf", "sqrtf")
_COUNT = 200


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    folder = tmp_path_factory.mktemp("math")
    source, library = folder / "sums.c", folder / "sums.so"
    source.write_text(checksum_functions(*MATH_FUNCTIONS))
    command = ["gcc", *FLAGS, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))
    sums = {}
    for name in MATH_FUNCTIONS:
        out = ctypes.c_uint32()
        getattr(loaded, f"checksum_{name}")(1, _COUNT, ctypes.byref(out))
        sums[name] = out.value
    return sums


def check_denormals(device: Device) -> None:
    """Helium's instructions would make 0 of them."""
    x = te.placeholder((16,), "float32", name="x")
    product = te.compute((16,), lambda i: x[i] * tirx.const(0.5, "float32"), name="product")
    function = te.create_prim_func([x, product]).with_attr("global_symbol", "halve")
    given = np.full(16, 2e-38, np.float32)
    with device.load_kernels([function]) as module:
        out = device.empty(16, np.float32)
        module["halve"](device.tensor(given), out)
        np.testing.assert_array_equal(out.numpy(), given / 2)


@pytest.mark.parametrize("on", ["mps2_an500", "mps2_an385", "mps3_an547"])
def test_bytes_on_boards_are_those_of_the_host(on: str, on_host: dict[str, int]) -> None:
    with utvm_deploy.connect(on, timing=INSTRUCTIONS) as device:
        module = device.load_module(checksum_functions(*MATH_FUNCTIONS))
        out = device.tensor(np.zeros(len(MATH_FUNCTIONS), np.uint32))
        for index, name in enumerate(MATH_FUNCTIONS):
            module[f"checksum_{name}"](1, _COUNT, out.address + 4 * index)
        device.sync()
        assert dict(zip(MATH_FUNCTIONS, map(int, out.numpy()), strict=True)) == on_host
        check_denormals(device)


def test_bytes_on_a_core_without_wide_products_are_those_of_the_host(
    on_host: dict[str, int],
) -> None:
    with utvm_deploy.connect("microbit", timing=INSTRUCTIONS) as device:
        out = device.tensor(np.zeros(1, np.uint32))
        for name in _FEW:
            with device.load_module(checksum_functions(name)) as module:
                module[f"checksum_{name}"](1, _COUNT, out.address)
                assert int(out.numpy()[0]) == on_host[name], name
