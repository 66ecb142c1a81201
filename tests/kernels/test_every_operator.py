"""One model that holds every operator, run on every board: soft float, no DSP, other compilers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.bench.oracle import run_reference
from utvm_deploy.device import Device
from utvm_deploy.kernels.lowering import LOWERINGS


def write_model(path: Path) -> ModelWriter:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape, dtype=np.int8)

    def bias(channels: int) -> np.ndarray:
        return rng.integers(-500, 500, channels, dtype=np.int32)

    m = ModelWriter()
    x = m.quantize(m.float_input((1, 9, 7, 3)), scale=0.05, zero_point=-7)
    x = m.conv2d(x, weights(8, 3, 3, 3), bias(8), scale=1.0, zero_point=3)
    x = m.depthwise_conv2d(x, weights(1, 3, 3, 8), bias(8), stride=2, scale=8.0, zero_point=-5)
    x = m.add(x, m.relu(x, scale=7.0, zero_point=1), scale=9.0, zero_point=2)
    x = m.max_pool(m.pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)]), 2, stride=1)
    x = m.average_pool(x, 3, stride=2, padding="SAME")
    x = m.quantize(m.relu6(x, scale=0.05, zero_point=-128), scale=0.06, zero_point=-100)
    x = m.mean(x, [1], scale=0.05, zero_point=-128)
    x = m.reshape(x, (1, 16))
    x = m.softmax(m.fully_connected(x, weights(7, 16), bias(7), scale=0.3), beta=0.1)
    m.output(m.dequantize(x))
    m.save(path)
    return m


def test_every_operator_is_byte_exact(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "every_operator.tflite"
    written = write_model(path)
    assert {op.kind for op in written.operators} == set(LOWERINGS)
    rng = np.random.default_rng(1)
    samples = [(rng.normal(size=(1, 9, 7, 3)) * 5).astype(np.float32) for _ in range(4)]
    expected = [outputs for (outputs,) in run_reference(path, samples).outputs]
    assert len({array.tobytes() for array in expected}) == len(samples)
    model = device.load(utvm_deploy.compile(path, device.board))
    for sample, outputs in zip(samples, expected, strict=True):
        assert np.asarray(model(sample)).tobytes() == outputs.tobytes()
