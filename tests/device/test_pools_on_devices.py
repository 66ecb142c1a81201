"""A device runs a model with pools: whole, layer by layer, in an image and in RAM, row by row."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import INSTRUCTIONS, Device, DeviceModel
from utvm_deploy.device.model import REFERENCE
from utvm_deploy.oracle.reference import ReferenceRun, run_reference
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.profiling.placement import placement_of
from utvm_deploy.results.verifying.on_board import verify

LARGE = 48_000
SHAPE = (1, 20, 16, 8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(9)
    m = ModelWriter()
    x = m.input(SHAPE, 0.05, 0)
    for channels in (16, 8):
        weights = rng.integers(-99, 99, (channels, 3, 3, m.tensors[x].shape[3]), dtype=np.int8)
        x = m.conv2d(x, weights, np.arange(channels), padding="SAME", scale=9.0)
    m.output(m.average_pool(x, SHAPE[1:3], padding="VALID"))
    return m.save(tmp_path_factory.mktemp("pools") / "m.tflite")


def samples_of() -> Samples:
    rng = np.random.default_rng(2)
    return Samples(
        tuple((rng.integers(-128, 128, SHAPE, dtype=np.int8),) for _ in range(2)), None, "random"
    )


def check(model: DeviceModel, path: Path, samples: Samples, reference: ReferenceRun) -> None:
    for inputs, (expected,) in zip(samples.inputs, reference.outputs, strict=True):
        outputs, _ = model.run(inputs)
        assert outputs[0].tobytes() == expected.tobytes()
    assert verify(model, path, samples, reference=reference).ok
    if model.compiled.input_rows is not None:
        return
    (inputs, *_), (tensors, *_) = samples.inputs, reference.tensors
    runs = model.run_layers(*inputs, replace={0: REFERENCE}, reference=tensors)
    for run in runs:
        for buffer, array in zip(run.layer.outputs, run.outputs, strict=True):
            if buffer.source is not None:
                assert array.tobytes() == buffer.of_file(tensors[buffer.source]).tobytes()


@pytest.mark.tools
@pytest.mark.parametrize(
    ("name", "size"),
    # Two kinds of memory protection; with weights alone, and with everything.
    [
        ("host", 1_000),
        ("host", LARGE),
        ("mps2_an500", 1_000),
        ("mps2_an500", LARGE),
        ("mps3_an547", LARGE),
    ],
)
def test_a_device_runs_a_model_with_a_pool(model: Path, name: str, size: int) -> None:
    board = load_board(name)
    if board.emulator is not None and not shutil.which(board.emulator.program):
        pytest.skip(f"{board.emulator.program} is not installed")
    with utvm_deploy.connect(board, timing=INSTRUCTIONS) as device:
        check_everywhere(device, model, size)


def check_everywhere(device: Device, model: Path, size: int) -> None:
    samples = samples_of()
    reference = run_reference(model, samples.inputs)
    # Without Winograd's method, whose scratch leaves little room.
    level, pools = "balanced", {"dtcm": size}
    compiled = utvm_deploy.compile(model, device.board, optimize=level, pools=pools)
    (pool,) = compiled.pools
    assert pool.residents and bool(pool.scratch_bytes) == (size == LARGE)
    # The cycle model of the M55's board has no cache in front of the arena.
    assert bool(pool.uses) == (size == LARGE and device.board.name != "mps3_an547")
    loaded = device.load(compiled)
    check(loaded, model, samples, reference)
    if not device.board.is_host:
        region = device.board.region("dtcm")
        assert region.address <= loaded.pool_addresses[0] <= region.end - pool.size_bytes
        assert "dtcm (tcm)" in placement_of(loaded).weights
    in_ram = device.load(compiled, into="ram")
    check(in_ram, model, samples, reference)
    in_ram.unload()
    rows = utvm_deploy.compile(model, device.board, pools={"dtcm": size}, input_rows=True)
    assert rows.pools and rows.input_rows is not None
    pushed = device.load(rows, into="ram")
    check(pushed, model, samples, reference)


def test_pools_of_an_ended_session_leave_the_next_one_alone(model: Path) -> None:
    with utvm_deploy.connect("host") as device:
        board = device.board
        compiled = utvm_deploy.compile(model, board, optimize="balanced", pools={"dtcm": LARGE})
        old = device.load(compiled, into="ram")
        device.reset()
        new = device.load(compiled, into="ram")
        old.unload()
        (arrays, *_) = samples_of().inputs
        new.run(arrays)
        new.unload()


@pytest.mark.tools
def test_ad_takes_fewer_cycles(shared_models: Path) -> None:
    board = load_board("mps2_an500")
    if board.emulator is None or not shutil.which(board.emulator.program):
        pytest.skip("the emulator is not installed")
    path = shared_models / "ad01_int8.tflite"
    inputs = [np.zeros((1, 640), np.int8)]
    ticks = []
    with utvm_deploy.connect(board) as device:
        if not device.is_modelled:
            pytest.skip("there is no cycle model here")
        for pools in ({}, {"dtcm": 48 * 1024}):
            compiled = utvm_deploy.compile(path, board, scratch="auto", pools=pools)
            ticks.append(device.load(compiled).run(inputs)[1])
    assert ticks[1] <= 0.95 * ticks[0]
