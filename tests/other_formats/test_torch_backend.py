"""The backend of torch.compile computes what eager computes, whatever a model does besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy.device import Device

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from utvm_deploy.torch.backend import backend  # noqa: E402

# To load PyTorch takes seconds.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    with utvm_deploy.connect("host") as device:
        yield device


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A linear layer, and what a test does to its inputs or outputs."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(4))
        self._forward = forward

    def forward(self, *arguments: Any) -> Any:
        return self._forward(self, *arguments)


def _compiled(module: Any, device: Device) -> Any:
    return torch.compile(module, backend=backend, options={"device": device})


def _counts(self: Any, x: Any) -> Any:
    self.calls.add_(1)
    return self.linear(x) + self.calls


def _writes_into_its_input(self: Any, x: Any) -> Any:
    x.add_(1)
    return self.linear(x)


def _trains(self: Any, x: Any) -> Any:
    return self.norm(self.linear(x))


def _depends_on_the_last_row(self: Any, x: Any) -> Any:
    y = self.linear(x)
    return y - y[-1:]


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("forward", "rows"),
    [
        (_counts, 1),
        (_writes_into_its_input, 1),
        (_writes_into_its_input, 3),
        (_trains, 3),
        (_depends_on_the_last_row, 3),
    ],
)
def test_side_effects_and_batches_equal_eager(
    forward: Callable[..., Any], rows: int, host: Device
) -> None:
    module = Layer(forward)
    module.train(forward is _trains)
    eager = deepcopy(module)
    compiled = _compiled(module, host)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(rows, 4)
            y = x.clone()
            torch.testing.assert_close(compiled(x), eager(y), atol=1e-5, rtol=1e-4)
            assert torch.equal(x, y)
            for one, other in zip(module.buffers(), eager.buffers(), strict=True):
                assert torch.equal(one, other)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_other_weights_are_loaded(host: Device) -> None:
    module = Layer(lambda self, x: self.linear(x)).eval()
    compiled = _compiled(module, host)
    x = torch.randn(1, 4)
    with torch.no_grad():
        for change in (lambda: None, lambda: module.linear.weight.mul_(2)):
            change()
            for _ in range(2):
                torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-4)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_numbers_are_those_of_the_call(host: Device) -> None:
    module = Layer(lambda self, x, n: self.linear(x) * n).eval()
    compiled = _compiled(module, host)
    x = torch.randn(1, 4)
    with torch.no_grad():
        # From the second value on, Dynamo gives the number as an argument.
        for number in (2, 3, 3, 4, 3):
            torch.testing.assert_close(compiled(x, number), module(x, number), atol=1e-5, rtol=1e-4)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_dropout_in_training_drops(host: Device) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 200), torch.nn.Dropout(0.5)).train()
    compiled = _compiled(module, host)
    with torch.no_grad():
        for _ in range(3):
            share = float((compiled(torch.randn(1, 4)) == 0).float().mean())
            assert 0.3 < share < 0.7
