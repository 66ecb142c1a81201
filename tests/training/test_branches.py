"""Training of files whose layers are side by side, and the end of what is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.errors import UsageError


def branches(path: Path) -> Path:
    """Two dense layers of one input, whose sum goes into a third."""
    rng = np.random.default_rng(3)

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    m = FloatWriter()
    x = m.input((2, 6))
    both = [m.fully_connected(x, drawn(5, 6), drawn(5)) for _ in range(2)]
    m.output(m.fully_connected(m.add(*both), drawn(3, 5), drawn(3)))
    return m.save(path)


@pytest.mark.parametrize("layers", [[0], [1], [0, 1], "all"])
def test_each_layer_trains_within_the_arena(tmp_path: Path, layers: str | list[int]) -> None:
    made = utvm_deploy.trainable(branches(tmp_path / "net.tflite"), layers=layers, rate=0.01)
    compiled = utvm_deploy.compile(made, "host")
    assert compiled.training is not None
    stored = compiled.training.stored
    assert stored.offset + stored.size_bytes <= compiled.arena_bytes
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    with utvm_deploy.connect("host") as device:
        model = device.load(compiled)  # which finds writes behind the arena
        losses = [model.train_step([x], np.array([0, 2]))[0] for _ in range(3)]
        assert losses[0] > losses[1] > losses[2]
        kept, before = model.weights(), model.state()
        model.train_step([x], np.array([0, 2]))
        model.restore(kept)
        assert model.state()[1:] == before[1:]
        for rate in (float("nan"), float("inf"), -0.1):
            with pytest.raises(UsageError, match=f"rate is {rate}; give a number above 0"):
                model.train([(x, np.array([0, 2]))], rate=rate)
        assert model.state()[1:] == before[1:]
