"""The main job, one body over every board: compile, load, run, compare every byte and layer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import ReferenceRun, run_reference
from utvm_deploy.oracle.samples import load_golden, random_samples
from utvm_deploy.results.profiling.layer_costs import profile
from utvm_deploy.results.verifying.on_board import verify

DIGITS = data_dir("models") / "digits.tflite"
#: Arena limits in bytes, with scratch and input and output, for every board.
ARENA_LIMITS = {
    "ad01_int8": 2_048,
    "kws_ref_model": 18_500,
    "pretrainedResnet_quant": 53_000,
    "vww_96_int8": 76_000,
}


@cache
def digits_for(board: str) -> CompiledModel:
    """The digits model, compiled once per board."""
    return utvm_deploy.compile(DIGITS, board)


@pytest.mark.small_boards
def test_digits_on_real_images(device: Device) -> None:
    held_out = np.load(data_dir("models") / "digits_test.npz")
    model = device.load(digits_for(device.board.name))
    answers = np.array([model(x) for x in held_out["inputs"][:60]])
    np.testing.assert_array_equal(answers, held_out["outputs"][:60])
    assert (answers.argmax(axis=-1).ravel() == held_out["labels"][:60]).mean() > 0.95


@cache
def reference_of(path: Path) -> ReferenceRun:
    """What is the same for every board."""
    golden = load_golden(path.with_suffix(".golden.npz"), load_model(path))
    return run_reference(path, golden.inputs)


@pytest.mark.spread(2)
@pytest.mark.slow
@pytest.mark.each_core
@pytest.mark.parametrize("name", ARENA_LIMITS)
def test_every_byte_and_layer(name: str, device: Device, shared_models: Path) -> None:
    path = shared_models / f"{name}.tflite"
    samples = load_golden(shared_models / f"{name}.golden.npz", load_model(path))
    assert samples.outputs is not None
    compiled = utvm_deploy.compile(path, device.board)
    assert compiled.arena_bytes <= ARENA_LIMITS[name]
    found = verify(device.load(compiled), path, samples, reference=reference_of(path))
    assert found.ok, found
    assert found.samples_run == len(samples.inputs)
    # Layers without a counterpart in the file would be passed over in silence.
    compared = [check for check in found.layers if check.samples == found.samples_run]
    assert len(compared) == len(layers_of_file(compiled.layers))


@pytest.mark.spread(2, among=("mps2_an386", "mps3_an547"))
def test_layers_one_by_one_agree_with_the_whole(device: Device) -> None:
    model = device.load(digits_for(device.board.name))
    ((x,),) = random_samples(load_model(DIGITS), 1).inputs
    runs = model.run_layers(x)
    assert [run.layer.index for run in runs] == list(range(len(model.compiled.layers)))
    np.testing.assert_array_equal(runs[-1].outputs[0], model(x))


@pytest.mark.spread(2, among=("mps2_an500", "mps2_an385"))
def test_profile_counts_every_layer(device: Device) -> None:
    model = device.load(digits_for(device.board.name))
    found = profile(model, random_samples(load_model(DIGITS), 1))
    assert all(layer.ticks > 0 for layer in found.layers)
    # The layers' own calls and clock readings are all that may come on top of, or miss from, them.
    assert found.ticks == pytest.approx(sum(layer.ticks for layer in found.layers), rel=0.5)
    assert found.ram_bytes >= found.arena_bytes
    assert found.flash_bytes > found.weights_bytes


# One board of each timer.
@pytest.mark.spread(3, among=("mps2_an385", "netduinoplus2", "mps3_an547"))
def test_instruction_counts_repeat_exactly(board: Board) -> None:
    if board.project.timer is None or board.project.timer.unit != "instructions":
        pytest.skip("this board's timer is a clock, which jitters")
    compiled = digits_for(board.name)
    samples = random_samples(load_model(DIGITS), 1)
    counts = []
    for _ in range(2):
        with utvm_deploy.connect(board) as device:
            model = device.load(compiled)
            counts += [[layer.ticks for layer in profile(model, samples).layers] for _ in range(2)]
    assert counts[0] == counts[1] == counts[2] == counts[3]


@pytest.mark.spread(1, among=("mps2_an385",))
def test_two_devices_at_once(board: Board) -> None:
    compiled = digits_for(board.name)
    (first,), (second,) = random_samples(load_model(DIGITS), 2).inputs
    with utvm_deploy.connect(board) as one, utvm_deploy.connect(board) as other:
        left, right = one.load(compiled), other.load(compiled)
        left.set_inputs([first])
        answer = right(second)
        np.testing.assert_array_equal(left(first), right(first))
        np.testing.assert_array_equal(left(second), answer)
