"""A device runs a model whose input is pushed: whole, layer by layer, and against the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import DeviceError
from utvm_deploy.device import Device, pushed_rows
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.verifying.on_board import verify


def without_room(allocate: Callable[..., Any], most: int) -> Callable[..., Any]:
    """An allocator that has ``most`` bytes for each block."""

    def limited(size: int, *rest: Any) -> Any:
        if size > most:
            raise DeviceError("no room")
        return allocate(size, *rest)

    return limited


@pytest.mark.tools
@pytest.mark.spread(1)
def test_a_device_gets_the_rows(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    m = ModelWriter()
    x = m.input((1, 20, 48, 3), 0.05, 0)
    y = m.conv2d(
        x,
        rng.integers(-99, 99, (8, 3, 3, 3), dtype=np.int8),
        np.arange(8),
        padding="SAME",
        scale=9.0,
    )
    m.output(m.average_pool(y, (20, 48), padding="VALID"))
    path = m.save(tmp_path / "rows.tflite")
    samples = [[rng.integers(-128, 128, (1, 20, 48, 3), dtype=np.int8)] for _ in range(2)]
    reference = run_reference(path, samples)
    compiled = utvm_deploy.compile(path, device.board, optimize="ram", input_rows=True)
    assert compiled.input_rows is not None and compiled.arena_bytes < 20 * 48 * 3
    model = device.load(compiled)
    for inputs, (expected,) in zip(samples, reference.outputs, strict=True):
        outputs, ticks = model.run(inputs)
        assert outputs[0].tobytes() == expected.tobytes() and ticks > 0
        last = model.run_layers(*inputs)[-1]
        assert last.outputs[0].tobytes() == expected.tobytes()
    monkeypatch.setattr(device.session, "allocate", without_room(device.session.allocate, 1000))
    monkeypatch.setattr(pushed_rows, "_FEW_BYTES", 500)  # three rows
    outputs, _ = model.run(samples[1])
    assert outputs[0].tobytes() == reference.outputs[1][0].tobytes()
    monkeypatch.undo()
    assert verify(
        model, path, Samples(tuple(map(tuple, samples)), None, "random"), reference=reference
    ).ok
