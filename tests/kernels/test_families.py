"""Every family beside the generic one: odd shapes on emulated cores and as plain C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_harness import check
from odd_shapes import (
    DENSE,
    SHAPES,
    compare_candidates,
    compare_on,
    write_additions,
    write_bytes,
    write_convolutions,
    write_dense,
    write_differences,
    write_pools,
    write_products,
)
from tflite_writer import ModelWriter

from utvm_deploy.device import Device
from utvm_deploy.kernels.choose.lowering import families_for
from utvm_deploy.kernels.native.thumb.gemm import TILES

Write = Callable[[Path], ModelWriter]
MATRICES = (write_convolutions, write_dense)
EVERYTHING = (*MATRICES, write_additions, write_differences, write_products, write_pools)
#: Family -> what it says of its kernels, and what it has some for.
FAMILIES = {
    "dsp": ("DSP assembly", (*MATRICES, write_additions, write_pools)),
    "mve": ("Helium assembly", EVERYTHING),
    "thumb": ("Thumb-2 assembly", MATRICES),
    "scalar": ("C, ", (*MATRICES, write_additions, write_differences)),
    "simd": ("C with SIMD", MATRICES),
    "rvv": ("Zve32x assembly", EVERYTHING),
}
#: Layers of which a depth is a multiple of eight.
LEAST_OF_EIGHTS = {write_convolutions: 17, write_dense: 1}
SMALL_CORE, VECTOR_CORE = "cortex-m0plus", "rv32imc_zve32x"


def family_of(device: Device) -> str:
    family = families_for(device.board.cpu.kernel_core)[0]
    if family not in FAMILIES:
        pytest.skip(f"{device.board.name} has generic kernels only")
    return family


@pytest.mark.parametrize("write", FAMILIES["mve"][1])
def test_odd_shapes_on_cores(device: Device, write: Write, tmp_path: Path) -> None:
    family = family_of(device)
    phrase, writes = FAMILIES[family]
    if write not in writes:
        pytest.skip(f"family {family} leaves them to others")
    if family != "dsp" and write in MATRICES:
        # Some are left to other families unless a candidate asks for them.
        core = device.board.cpu.kernel_core
        made = compare_candidates(device, tmp_path, family, core, write=write, only_default=True)
        if family == "simd":
            assert made >= LEAST_OF_EIGHTS[write]  # depths of eights alone
            return
        scaled = {write_convolutions: len(SHAPES), write_dense: len(DENSE)}[write]
        assert made == (len(write(tmp_path / "all.tflite").outputs) if family == "mve" else scaled)
        return
    compare_on(device, tmp_path, write, phrase, scales_up=family != "dsp")


@pytest.mark.spread(2, among=("mps2_an500", "mps3_an547"))
def test_tables_and_sums_on_cores(device: Device, tmp_path: Path) -> None:
    compare_on(device, tmp_path, write_bytes, "")


@pytest.mark.parametrize(
    ("core", "write"),
    [
        (core, write)
        for core in (
            "cortex-m7",
            "cortex-m55",
            "cortex-m3",
            SMALL_CORE,
            "rv32imc",
            VECTOR_CORE,
            "wasm32",
        )
        for write in FAMILIES[families_for(core)[0]][1]
    ],
)
def test_odd_shapes_in_plain_c(core: str, write: Write, tmp_path: Path) -> None:
    model = write(tmp_path / "model.tflite")
    family = families_for(core)[0]
    assert check(model, tmp_path, core=core, family=family) == len(model.outputs)


@pytest.mark.parametrize(
    ("family", "core", "least"),
    # Each tile of thumb pointwise, dense, and gathered in three sizes.
    [
        ("mve", "cortex-m55", 6),
        ("thumb", "cortex-m3", 5 * len(TILES)),
        ("scalar", "rv32imc", 15),
        ("rvv", VECTOR_CORE, 9),
    ],
)
def test_all_candidates_on_cores(
    device: Device, family: str, core: str, least: int, tmp_path: Path
) -> None:
    if family_of(device) != family:
        pytest.skip(f"{device.board.name} has other kernels")
    assert compare_candidates(device, tmp_path, family, core) >= least


@pytest.mark.parametrize(
    ("write", "count"), [(write_convolutions, len(SHAPES)), (write_dense, len(DENSE))]
)
def test_the_small_cores_code_on_a_larger_one(
    device: Device, write: Write, count: int, tmp_path: Path
) -> None:
    """A Cortex-M3 runs what is compiled for an M0+; no emulated board has that core."""
    if family_of(device) != "thumb":
        pytest.skip(f"{device.board.name} has other kernels")
    flags = ("-O3", f"-mcpu={SMALL_CORE}")
    made = compare_candidates(device, tmp_path, "thumb", SMALL_CORE, write=write, flags=flags)
    assert made == count
