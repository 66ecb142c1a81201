"""Operators of PyTorch in terms of those that have integer kernels.

Norms, attention and recurrent layers become sums, products, means and a few functions. It happens
before quantization, so that each step in between gets its own scale.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from utvm_deploy.frontend.torch.export import with_rows_of

#: What is added to a score that does not count: the range of scores leaves it out. Along another
#: dimension than the last, the range has it: -32 has a share of 0 in 16 bits.
HIDDEN, _HIDDEN_ALONG_OTHERS = -1000.0, -32.0
#: Operators that only move what hides, or that add or choose.
_PASSING = frozenset(
    (
        *("add", "where", "masked_fill", "index", "index_select", "embedding", "view", "reshape"),
        *("slice", "select", "expand", "unsqueeze", "squeeze", "permute", "transpose", "clone"),
    )
)


def decomposed(module: Any, example: tuple[Any, ...], scheme: str) -> Any:
    """The ``GraphModule`` without composite operators, and with constants computed."""
    import torch

    program = torch.export.export(module, example)
    made = program.run_decompositions(_table(scheme)).module(check_guards=False)
    _fold_constants(made)
    return made


def _table(scheme: str) -> dict[Any, Callable[..., Any]]:
    import torch

    aten = torch.ops.aten
    table: dict[Any, Callable[..., Any]] = {
        aten._native_batch_norm_legit_no_training.default: _native_batch_norm,
        aten.div.Tensor: lambda x, by: (
            x * (by.reciprocal() if hasattr(by, "reciprocal") else 1 / by)
        ),
        aten.elu.default: _elu,
        aten.hardsigmoid.default: _hard_sigmoid,
        aten.glu.default: _glu,
        aten.group_norm.default: _group_norm,
        aten.instance_norm.default: _instance_norm,
        aten.layer_norm.default: _layer_norm,
        aten.max.default: lambda x: x.amax(),
        aten.max.dim: lambda x, dim, keepdim=False: (x.amax(dim, keepdim), x.argmax(dim, keepdim)),
        aten.mish.default: lambda x: x * _softplus(x).tanh(),
        aten.pow.Tensor_Scalar: lambda x, power: x * x if power == 2 else NotImplemented,
        aten.rms_norm.default: _rms_norm,
        aten.roll.default: _roll,
        aten.scaled_dot_product_attention.default: _attention,
        aten.select.int: _select,
        aten.silu.default: lambda x: x * x.sigmoid(),
        aten.softplus.default: _softplus,
        aten.square.default: lambda x: x * x,
        aten.stack.default: lambda some, dim=0: torch.cat([x.unsqueeze(dim) for x in some], dim),
        aten.unbind.int: lambda x, dim=0: [_select(x, dim, n) for n in range(x.shape[dim])],
    }
    if scheme != "int8":
        table[aten.hardswish.default] = lambda x: x * _hard_sigmoid(x)
    theirs = torch.export.default_decompositions()
    names = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input", "einsum.default")
    for name in names:
        layer = operator.attrgetter(name)(aten)
        if layer in theirs:
            table[layer] = theirs[layer]
    return table


def _fold_constants(model: Any) -> None:
    """Compute what depends on constants only, such as masks and the factors of a batch norm."""
    import torch

    known: dict[Any, Any] = {}
    for node in model.graph.nodes:
        if node.op == "get_attr":
            known[node] = operator.attrgetter(node.target)(model)
        elif node.op == "call_function" and all(n in known for n in node.all_input_nodes):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            with torch.no_grad():
                known[node] = node.target(*args, **kwargs)
    for number, (node, value) in enumerate(known.items()):
        is_used = any(user not in known for user in node.users)
        if not is_used or not isinstance(value, torch.Tensor):
            continue
        least = least_of(node, known)
        if least is not None and bool((value < least).any()):
            value = value.clamp(min=least)
        elif node.op != "call_function":
            continue
        name = f"folded_{number}"
        model.register_buffer(name, value.detach().clone().contiguous())
        with model.graph.inserting_before(node):
            constant = model.graph.get_attr(name)
        constant.meta["val"] = node.meta.get("val")
        node.replace_all_uses_with(constant)
    model.graph.eliminate_dead_code()
    model.recompile()


def least_of(node: Any, known: Any) -> float | None:
    """The least that a constant needs to hold, as only softmax takes it; None for any other."""
    least = HIDDEN
    for user in (user for user in node.users if user not in known):
        kind = _kind(user)
        found = least_of(user, ()) if kind in _PASSING and user.users else None
        if "softmax" in kind:
            is_last = user.args[1] in (-1, user.meta["val"].dim() - 1)
            found = HIDDEN if is_last else _HIDDEN_ALONG_OTHERS
        if found is None:
            return None
        least = max(least, found)
    return least


def _kind(node: Any) -> str:
    return str(node.target).removeprefix("aten.").partition(".")[0]


def _normalized(x: Any, axes: Sequence[int], eps: float, *, is_centred: bool = True) -> Any:
    centred = x - x.mean(list(axes), keepdim=True) if is_centred else x
    variance = (centred * centred).mean(list(axes), keepdim=True)
    return centred * (variance + eps).rsqrt()


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _native_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """As PyTorch has it: with two more results, which nothing reads at inference."""
    unused = x.new_empty((0,))
    return _batch_norm(x, weight, bias, mean, variance, eps), unused, unused


def _batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    eps: float,
) -> Any:
    factor = (variance + eps).rsqrt()
    if weight is not None:
        factor = factor * weight
    shift = -mean * factor
    if bias is not None:
        shift = shift + bias
    return _scaled(x, _by_channel(factor, x), _by_channel(shift, x))


def _layer_norm(
    x: Any,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    axes = range(-len(shape), 0)
    return _scaled(_normalized(x, axes, eps), weight, bias)


def _rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: Any = None) -> Any:
    import torch

    least = torch.finfo(x.dtype).eps if eps is None else eps
    axes = range(-len(shape), 0)
    return _scaled(_normalized(x, axes, least, is_centred=False), weight, None)


def _group_norm(
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    rows = x.reshape(x.shape[0], groups, -1)
    made = _normalized(rows, (-1,), eps).reshape(x.shape)
    return _scaled(made, *(_by_channel(part, x) for part in (weight, bias)))


def _instance_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Any:
    if use_input_stats:
        parts = (_by_channel(part, x) for part in (weight, bias))
        return _scaled(_normalized(x, range(2, x.ndim), eps), *parts)
    return _batch_norm(x, weight, bias, mean, variance, eps)


def _by_channel(values: Any, x: Any) -> Any:
    return None if values is None else values.reshape(-1, *[1] * (x.ndim - 2))


def _attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    import torch

    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if is_causal:
        rows, columns = query.shape[-2], key.shape[-2]
        mask = torch.ones(rows, columns).triu(1) * HIDDEN
    elif mask is not None and mask.dtype == torch.bool:
        mask = (~mask).to(query.dtype) * HIDDEN  # true elements take part
    scores = torch.matmul(with_rows_of(query * factor, key), key.transpose(-2, -1))
    if enable_gqa:
        scores = scores.reshape(*query.shape[:-1], key.shape[-2])
    if mask is not None:
        scores = scores + mask
    made = torch.matmul(with_rows_of(torch.softmax(scores, -1), value), value)
    return made.reshape(*query.shape[:-1], value.shape[-1]) if enable_gqa else made


def _glu(x: Any, dim: int = -1) -> Any:
    size = x.shape[dim] // 2
    return x.narrow(dim, 0, size) * x.narrow(dim, size, size).sigmoid()


def _roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    import torch

    if not dims:  # as one row
        return _roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        if first := shift % size:
            parts = x.narrow(dim, size - first, first), x.narrow(dim, 0, size - first)
            x = torch.cat(parts, dim)
    return x


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    below = ((-x).relu() * -input_scale).exp() - 1.0
    return x.relu() * scale + below * (alpha * scale)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = x if beta == 1 else x * beta
    made = scaled.relu() + ((-scaled.abs()).exp() + 1.0).log()
    return made if beta == 1 else made * (1 / beta)


def _hard_sigmoid(x: Any) -> Any:
    return (x + 3.0).clamp(0.0, 6.0) * (1 / 6)


def _select(x: Any, dim: int, index: int) -> Any:
    index %= x.shape[dim]
    return x.narrow(dim, index, 1).squeeze(dim)
