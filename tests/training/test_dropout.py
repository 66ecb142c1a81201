"""Dropout of a train step: masks that NumPy makes, too, and PyTorch's gradients with them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.device import Device
from utvm_deploy.frontend.training.dropout import STEPS

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from torch import nn  # noqa: E402
from training_nets import as_stored, moved, set_weights, states_of  # noqa: E402

SEED, BATCH = 4_000_000_000, 2
#: Some, none, all and half of the elements are dropped.
PROBABILITIES = (0.3, 0.0, 1.0, 0.5)


def mask(
    probability: float, shape: tuple[int, ...], layer: int, step: int, seed: int = SEED
) -> np.ndarray[Any, Any]:
    """The mask of a step, in float32; the first step is 0, and so is the first layer."""
    golden, whole = 0x9E3779B9, 1 << 32

    def hash_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return x ^ (x >> np.uint32(16))

    key = hash_of(np.array([(seed + (layer + 1) * golden) % whole], np.uint32))
    places = np.arange(np.prod(shape), dtype=np.uint32)
    bits = hash_of(hash_of(places + key) + np.uint32(step * golden % whole))
    scale = 1 / (1 - probability) if probability < 1 else 0
    kept = np.where(bits >= min(round(probability * whole), whole - 1), scale, 0)
    return kept.astype(np.float32).reshape(shape)


class Net(nn.Module):
    """Dropouts of channels and of elements; ``masks`` take their place in a comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Conv2d(2, 8, 3)
        self.channels = nn.Dropout2d(0.4)
        self.first = nn.Linear(8 * 4, 12)
        self.elements = nn.Dropout(0.3)
        self.head = nn.Linear(12, 3)
        self.masks: list[Any] | None = None

    def forward(self, x: Any) -> Any:
        drops = [self.channels, self.elements]
        if self.masks is not None:
            drops = [lambda x, mask=one: x * mask for one in self.masks]
        x = drops[0](torch.relu(self.point(x)))
        return self.head(drops[1](torch.tanh(self.first(x.flatten(1)))))


class Quarters(nn.Module):
    """A dropout for each quarter of a layer's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 64)
        self.drops = nn.ModuleList(map(nn.Dropout, PROBABILITIES))

    def forward(self, x: Any) -> Any:
        parts = self.dense(x).chunk(len(PROBABILITIES), -1)
        return torch.cat([drop(one) for drop, one in zip(self.drops, parts, strict=True)], -1)


def masks_of(step: int) -> list[Any]:
    first, second = mask(0.4, (BATCH, 8, 1, 1), 0, step), mask(0.3, (BATCH, 12), 1, step)
    return [torch.from_numpy(one) for one in (first, second)]


def with_step(model: Any, parameters: Any, step: int) -> None:
    set_weights(model, parameters)
    states = model.state()
    states[[one.name for one in model.compiled.states].index(STEPS)] = np.float32(step).tobytes()
    model.set_state(states)


@pytest.mark.slow
@pytest.mark.spread(1, among=("host", "mps2_an500", "mps3_an547"))
def test_masked_gradients_are_those_of_pytorch(device: Device) -> None:
    torch.manual_seed(3)
    net, example = Net(), torch.zeros(BATCH, 2, 4, 4)
    made = utvm_deploy.trainable(
        net, inputs=(example,), layers="all", optimizer="momentum", seed=SEED
    )
    model = device.load(utvm_deploy.compile(made, device.board))
    parameters = moved(made.weights, net)
    rng = np.random.default_rng(0)
    assert not torch.equal(masks_of(0)[1], masks_of(1)[1])
    for step in range(3):
        x = rng.standard_normal(tuple(example.shape)).astype(np.float32)
        label = rng.integers(0, 3, BATCH)
        with_step(model, parameters, step)
        # Without dropout, a run is that of the module in evaluation.
        net.masks = [torch.tensor(1.0)] * 2
        wanted = net(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(model(x), wanted, atol=1e-5)
        loss, _ = model.train_step((x,), label)
        net.masks = masks_of(step)
        net.zero_grad()
        lost = nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(label))
        lost.backward()
        assert loss == pytest.approx(lost.item(), rel=1e-5)
        states = states_of(model)
        assert states[STEPS] == step + 1
        for key, parameter in parameters.items():
            right = as_stored(parameter.grad, states[key].shape)
            off = np.abs(states[f"{key} velocity"] - right).max()
            assert off <= 1e-5 * np.abs(right).max(), key
    with_step(model, parameters, (1 << 24) - 1)
    model.train_step((x,), label)
    assert states_of(model)[STEPS] == 0
    model.unload()


@pytest.mark.slow
def test_masks_of_a_board_have_the_bytes_of_those_of_numpy(tmp_path: Path) -> None:
    net = Quarters().eval()
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    torch.export.save(torch.export.export(net, (torch.zeros(1, 4),)), tmp_path / "net.pt2")
    made = utvm_deploy.trainable(
        tmp_path / "net.pt2", loss="mse", optimizer="momentum", layers="all", rate=1e-30, seed=SEED
    )
    (bias,) = (name for name in made.weights if name.endswith("bias"))
    with utvm_deploy.connect("mps2_an500") as device:
        model = device.load(utvm_deploy.compile(made, device.board))
        before = np.zeros((1, 64), np.float32)
        for step in range(2):
            # The gradient of what the mask makes is 2 * 32 / 64 = 1, so that of the bias is
            # the mask. Momentum adds 0.9 of the one before.
            model.train_step((np.zeros((1, 4), np.float32),), np.full((1, 64), -32, np.float32))
            velocity = states_of(model)[f"{bias} velocity"].reshape(1, 64)
            drawn = [mask(p, (1, 16), layer, step) for layer, p in enumerate(PROBABILITIES)]
            wanted = before * np.float32(0.9) + np.concatenate(drawn, 1)
            assert velocity.tobytes() == wanted.tobytes(), step
            before = velocity


def test_masks_are_fair_and_differ() -> None:
    shape = (64, 64)
    masks = [
        mask(0.3, shape, layer, step, seed) > 0
        for seed, layer, step in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    ]
    for one in masks:
        assert abs(one.mean() - 0.7) < 0.03  # four deviations
    for first, second in itertools.combinations(masks, 2):
        # 0.3^2 + 0.7^2 of the elements are equal where two masks are independent.
        assert abs((first == second).mean() - 0.58) < 0.04
    assert (mask(0.0, shape, 0, 0) == 1).all()
    assert (mask(1.0, shape, 0, 0) == 0).all()
    assert mask(0.5, shape, 0, 0).max() == 2


@pytest.mark.slow
def test_inference_has_the_same_kernels_without_dropouts() -> None:
    parts = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)
    drops = nn.Dropout2d(0.2), nn.Dropout(0.4, inplace=True)
    both = nn.Sequential(parts[0], drops[0], parts[1], drops[1], *parts[2:])
    first, second = (
        utvm_deploy.compile(one.eval(), "host", inputs=(torch.zeros(1, 1, 8, 8),), name="net")
        for one in (nn.Sequential(*parts), both)
    )
    names = [[one.kernel.rpartition("_")[0] for one in made.layers] for made in (first, second)]
    assert names[0] == names[1] and first.arena_bytes == second.arena_bytes


@pytest.mark.slow
def test_dropouts_of_an_onnx_file_train(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        # Exported for inference, a file says so by an input that is false, or has no such input.
        helper.make_node("Dropout", ["a", "ratio"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Dropout", ["c", "ratio", "training"], ["d"]),
        helper.make_node("MatMul", ["d", "u"], ["y"]),
    ]
    shapes = {"w": (4, 6), "v": (6, 5), "u": (5, 3)}
    constants = {name: np.float32(rng.standard_normal(shape)) for name, shape in shapes.items()}
    constants |= {"ratio": np.float32(0.25), "training": np.array(False)}
    initializers = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        initializers,
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    made = utvm_deploy.trainable(path, layers="all")
    assert STEPS in {made.graph.tensors[found].name for found, _ in made.graph.states}
    masks = [one for one in made.graph.operators if "mask" in getattr(one.attributes, "name", "")]
    assert len(masks) == 2
    with pytest.raises(UsageError, match="seed is -1; give a number from 0"):
        utvm_deploy.trainable(path, seed=-1)
