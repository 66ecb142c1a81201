"""What a train step keeps in the arena, and what it computes again within a budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.budgets import OverBudget
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device
from utvm_deploy.graph.attributes import Reshape
from utvm_deploy.graph.model import Graph, Operator, Tensor, Training
from utvm_deploy.graph.recomputing import kept_activations, recomputed

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from torch import nn  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learner() -> Any:
    """A net whose first activations are large, and that trains as a whole."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8)),
        *(nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 64, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)),
    )
    return utvm_deploy.trainable(
        net.eval(), inputs=(torch.zeros(1, 1, 8, 8),), layers="all", rate=0.1, name="net"
    )


def name_of(operator: Any) -> str:
    return str(getattr(operator.attributes, "name", ""))


def test_no_gradient_of_weights_is_whole_and_nothing_is_transposed(learner: Any) -> None:
    assert not [one for one in learner.graph.operators if "transpose" in name_of(one)]
    compiled = utvm_deploy.compile(learner, "host")
    weights = max(one.size_bytes for one in compiled.states[1:])
    assert weights == 4 * 64 * 8 * 4 * 4
    assert max(one.size_bytes for one in compiled.memory if one.kind == "activation") < weights


def test_an_output_takes_the_place_of_an_input(learner: Any) -> None:
    # Masks of ReLUs look at what the next layer keeps, and gradients write onto it.
    names = [name_of(one) for one in learner.graph.operators]
    masked = [i for i, name in enumerate(names) if "conv2d_image" in name and "where" in name]
    assert len(masked) == 2
    assert all(learner.graph.operators[i].attributes.in_place for i in masked)


def trained(model: CompiledModel, host: Device) -> list[bytes]:
    """The weights after each of three steps."""
    loaded, rng, found = host.load(model), np.random.default_rng(5), []
    for label in range(3):
        loaded.train_step((rng.standard_normal((1, 1, 8, 8)).astype(np.float32),), [label])
        found.append(loaded.weights())
    loaded.unload()
    return found


def test_within_a_budget_activations_are_computed_again_to_the_same_bytes(
    learner: Any, host: Device
) -> None:
    kept = utvm_deploy.compile(learner, "host")
    with pytest.raises(CompileError, match="the least possible arena has") as refused:
        utvm_deploy.compile(learner, "host", ram_budget=100)
    assert isinstance(refused.value, OverBudget)
    least = refused.value.least_bytes
    assert least < 0.97 * kept.arena_bytes
    model = utvm_deploy.compile(learner, "host", ram_budget=least)
    assert model.arena_bytes <= least
    assert model.tradeoff is not None and model.tradeoff.recomputed > 0
    assert f"computed again for gradients: {model.tradeoff.recomputed}." in model.tradeoff.text
    whole, *others = model.tradeoff.weighed
    assert (whole.recomputed, whole.cycles) == (0, None) and whole.arena_bytes > least
    taken = model.tradeoff.recomputed, model.tradeoff.streamed, model.arena_bytes
    assert taken in [(one.recomputed, one.streamed, one.arena_bytes) for one in others]
    assert len(model.layers) > len(kept.layers)
    assert trained(model, host) == trained(kept, host)


def test_what_is_computed_again_has_the_same_mask(host: Device) -> None:
    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.Dropout(0.5), nn.Conv2d(8, 4, 3, padding=1)),
        *(nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(16, 3)),
    )
    made = utvm_deploy.trainable(
        net.eval(), inputs=(torch.zeros(1, 1, 8, 8),), layers="all", rate=0.1, name="net"
    )
    operators = made.graph.operators
    masks = {one.outputs[0] for one in operators if "dropout_mask" in name_of(one)}
    kept = kept_activations(made.graph)
    chosen = {n for one in kept for n in one.tensors if masks & {*one.operator.inputs}}
    again = recomputed(made.graph, chosen)
    assert chosen and again is not None
    assert len(again.operators) > len(operators)
    models = [utvm_deploy.compile(replace(made, graph=one), "host") for one in (made.graph, again)]
    first, second = (trained(model, host) for model in models)
    assert first == second


def test_nothing_is_computed_again_from_a_weight_that_has_changed() -> None:
    tensors = tuple(Tensor(str(number), (4,), "float32") for number in range(7))
    x, weight, y, loss, new, gradient, other = range(7)

    def operator(inputs: tuple[int, ...], output: int) -> Operator:
        return Operator("ADD", inputs, (output,), Reshape(), ())

    forward = (operator((x, weight), y), operator((y, x), loss))
    update, use = operator((weight, loss), new), operator((y, loss), gradient)
    of = {"outputs": (loss,), "states": ((weight, new),), "training": Training(0, None)}
    for rest, is_possible in (((update, use), False), ((use, update), True)):
        operators = (*forward, *rest, operator((gradient, gradient), other))
        graph = Graph("g", tensors, operators, (x,), digest="", **of)  # type: ignore[arg-type]
        assert [one.tensors for one in kept_activations(graph)] == [(y,)]
        made = recomputed(graph, {y})
        assert (made is not None) == is_possible
    assert made is not None
    again = made.operators[2]
    assert again.inputs == (x, weight) and made.operators[3].inputs == (again.outputs[0], loss)
