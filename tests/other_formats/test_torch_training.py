"""PyTorch programs that train are refused; buffers that a program changes are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from utvm_deploy.frontend.relax.torch_evaluation import (  # noqa: E402
    check_evaluation,
    written_buffers,
)

# To load PyTorch takes seconds.
pytestmark = pytest.mark.slow


class _Counts(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.calls[1:].add_(1)
        return x + self.calls


class _Attends(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


TRAINING: dict[str, tuple[Callable[[], Any], str]] = {
    "dropout": (lambda: torch.nn.Dropout(0.5).train(), "'dropout' drops elements"),
    "attention": (_Attends, "drops elements"),
    "batch_norm": (lambda: torch.nn.BatchNorm1d(4).train(), "'batch_norm' computes the statistics"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRAINING)
def test_programs_that_train_are_refused(name: str) -> None:
    make, told = TRAINING[name]
    program = torch.export.export(make(), (torch.randn(2, 4, 4),))
    with pytest.raises(ModelError, match=told):
        check_evaluation(program)


@pytest.mark.filterwarnings("ignore")
def test_buffers_that_are_written_are_found() -> None:
    program = torch.export.export(_Counts().eval(), (torch.randn(2, 4, 4),))
    assert set(written_buffers(program)) == {"calls"}
    assert written_buffers(program.run_decompositions({})) == ["calls"]


def test_programs_in_evaluation_are_allowed() -> None:
    layers = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)).eval()
    check_evaluation(torch.export.export(layers, (torch.randn(2, 4),)))
    norm = torch.nn.BatchNorm1d(4, track_running_stats=False).eval()
    program = torch.export.export(norm, (torch.randn(2, 4),))
    check_evaluation(program)
    with pytest.raises(ModelError, match="has no running statistics"):
        check_evaluation(program, is_quantized=True)


def test_the_roads_check_it() -> None:
    program = torch.export.export(torch.nn.Dropout(0.5).train(), (torch.randn(2, 4),))
    with pytest.raises(ModelError, match="drops elements"):
        utvm_deploy.compile(program, "host")
