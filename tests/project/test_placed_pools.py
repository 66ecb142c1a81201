"""Where an image has pools, and that the rest of their region stays the runtime's."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import CompileError, StoppedTask
from utvm_deploy.boards.board import load_board, with_template
from utvm_deploy.compiler.compiled.memory_use import MemoryPool
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import INSTRUCTIONS
from utvm_deploy.project import build_image
from utvm_deploy.project.generated import without_window
from utvm_deploy.project.pools import PlacedPool, placed_pools, without_pools
from utvm_deploy.project.tree import project_files
from utvm_deploy.project.zephyr import app_config

BOARD = "mps2_an500"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    rng = np.random.default_rng(1)
    m = ModelWriter()
    x = m.input((1, 64), scale=0.02)
    weights = rng.integers(-127, 128, (64, 64), dtype=np.int8)
    m.output(m.fully_connected(x, weights, np.arange(64), scale=0.5))
    path = m.save(tmp_path_factory.mktemp("placed") / "m.tflite")
    return compile_model(path, load_board(BOARD), CompileOptions(pools={"dtcm": 6000}))


def of_size(compiled: CompiledModel, size: int) -> CompiledModel:
    return replace(compiled, pools=(MemoryPool("dtcm", size, size, 0, (), ()),))


@pytest.mark.parametrize("size", [16, 100, 1024, 5000, 8192, 12_345, 32_768, 40_000, 49_152])
def test_a_pool_is_whole_eighths_of_a_window(compiled: CompiledModel, size: int) -> None:
    board = load_board(BOARD)
    region = board.region("dtcm")
    (pool,) = placed_pools(of_size(compiled, size), board)
    assert pool.end == region.end and pool.end - pool.address >= size
    # As templates/arm_m/baremetal/mpu.c makes the window of a v7-M.
    bits = 8
    while pool.address >> bits != (pool.end - 1) >> bits:
        bits += 1
    assert pool.address % (1 << bits - 3) == 0 == pool.end % (1 << bits - 3)
    left = without_pools(board, [pool]).region("dtcm")
    assert (left.address, left.end) == (region.address, pool.address)


def test_pools_for_which_an_mpu_has_no_window_are_named(
    compiled: CompiledModel, caplog: pytest.LogCaptureFixture
) -> None:
    board = load_board(BOARD)
    dtcm, rest = board.region("dtcm"), [r for r in board.memory if r.name != "dtcm"]
    names = [f"tcm{at}" for at in range(6)]
    parts = [replace(dtcm, name=n, address=dtcm.address + 8192 * at, size=8192)
             for at, n in enumerate(names)]  # fmt: skip
    project = replace(board.project, data="ram")
    board = replace(board, memory=(*rest, *parts), project=project)
    # One flash, two windows for the workspace and one for the stack leave four.
    for used in (4, 6):
        pools = tuple(MemoryPool(name, 1024, 1024, 0, (), ()) for name in names[:used])
        project_files(replace(compiled, pools=pools), board)
        assert len(caplog.records) == (used > 4)
    assert "none left for pool tcm4, pool tcm5, so tasks that use that are" in caplog.text


def test_a_pool_whose_alignment_has_no_room_is_refused(compiled: CompiledModel) -> None:
    board = load_board(BOARD)
    (small,) = (replace(r, address=0x2000_0800) for r in board.memory if r.name == "dtcm")
    memory = tuple(small if r.name == "dtcm" else r for r in board.memory)
    with pytest.raises(CompileError, match=r"with its alignment.*give a smaller limit"):
        placed_pools(of_size(compiled, 65_000), replace(board, memory=memory))


def test_a_zephyr_application_has_no_pools(compiled: CompiledModel) -> None:
    board = with_template(load_board("stm32f746g_disco"), "zephyr")
    with pytest.raises(CompileError, match="has no memory for the pool dtcm"):
        app_config(board, replace(compiled, board=board.name), board.project.stack_bytes)


@pytest.mark.emulator
def test_a_task_may_write_the_pool_and_nothing_below_it(compiled: CompiledModel) -> None:
    board = load_board(BOARD)
    assert board.emulator is not None
    for program in (board.cpu.toolchain.compiler, board.emulator.program):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    (pool,) = placed_pools(compiled, board)
    image = build_image(compiled, board)
    assert image.symbols["ld_data_region_used"] <= pool.address
    with utvm_deploy.connect(board, timing=INSTRUCTIONS) as device:
        loaded = device.load(compiled)
        assert loaded.pool_addresses == (pool.address,)
        touch = "#include <stdint.h>\nvoid touch(uint32_t at) { *(volatile uint8_t *)at = 1; }"
        module = device.load_module(touch)
        for address in (pool.address, pool.end - 1):
            module["touch"](address)
            device.sync()
        with pytest.raises(StoppedTask):
            module["touch"](pool.address - 1)
            device.sync()


def test_a_workspace_in_a_region_of_its_own_takes_one_window_of_an_mpu() -> None:
    board = load_board(BOARD)
    assert board.data_ram != board.main_ram
    pools = [PlacedPool(f"pool{at}", 32 * at, 32 * at + 32) for at in range(6)]
    # One flash, the workspace and the stack leave five.
    assert without_window(board, (), pools, None) == ["pool pool5"]
