"""Modules that write into their buffers, as a cache of attention does: states of the model."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

PLACES, TOKENS, WIDTH, HEADS, SHARED = 8, 12, 16, 4, 2
SIZE = WIDTH // HEADS
STEPS = 64


@pytest.fixture(scope="module", autouse=True)
def with_torchao() -> None:
    """Loaded when these tests run, and not by each process that lists them."""
    pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")


class Step(torch.nn.Module):  # type: ignore[misc, name-defined]
    """One token of a net with rotary positions, grouped queries and a cache of keys and values."""

    def __init__(self, masks: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = torch.nn.Embedding(TOKENS, WIDTH)
        self.query, self.made = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.key, self.value = (torch.nn.Linear(WIDTH, SHARED * SIZE) for _ in range(2))
        with torch.no_grad():
            self.query.weight *= 3
            self.key.weight *= 3
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, SHARED, PLACES, SIZE))
        angles = torch.arange(PLACES)[:, None] / torch.tensor([1.0, 10.0]).repeat(2)[None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("places", torch.arange(PLACES))
        hidden = -1e9 if masks == "table" else -torch.inf
        self.register_buffer("mask", torch.full((PLACES, PLACES), hidden).triu(1))
        self.masks = masks

    def turned(self, x: Any, place: Any) -> Any:
        one, other = x.chunk(2, -1)
        return x * self.cos[place] + torch.cat([-other, one], -1) * self.sin[place]

    def forward(self, token: Any, position: Any) -> Any:
        x = self.table(token)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        query = self.turned(self.query(x).view(1, HEADS, 1, SIZE), position)
        key = self.turned(self.key(x).view(1, SHARED, 1, SIZE), position)
        value = self.value(x).view(1, SHARED, 1, SIZE)
        if self.masks == "fill":
            self.keys.index_copy_(2, position, key)
            self.values.index_copy_(2, position, value)
        else:
            self.keys[:, :, position] = key
            self.values[:, :, position] = value
        grouped = query.view(1, SHARED, HEADS // SHARED, SIZE)
        scores = grouped @ self.keys.transpose(-1, -2) / math.sqrt(SIZE)
        if self.masks == "fill":
            scores = scores.masked_fill(self.places > position, -torch.inf)
        else:
            scores = scores + self.mask[position]
        x = x + self.made((torch.softmax(scores, -1) @ self.values).reshape(1, WIDTH))
        return x @ self.table.weight.T


def steps(count: int = STEPS) -> dict[str, Any]:
    """Tokens and their positions, in order: sequences that fill the cache."""
    rng = np.random.default_rng(4)
    return {
        "token": rng.integers(0, TOKENS, (count, 1)),
        "position": np.arange(count).reshape(-1, 1) % PLACES,
    }


def saved(folder: Path, masks: str) -> Path:
    example = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    path = folder / "step.pt2"
    torch.export.save(torch.export.export(Step(masks).eval(), example), path)
    return path


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_float_steps_are_those_of_pytorch(tmp_path: Path) -> None:
    path = saved(tmp_path, "fill")
    result = utvm_deploy.verify(path, "host", samples=4)
    assert result.ok and result.origin is not None and result.origin.different == 0
    module, data = Step("fill").eval(), steps()
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, device.board))
        for token, position in zip(data["token"], data["position"], strict=True):
            with torch.no_grad():
                wanted = module(torch.from_numpy(token), torch.from_numpy(position))
            assert np.abs(model(token, position) - wanted.numpy()).max() < 1e-5


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = saved(tmp_path_factory.mktemp("steps"), "fill")
        return utvm_deploy.quantize(path, steps(128))


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.spread(1, among=("mps2_an500", "mps2_an385", "qemu_rv32imc"))
def test_integer_steps_are_those_of_the_reference(
    device: Device, quantized: Any, tmp_path: Path
) -> None:
    path, made = tmp_path / "step.tflite", quantized
    made.save(path)
    assert made.float_operators == ()
    (output,) = made.outputs  # the states are none of the outputs that are shown
    assert output.sqnr_db is not None and output.sqnr_db > 20
    compiled = utvm_deploy.compile(path, device.board)
    # The caches stay in place: only a row of each is written.
    assert {one.dtype for one in compiled.states} == {"int8"} and len(compiled.states) == 2
    kinds = [layer.kind for layer in compiled.layers]
    assert kinds.count("DYNAMIC_UPDATE_SLICE") == 2
    assert not {"READ_VARIABLE", "ASSIGN_VARIABLE"} & set(kinds)
    assert utvm_deploy.verify(path, device, samples=STEPS).ok


@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_module_in_memory_and_a_table_of_masks() -> None:
    """Inputs and outputs are float32, and the caches are not; scores have room beside the mask."""
    data = steps(128)
    samples = [tuple(torch.from_numpy(data[name][i]) for name in data) for i in range(128)]
    module = Step("table").eval()
    made = utvm_deploy.quantize(module, data, example_inputs=samples[0])
    # Data of both forms are the same samples; PT2E alone shows it, without a comparison of ways.
    few, plain = {name: values[:16] for name, values in data.items()}, {"equalize": "no"}
    forms = [
        utvm_deploy.quantize(module, one, example_inputs=samples[0], **plain).data
        for one in (few, samples[:16])
    ]
    assert forms[0] == forms[1] != made.data
    assert not module.keys.any()  # the user's module is as it was
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 20
    assert {one.dtype for one in utvm_deploy.compile(made, "host").states} == {"int8"}


def test_what_is_written_to_several_places_is_refused(tmp_path: Path) -> None:
    class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(8, 3))

        def forward(self, x: Any, places: Any) -> Any:
            self.rows[places] = x
            return self.rows.sum(0)

    example = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    torch.export.save(torch.export.export(Two().eval(), example), tmp_path / "two.pt2")
    with pytest.raises(ModelError, match="writes to several places"):
        load_model(tmp_path / "two.pt2")
