"""The smallest and the largest models: pixels, channels, classes, weights, layers, RAM."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import INSTRUCTIONS, Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import build_image, check_fits
from utvm_deploy.project.fit import arena_room, check_image_fits
from utvm_deploy.results.verifying.on_board import verify

#: The emulated board with the least RAM, so that filling it takes a moment only.
SMALL_BOARD = "netduinoplus2"
LAYERS = 300
WEIGHTS_BYTES = 2 * 1024 * 1024

Write = Callable[[ModelWriter, np.random.Generator], None]


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-127, 128, shape, dtype=np.int8)


def bias(rng: np.random.Generator, channels: int) -> np.ndarray:
    return rng.integers(-500, 500, channels, dtype=np.int32)


def one_pixel(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 1, 1, 1), 0.1, 3)
    y = m.conv2d(x, weights(rng, 1, 1, 1, 1), bias(rng, 1), scale=0.2)
    y = m.depthwise_conv2d(y, weights(rng, 1, 3, 3, 1), bias(rng, 1), scale=0.2)
    y = m.max_pool(m.average_pool(y, 1), 1)
    m.output(m.mean(m.add(y, x, scale=0.3), [1, 2], scale=0.2))


def one_channel(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 9, 11, 1), 0.1, -128)
    y = m.conv2d(x, weights(rng, 1, 3, 3, 1), bias(rng, 1), stride=2, scale=0.4)
    y = m.depthwise_conv2d(y, weights(rng, 1, 3, 3, 1), bias(rng, 1), scale=0.9)
    y = m.average_pool(y, 3, stride=1, padding="SAME")
    m.output(m.fully_connected(m.reshape(y, (1, 30)), weights(rng, 1, 30), bias(rng, 1)))


def one_pixel_of_many_channels(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 1, 1, 500), 0.1, 127)
    y = m.conv2d(x, weights(rng, 67, 1, 1, 500), bias(rng, 67), scale=3.0)
    m.output(m.depthwise_conv2d(y, weights(rng, 1, 1, 1, 67), bias(rng, 67), scale=4.0))


def thousand_classes(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 64), 0.05, -1)
    y = m.fully_connected(x, weights(rng, 1000, 64), bias(rng, 1000), scale=0.3, zero_point=-7)
    m.output(m.softmax(y), y)


def two_mebibytes(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 1024), 0.05, -1)
    y = m.fully_connected(x, weights(rng, 1024, 1024), bias(rng, 1024), scale=2.0)
    m.output(m.fully_connected(y, weights(rng, 1024, 1024), bias(rng, 1024), scale=80.0))


def many_layers(m: ModelWriter, rng: np.random.Generator) -> None:
    x = m.input((1, 5, 5, 4), 0.05, 3)
    for _ in range(LAYERS // 3):
        y = m.conv2d(x, weights(rng, 4, 3, 3, 4), bias(rng, 4), scale=0.3, activation="RELU")
        y = m.depthwise_conv2d(y, weights(rng, 1, 3, 3, 4), bias(rng, 4), scale=0.5)
        x = m.add(x, y, scale=0.05)
    m.output(x)


def saved(write: Write, folder: Path) -> Path:
    m = ModelWriter()
    write(m, np.random.default_rng(3))
    return m.save(folder / f"{write.__name__}.tflite")


def connected(name: str) -> Device:
    """A device on that board, without its cycle model."""
    emulator = load_board(name).emulator
    if emulator and not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    return utvm_deploy.connect(name, timing=INSTRUCTIONS)


def check(device: Device, path: Path, into: str = "ram") -> CompiledModel:
    """Every output byte and layer."""
    model = device.load(utvm_deploy.compile(path, device.board), into=into)
    found = verify(model, path, random_samples(load_model(path), 2))
    assert found.ok, found
    model.unload()
    return model.compiled


@pytest.mark.spread(1)
@pytest.mark.each_core
@pytest.mark.parametrize(
    "write", [one_pixel, one_channel, one_pixel_of_many_channels, thousand_classes]
)
def test_small_and_wide(write: Write, device: Device, tmp_path: Path) -> None:
    check(device, saved(write, tmp_path))


@pytest.mark.tools
@pytest.mark.parametrize("name", ["host", "mps2_an385"])
def test_two_mebibytes_of_weights(name: str, tmp_path: Path) -> None:
    with connected(name) as device:
        assert check(device, saved(two_mebibytes, tmp_path), "flash").weights_bytes > WEIGHTS_BYTES


@pytest.mark.slow
def test_more_weights_than_flash_are_refused(tmp_path: Path) -> None:
    board = load_board(SMALL_BOARD)
    compiled = utvm_deploy.compile(saved(two_mebibytes, tmp_path), board)
    with pytest.raises(CompileError, match=r"needs 2,1\d\d,\d{3} bytes of flash .* has 1,0\d\d,"):
        build_image(compiled, board)


@pytest.mark.tools
@pytest.mark.parametrize("name", ["host", "mps2_an500"])
def test_three_hundred_layers(name: str, tmp_path: Path) -> None:
    with connected(name) as device:
        compiled = check(device, saved(many_layers, tmp_path))
    assert len(compiled.layers) == LAYERS
    # Equal layers share their kernels, so code does not grow with them.
    assert len({layer.kernel for layer in compiled.layers}) < 10


def filling(elements: int, board: Board, folder: Path) -> CompiledModel:
    """A model that works in place on so many bytes."""
    m = ModelWriter()
    x = m.input((1, elements), 0.1, 3)
    m.output(m.relu(x, scale=0.2, zero_point=5))
    compiled = utvm_deploy.compile(m.save(folder / "filling.tflite"), board)
    assert compiled.arena_bytes == elements
    return compiled


@pytest.mark.slow
def test_a_model_that_fills_the_ram_and_one_byte_more(tmp_path: Path) -> None:
    board = load_board(SMALL_BOARD)
    room = arena_room(board)
    compiled = filling(room, board, tmp_path)
    check_fits(compiled, board)
    with pytest.raises(CompileError) as caught:
        check_fits(filling(room + 1, board, tmp_path), board)
    said = str(caught.value)
    assert f"needs {room + 1:,} bytes of RAM" in said and f"has {room:,} bytes for it" in said
    assert "a board with more RAM" in said


@pytest.mark.emulator
def test_a_model_that_fills_the_ram_runs(tmp_path: Path) -> None:
    board = load_board(SMALL_BOARD)
    room = arena_room(board)
    compiled = filling(room, board, tmp_path)
    path = tmp_path / "filling.tflite"
    with connected(SMALL_BOARD) as device:
        found = verify(device.load(compiled), path, random_samples(load_model(path), 1))
    assert found.ok and found.output_bytes == room


@pytest.mark.tools
def test_the_linked_image_says_what_it_leaves(tmp_path: Path) -> None:
    board = load_board(SMALL_BOARD)
    image = build_image(filling(1000, board, tmp_path), board)
    check_image_fits(image, image.workspace_bytes, "filling")
    words = re.escape(f"needs {image.workspace_bytes + 1:,} bytes of RAM")
    with pytest.raises(CompileError, match=f"{words}.*leaves {image.workspace_bytes:,} of"):
        check_image_fits(image, image.workspace_bytes + 1, "filling")
