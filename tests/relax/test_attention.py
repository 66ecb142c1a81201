"""Attention that PyTorch exports: our operators, strips of its scores, and PyTorch's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from host_model import HostModel
from torch.nn import functional
from tvm import relax, tirx
from tvm.relax import op

import utvm_deploy
from utvm_deploy.frontend.relax.from_torch import relax_of_program
from utvm_deploy.frontend.relax.road import relax_graph, relax_model

# TVM is a compiler, too: its passes over a function take tenths of a second.
pytestmark = [pytest.mark.tools, pytest.mark.filterwarnings("ignore")]

#: What products of float32 in another order may differ by.
BOUND = 1e-5
ROWS = 6
CAUSAL = torch.ones(ROWS, ROWS, dtype=torch.bool).tril()
LONE = CAUSAL & torch.tensor([[row != 2] for row in range(ROWS)])  # a row without any score
Of = Callable[[Any, Any, Any], Any]


def scores(q: Any, k: Any) -> Any:
    return q @ k.transpose(-1, -2) / 2.0


def attend(given: Any, v: Any) -> Any:
    return functional.softmax(given, -1) @ v


def fused(**options: Any) -> Of:
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options)


def windowed(q: Any, k: Any, v: Any) -> Any:
    """A bias of each head and then, in another shape, a mask of each window."""
    q, k, v = (one.repeat(1, 2, 1, 1) for one in (q, k, v))
    biased = scores(q, k) + torch.linspace(-1, 1, 4).reshape(1, 4, 1, 1)
    masked = biased.reshape(2, 2, ROWS, ROWS) + torch.linspace(0, 9, 24).reshape(2, 2, 1, ROWS)
    return attend(masked.reshape(1, 4, ROWS, ROWS), v)


ATTENTIONS: dict[str, Of] = {
    "fused": fused(),
    "fused and causal": fused(is_causal=True),
    "fused, with booleans": fused(attn_mask=CAUSAL),
    "fused, with addends": fused(attn_mask=torch.linspace(-3, 2, ROWS).repeat(ROWS, 1)),
    "by hand": lambda q, k, v: attend(scores(q, k), v),
    "an addend": lambda q, k, v: attend(scores(q, k) + torch.full((6, 6), -1e9).triu(1), v),
    "a computed addend": lambda q, k, v: attend(scores(q, k) + v[..., :1], v),
    "subtracted": lambda q, k, v: attend(1.5 - scores(q, k), v),
    "filled": lambda q, k, v: attend(scores(q, k).masked_fill(~CAUSAL, float("-inf")), v),
    "of windows": windowed,
    "of one head": lambda q, k, v: attend(torch.bmm(q[0], k[0].mT) * 0.3, v[0]),
}
OTHERS: dict[str, Of] = {
    "a row without scores": fused(attn_mask=LONE),
    "rows that the input masks": lambda q, k, v: fused(
        attn_mask=(v[..., :1] > 0).expand(1, 2, 6, 6)
    )(q, k, v),
    "another axis": lambda q, k, v: functional.softmax(scores(q, k), -2) @ v,
    "on the right side": lambda q, k, v: v.mT @ functional.softmax(scores(q, k), -1),
    "a function of the scores": lambda q, k, v: attend(scores(q, k).tanh(), v),
    "scores that are read again": lambda q, k, v: attend(scores(q, k), v) + scores(q, k).sum(),
    "no second product": lambda q, k, v: functional.softmax(scores(q, k), -1) + v[..., :1],
    "larger factors": lambda q, k, v: attend(scores(q, k) * v.repeat(2, 1, 1, 1)[..., :1], v),
}


class Together(torch.nn.Module):
    """The same inputs for several functions, whose values are joined."""

    def __init__(self, functions: dict[str, Of]) -> None:
        super().__init__()
        self.functions = list(functions.values())

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        # Equal products would be computed once, for several attentions.
        made = [function(q * i, k, v) for i, function in enumerate(self.functions, 1)]
        return torch.cat([one.reshape(-1) for one in made])


def checked(module: Any, values: tuple[Any, ...], folder: Path) -> Counter[str]:
    """The kinds of a module's operators, whose outputs are PyTorch's."""
    program = torch.export.export(module, values)
    graph = relax_graph(relax_of_program(program), "attention")
    compiled = utvm_deploy.compile(program, board="host")
    (made,) = HostModel(compiled, folder).run([one.numpy() for one in values])
    wanted = module(*values).numpy()
    assert np.abs(np.asarray(made) - wanted).max() <= BOUND * np.abs(wanted).max()
    return Counter(operator.kind for operator in graph.operators)


def drawn(*shape: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(*shape, generator=generator) for _ in range(3))


def test_each_is_two_products_and_a_softmax(tmp_path: Path) -> None:
    kinds = checked(Together(ATTENTIONS), drawn(1, 2, ROWS, 4), tmp_path)
    count = len(ATTENTIONS)
    assert (kinds["BATCH_MATMUL"], kinds["SOFTMAX"]) == (2 * count, count)


def test_what_is_something_else_keeps_its_values(tmp_path: Path) -> None:
    kinds = checked(Together(OTHERS), drawn(1, 2, ROWS, 4), tmp_path)
    assert not {"BATCH_MATMUL", "SOFTMAX"} & {*kinds}


def test_strips_never_hold_all_scores(tmp_path: Path) -> None:
    rows, heads = 48, 4
    module, values = Together({"": fused(is_causal=True)}), drawn(1, heads, rows, 8)
    checked(module, values, tmp_path)
    program, all_scores = torch.export.export(module, values), heads * rows * rows * 4
    compiled = utvm_deploy.compile(program, "mps2_an500", ram_budget=all_scores)
    assert compiled.arena_bytes < all_scores


@pytest.mark.parametrize("is_narrow", [False, True])
def test_a_number_that_is_no_tensor_and_products_of_int8_stay(is_narrow: bool) -> None:
    builder = relax.BlockBuilder()
    q, k, v = (relax.Var(name, relax.TensorType((1, 4, 4), "float32")) for name in "qkv")
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            given = [builder.emit(op.astype(one, "int8")) if is_narrow else one for one in (q, k)]
            made = builder.emit(op.matmul(*given, out_dtype="float32"))
            if not is_narrow:
                made = builder.emit(op.multiply(made, tirx.FloatImm("float32", 0.5)))
            made = op.matmul(builder.emit(op.nn.softmax(made)), v)
            made = builder.emit_output(made)
        builder.emit_func_output(made)
    graph = relax_graph(relax_model(builder.get()), "attention")
    assert {operator.kind for operator in graph.operators} == {"CALL_TIR"}
