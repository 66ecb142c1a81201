"""A small compiled model with golden vectors from the reference, ready to be bundled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from small_models import sample_inputs, svdf
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.bundling import FORMATS, write_bundle
from utvm_deploy.bundling.mlperf_tiny import MLPERF_TINY
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.reference import run_reference

BOARD = "mps2_an500"
#: The formats of a library of C, not of whole firmware or of a page.
LIBRARIES = tuple(
    name for name, layout in FORMATS.items() if name != MLPERF_TINY and not layout.is_for_browsers
)


@dataclass(frozen=True)
class Case:
    """What ``write_bundle`` is given."""

    compiled: CompiledModel
    board: Board
    model: Path
    inputs: Sequence[Sequence[Array]]
    expected: Sequence[Sequence[Array]]


def make_case(folder: Path, name: str, board_name: str, seed: int = 1) -> Case:
    """A convolution, a depthwise one and a dense layer, with weights by ``seed``."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape, dtype=np.int8)

    m = ModelWriter()
    x = m.input((1, 6, 6, 2), scale=0.05, zero_point=-7)
    x = m.conv2d(x, weights(4, 3, 3, 2), np.arange(4), scale=0.3, activation="RELU")
    x = m.depthwise_conv2d(x, weights(1, 3, 3, 4), np.arange(4), stride=2, scale=0.5)
    x = m.fully_connected(m.reshape(x, (1, 36)), weights(5, 36), np.arange(5), scale=0.6)
    m.output(m.softmax(x), x)
    path = m.save(folder / f"{name}.tflite")
    board = load_board(board_name)
    inputs = [[rng.integers(-128, 128, (1, 6, 6, 2), dtype=np.int8)] for _ in range(2)]
    expected = run_reference(path, inputs).outputs
    return Case(compile_model(path, board), board, path, inputs, expected)


def make_float_case(folder: Path, board_name: str) -> Case:
    """Two inputs, one of them float32, and a float32 output."""
    rng = np.random.default_rng(6)
    m = ModelWriter()
    x = m.quantize(m.float_input((1, 3, 3, 2)), scale=0.02, zero_point=3)
    y = m.input((1, 3, 3, 2), scale=0.03)
    m.output(m.dequantize(m.add(x, y, scale=0.05)))
    path = m.save(folder / "net.tflite")
    board = load_board(board_name)
    inputs = [
        [
            rng.uniform(-2, 2, (1, 3, 3, 2)).astype(np.float32),
            rng.integers(-128, 128, (1, 3, 3, 2), dtype=np.int8),
        ]
        for _ in range(2)
    ]
    expected = run_reference(path, inputs).outputs
    return Case(compile_model(path, board), board, path, inputs, expected)


def make_state_case(folder: Path, board_name: str) -> Case:
    """A model whose samples continue each other."""
    m = ModelWriter()
    m.output(svdf(m, m.input((1, 7), 0.05, 4), 5, 4, 2))
    path = m.save(folder / "net.tflite")
    board = load_board(board_name)
    inputs = [sample_inputs(m, seed) for seed in range(2)]
    expected = run_reference(path, inputs).outputs
    return Case(compile_model(path, board), board, path, inputs, expected)


def write(case: Case, destination: Path, **options: Any) -> Path:
    """Bundle the case."""
    return write_bundle(
        case.compiled,
        case.board,
        case.model,
        destination,
        inputs=case.inputs,
        expected=case.expected,
        **options,
    )
