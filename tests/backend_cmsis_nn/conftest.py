"""A stand-in for the library, built for this computer, and a model that it covers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_library import build_library
from tflite_writer import ModelWriter


@pytest.fixture
def fake_library(tmp_path: Path) -> Callable[..., Path]:
    """Builds the stand-in for this computer with the macros given."""
    return lambda *macros: build_library(tmp_path / "cmsis", *(f"-D{macro}" for macro in macros))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolution with borders, convolution with stride, RELU alone, dense."""
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, 7, 6, 3), scale=0.05, zero_point=-7)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    scales = rng.uniform(0.002, 0.006, 5).tolist()
    bias = rng.integers(-900, 900, 5).astype(np.int32)
    x = m.conv2d(x, weights(5, 3, 3, 3), bias, weight_scale=scales, scale=0.07, zero_point=4)
    x = m.conv2d(
        x, weights(4, 2, 3, 5), bias[:4], weight_scale=0.004, stride=2, scale=0.1, zero_point=-3
    )
    x = m.relu(x, scale=0.05, zero_point=-128)
    x = m.reshape(x, (1, -1))
    size = m.tensors[x].shape[1]
    m.output(m.fully_connected(x, weights(6, size), bias[[0, 1, 2, 3, 4, 0]], weight_scale=0.003))
    return m.save(tmp_path_factory.mktemp("model") / "small.tflite")
