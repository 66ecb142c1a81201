"""Rewrites of attention and of rotary positions: products, masks and Softmax.

Heads that share keys and values are rows of one product, so keys and values are not copied. Masks
that are known at import become one constant. A score that does not count gets a huge negative
number. A row without a score that counts gives zeros, as ONNX defines it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.onnx_rewrites.arrays import Array
from utvm_deploy.frontend.onnx_rewrites.state import Rewriting

#: A score that does not count: Softmax makes 0 of it. It would make NaN of a row of infinities.
_HIDDEN = float(np.finfo(np.float32).min)
#: The modes of the output that shows scores, after the first: with softcap, with masks, as shares.
_CAPPED, _MASKED, _SHARES = 1, 2, 3


@dataclass
class _Mask:
    """What is added to scores, and which of them count.

    Each part is known at import, or the name of a tensor. Shapes broadcast to (batch, heads of the
    query, rows, places).
    """

    added: Array = field(default_factory=lambda: np.zeros(1, np.float32))
    counts: Array = field(default_factory=lambda: np.ones(1, np.bool_))
    bias: str = ""
    computed: list[str] = field(default_factory=list)

    def keep(self, counts: Array) -> None:
        """Only these scores count, of those that counted before."""
        if not counts.all():
            self.counts = self.counts & counts


def attention(r: Rewriting) -> bool:
    """ONNX's Attention, of version 23 and above."""
    if int(r.given.get("softmax_precision", 0)) == r.state.onnx.TensorProto.DOUBLE:
        raise UnsupportedOperator(
            f"{r.place} has a softmax_precision of float64; export it without that attribute"
        )
    shared = int(r.given.get("kv_num_heads", 0))
    query = by_head(r, r.input(0), int(r.given.get("q_num_heads", 0)))
    key, value = (by_head(r, r.input(position), shared) for position in (1, 2))
    before = 0
    if r.has(4) != r.has(5):
        raise ModelError(f"{r.place} has only one of past_key and past_value; give both")
    if r.has(4):
        before = r.shape(4)[2]
        key = r.add("Concat", r.input(4), key, axis=2)
        value = r.add("Concat", r.input(5), value, axis=2)
    rows, places = r.shape_of(query)[2], r.shape_of(key)[2]
    mask = _given_mask(r, places)
    _hide_by_place(r, mask, rows, places, before)
    made, shown = _attended(r, query, key, value, mask)
    if len(r.shape(0)) == 3:
        made = r.reshaped(r.add("Transpose", made, perm=[0, 2, 1, 3]), r.output_shape())
    for position, name in enumerate((made, key, value, shown)):
        if r.wants(position):
            r.finish(name, position)
    return True


def by_head(r: Rewriting, name: str, heads: int) -> str:
    """A tensor of rank 3 or 4 as (batch, heads, rows, size)."""
    if len(r.shape_of(name)) == 4:
        return name
    return r.add("Transpose", _heads_apart(r, name, heads), perm=[0, 2, 1, 3])


def _heads_apart(r: Rewriting, name: str, heads: int) -> str:
    """A tensor of rank 3 as (batch, rows, heads, size)."""
    *outer, size = r.shape_of(name)
    if not heads or size % heads:
        raise ModelError(
            f"{r.place} has {heads} heads, which do not divide the last dimension of '{name}', "
            f"{size}; export it with their number"
        )
    return r.reshaped(name, (*outer, heads, size // heads))


def _given_mask(r: Rewriting, places: int) -> _Mask:
    """The input attn_mask; places beyond its last one do not count."""
    if not r.has(3):
        return _Mask()
    name, shape, known, is_boolean = r.input(3), r.shape(3), r.value(3), r.dtype(3).kind == "b"
    missing = places - shape[-1]
    if known is not None:
        ends = [*[(0, 0)] * (known.ndim - 1), (0, missing)]
        known = np.pad(known, ends, constant_values=False if is_boolean else -np.inf)
        counts = known if is_boolean else ~np.isneginf(known)
        mask = _Mask() if is_boolean else _Mask(np.where(counts, known, 0).astype(np.float32))
        mask.keep(counts)
        return mask
    if missing:
        fill = r.constant(np.zeros((*shape[:-1], missing), r.dtype(3)))
        name = r.add("Concat", name, fill, axis=len(shape) - 1)
    mask = _Mask(computed=[name]) if is_boolean else _Mask(bias=name)
    if missing:
        mask.keep(np.arange(places) < shape[-1])
    return mask


def _hide_by_place(r: Rewriting, mask: _Mask, rows: int, places: int, before: int) -> None:
    """Hide places that are outside of a window around a row's own place.

    The rows are the last tokens. An input may say how many these are; places behind hold none.
    """
    # The most places that a row sees to its left and right; -1 for all.
    left, right = (int(r.given.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    right = 0 if int(r.given.get("is_causal", 0)) else right
    known = r.value(6) if r.has(6) else np.array(before + rows)
    # The place of a row is its number, and what is before it: tokens - rows.
    distance = np.arange(places) - np.arange(rows)[:, None] + rows
    limits = [("Less", distance - right - 1)] if right >= 0 else []
    if r.has(6) and right != 0:
        limits.append(("Less", np.arange(places)))
    if left >= 0:
        limits.append(("GreaterOrEqual", distance + left))
    for kind, limit in limits:
        if known is not None:
            tokens = np.reshape(known, (-1, 1, 1, 1))
            mask.keep(limit < tokens if kind == "Less" else limit >= tokens)
        else:
            count = r.reshaped(r.cast(r.input(6), np.int64), (-1, 1, 1, 1))
            mask.computed.append(r.add(kind, r.constant(limit, np.int64), count))


def _attended(r: Rewriting, query: str, key: str, value: str, mask: _Mask) -> tuple[str, str]:
    """What the heads read, (batch, heads, rows, size), and the scores that the last output has."""
    mode = int(r.given.get("qk_matmul_output_mode", 0)) if r.wants(3) else None
    cap, scale = float(r.given.get("softcap", 0)), r.given.get("scale")
    batch, heads, rows, size = r.shape_of(query)
    shared, places = r.shape_of(key)[1:3]
    if heads % shared:
        raise ModelError(f"{r.place} has {heads} heads, which {shared} cannot share")
    grouped, apart = (batch, shared, heads // shared * rows), (batch, heads, rows)
    factor = r.constant(1 / math.sqrt(size) if scale is None else scale, np.float32)
    query = r.reshaped(r.add("Mul", query, factor), (*grouped, size))
    scores = r.add("MatMul", query, r.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = shown = r.reshaped(scores, (*apart, places))
    if cap:
        part, limit = (r.constant(number, np.float32) for number in (1 / cap, cap))
        scores = r.add("Mul", r.add("Tanh", r.add("Mul", scores, part)), limit)
        shown = scores if mode == _CAPPED else shown
    if mode == _MASKED:
        shown = _masked(r, scores, mask, -math.inf)
    shares = r.add("Softmax", _masked(r, scores, mask, _HIDDEN), axis=-1)
    seen = _rows_that_see(r, mask)
    if mode == _SHARES:
        shown = r.add("Mul", shares, seen) if seen else shares
    made = r.add("MatMul", r.reshaped(shares, (*grouped, places)), value)
    made = r.reshaped(made, (*apart, r.shape_of(value)[-1]))
    return (r.add("Mul", made, seen) if seen else made), shown


def _masked(r: Rewriting, scores: str, mask: _Mask, hidden: float) -> str:
    """The scores, of which those that do not count are ``hidden``."""
    conditions, lowest = list(mask.computed), r.constant(hidden, np.float32)
    # What a row without a score that counts reads is made zero below.
    stays = mask.counts | ~mask.counts.any(-1, keepdims=True)
    shows = mask.counts if hidden == -math.inf else stays
    if mask.bias and not mask.counts.all():
        conditions.append(r.constant(shows))
    added = np.where(shows, mask.added, hidden).astype(np.float32)
    bias = mask.bias or (r.constant(added) if added.any() else "")
    if mask.bias and not r.state.is_for_integers:
        bias = r.add("Max", bias, lowest)
    counts = reduce(lambda one, other: r.add("And", one, other), conditions) if conditions else ""
    # A range of scores is fine only if one sum or choice hides them.
    if mask.bias and counts:
        bias = r.add("Where", counts, bias, lowest)
    if bias:
        scores = r.add("Add", scores, bias)
    return r.add("Where", counts, scores, lowest) if counts and not mask.bias else scores


def _rows_that_see(r: Rewriting, mask: _Mask) -> str:
    """1 for each row of which a score counts, else 0; empty if there is one in every row."""
    parts = list(mask.computed)
    if mask.bias and not r.state.is_for_integers:
        parts.append(r.add("GreaterOrEqual", mask.bias, r.constant(_HIDDEN, np.float32)))
    factors = [r.cast(part, np.float32) for part in parts]
    if not (mask.counts if parts else mask.counts.any(-1)).all():
        factors.append(r.constant(mask.counts, np.float32))
    if not factors:
        return ""
    counts = reduce(lambda one, other: r.add("Mul", one, other), factors)
    return r.reduced("ReduceMax", counts, [len(r.shape_of(counts)) - 1])


def rotary_embedding(r: Rewriting) -> str:
    """x * cos + (x with its pairs exchanged) * sin, whose sign is that of the rotation.

    Its inputs have cosines and sines for each place, or for each row if it has no places.
    """
    x, shape, places = r.input(0), r.shape(0), r.input(3)
    is_flat = len(shape) == 3
    if is_flat:
        x = _heads_apart(r, x, int(r.given.get("num_heads", 0)))
    size = r.shape_of(x)[-1]
    turned = int(r.given.get("rotary_embedding_dim", 0)) or size
    if turned % 2:
        raise ModelError(
            f"{r.place} turns {turned} elements of each head, which are not pairs; export it with "
            "an even number"
        )
    half = turned // 2
    is_alternating = bool(int(r.given.get("interleaved", 0)))
    order = np.arange(turned)
    pairs, is_second = (order // 2, order % 2) if is_alternating else (order % half, order // half)
    part = r.part(x, 0, turned, 3) if turned < size else x
    if is_alternating:
        exchanged = r.taken(part, order ^ 1, 3)
    else:
        ends = (r.part(part, half, turned, 3), r.part(part, 0, half, 3))
        exchanged = r.add("Concat", *ends, axis=3)
    signs = r.constant(np.where(is_second, 1, -1), np.float32)
    factors = []
    for cache, is_sine in ((r.input(1), False), (r.input(2), True)):
        wide = r.taken(cache, pairs, len(r.shape_of(cache)) - 1)
        if is_sine:
            wide = r.add("Mul", wide, signs)
        if places:
            wide = r.add("Gather", wide, places, axis=0)
        batch, rows = r.shape_of(wide)[:2]
        along = (batch, rows, 1, turned) if is_flat else (batch, 1, rows, turned)
        factors.append(r.reshaped(wide, along))
    made = r.add("Add", r.add("Mul", part, factors[0]), r.add("Mul", exchanged, factors[1]))
    if turned < size:
        made = r.add("Concat", made, r.part(x, turned, size, 3), axis=3)
    return r.reshaped(made, shape)
