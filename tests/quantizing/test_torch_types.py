"""What `utvm inspect` foretells of a .pt2 file is what `utvm quantize` does."""

from __future__ import annotations

from typing import Any

import pytest

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.frontend.torch.calls import operator_kinds
from utvm_deploy.quality.quantizing.facts import Recipe
from utvm_deploy.quality.quantizing.model_steps import float_operators
from utvm_deploy.quality.quantizing.tflite.finishing import finished
from utvm_deploy.quality.quantizing.torch.types import torch_types

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from utvm_deploy.frontend.relax.facts import loaded  # noqa: E402
from utvm_deploy.frontend.torch.export import program_to_tflite, torch_to_model  # noqa: E402
from utvm_deploy.quality.quantizing.torch.module import quantized_program  # noqa: E402

# To load PyTorch takes seconds.
pytestmark = pytest.mark.slow

# A function of ATen -> what is left of it in float32, as int8 and as int16.
KINDS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "square": (lambda x: x**2, (), ()),
    "pow": (lambda x: x**3, ("POW",), ("POW",)),
    "div": (lambda x: x / 3.0, (), ()),
    "reciprocal": (lambda x: 1.0 / (x.abs() + 1.0), ("DIV",), ("DIV",)),
    "log_softmax": (lambda x: x.log_softmax(-1), (), ("LOG_SOFTMAX",)),
    "sqrt": (lambda x: (x.abs() + 1.0).sqrt(), (), ("SQRT",)),
    "sin": (torch.sin, ("SIN",), ("SIN",)),
    "silu": (torch.nn.functional.silu, (), ()),
    "to": (lambda x: x.to(torch.float32), (), ()),
}


class _Net(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer, self.function = torch.nn.Linear(8, 8), function

    def forward(self, x: Any) -> Any:
        return self.function(self.layer(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_the_types_are_those_that_quantize_makes(name: str) -> None:
    function, *left = KINDS[name]
    module, example = _Net(function).eval(), (torch.randn(1, 8),)
    kinds = operator_kinds(torch.export.export(module, example))
    assert kinds[0] == "linear" and name in kinds
    for scheme, expected in zip(("int8", "int16x8"), left, strict=True):
        with torch.no_grad():
            program = quantized_program(torch, module, [example] * 2, example, scheme)
        data, _ = finished(program_to_tflite(program, "net", ""), Recipe(scheme))
        assert tuple(one.kind for one in float_operators(load_bytes(data, "net"))) == expected
        assert (scheme.removesuffix("x8") in torch_types(name)) == (not expected)


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_reach_too_far_are_named() -> None:
    module, example = _Net(lambda x: x * 3e38).eval(), (torch.ones(1, 8),)
    torch.nn.init.ones_(module.layer.weight)
    samples = [(torch.full((1, 8), value),) for value in (-0.9, 0.9)]
    with pytest.raises(ModelError, match="tensor 'mul' of the float model reaches from"):
        quantized_program(torch, module, samples, example, "int8")


def test_a_file_keeps_the_kinds(tmp_path: Any) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(_Net(torch.relu).eval(), (torch.randn(1, 8),)), path)
    assert loaded(torch_to_model(path)).kinds == ("linear", "relu")
