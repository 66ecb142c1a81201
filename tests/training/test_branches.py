"""Training of files whose layers are side by side, and the end of what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.device import Device


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


@pytest.mark.parametrize("layers", [[1], "all"])
def test_each_layer_trains_within_the_arena(
    tmp_path: Path, layers: str | list[int], host: Device
) -> None:
    made = utvm_deploy.trainable(branches(tmp_path / "net.tflite"), layers=layers, rate=0.01)
    compiled = utvm_deploy.compile(made, "host")
    assert compiled.training is not None
    stored = compiled.training.stored
    assert stored.offset + stored.size_bytes <= compiled.arena_bytes
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    model = host.load(compiled)  # which finds writes behind the arena
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
    model.unload()


def test_branches_with_equal_weights_train_apart_as_in_pytorch(host: Device) -> None:
    torch = pytest.importorskip(
        "torch",
        reason="PyTorch is not installed; its installation page has builds for the CPU",
    )
    from training_nets import as_stored, moved, states_of

    class Net(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.zeros, self.others = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)
            self.drawn, self.same = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)
            self.head = torch.nn.Linear(4, 3)
            for parameter in (*self.zeros.parameters(), *self.others.parameters()):
                torch.nn.init.zeros_(parameter)
            self.same.load_state_dict(self.drawn.state_dict())

        def forward(self, x: Any) -> Any:
            first = torch.tanh(self.zeros(x)) + torch.sigmoid(self.others(x))
            return self.head(first + torch.tanh(self.drawn(x)) + torch.sigmoid(self.same(x)))

    torch.manual_seed(3)
    net = Net().eval()
    x, label = torch.linspace(-1, 1, 12).reshape(2, 6), torch.tensor([0, 2])
    made = utvm_deploy.trainable(net, inputs=(x,), layers="all", rate=0.5, name="net")
    names = ["zeros", "others", "drawn", "same", "head"]
    assert [name.rpartition(".")[0] for name in made.weights[::2]] == names
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    model = host.load(utvm_deploy.compile(made, "host"))
    for _ in range(3):
        model.train_step([x.numpy()], label.numpy())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), label).backward()
        optimizer.step()
    found = states_of(model)
    model.unload()
    for name, parameter in moved(made.weights, net).items():
        wanted = as_stored(parameter, found[name].shape)
        assert np.abs(found[name] - wanted).max() < 1e-5, name
    for one, other in (("zeros", "others"), ("drawn", "same")):
        assert (found[f"{one}.weight"] != found[f"{other}.weight"]).any()
