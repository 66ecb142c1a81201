"""Operators of onnxruntime's own domain that exporters of language models write, as ONNX's.

GroupQueryAttention, for example, is RotaryEmbedding, TensorScatter and Attention. Their definition
is docs/ContribOperators.md of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator, last_words
from utvm_deploy.frontend.onnx_rewrites.attention import by_head
from utvm_deploy.frontend.onnx_rewrites.known_values import shape_of
from utvm_deploy.frontend.onnx_rewrites.state import STANDARD, Rewriting

DOMAIN = "com.microsoft"
#: onnxruntime's operator that it has in ONNX's domain, which ONNX does not know.
_MISPLACED = "SimplifiedLayerNormalization"
#: The version of ONNX's operators that the rewrites use.
_VERSION = 24


def placed(onnx: Any, proto: Any) -> None:
    """Give each operator of onnxruntime its domain, in place; onnx checks no others."""
    found = [n for n in proto.graph.node if n.op_type == _MISPLACED and n.domain in STANDARD]
    for node in found:
        node.domain = DOMAIN
    if found and not any(one.domain == DOMAIN for one in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))


def with_rewritable_version(onnx: Any, proto: Any) -> Any:
    """The model in a version of ONNX's operators that the rewrites can use."""
    version = max((one.version for one in proto.opset_import if one.domain in STANDARD), default=1)
    if version >= _VERSION:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, _VERSION)
    except Exception as exc:  # of many classes
        raise ModelError(
            f"onnx cannot convert the model from version {version} of ONNX's operators to "
            f"{_VERSION} ({last_words(exc)}); export it with opset {_VERSION}"
        ) from exc


def _refuse(r: Rewriting, inputs: Mapping[int, str], **attributes: object) -> None:
    """Raise UnsupportedOperator for inputs, and for attributes with other values than these."""
    found = [name for place, name in inputs.items() if r.has(place)]
    found += [name for name, value in attributes.items() if r.given.get(name, value) != value]
    if found:
        raise UnsupportedOperator(
            f"{r.place} has {', '.join(found)}, which is not supported; export it without, or as "
            "ONNX's Attention (opset 23 and above)"
        )


def simplified_normalization(r: Rewriting) -> str:
    return r.add("RMSNormalization", r.input(0), r.input(1), **r.given)


def normalization_of_sum(r: Rewriting) -> bool:
    """The normalization of a sum of two tensors and a bias; the sum is an output, too."""
    is_centred = r.kind == "SkipLayerNormalization"
    kind, bias = ("LayerNormalization", 4) if is_centred else ("RMSNormalization", 3)
    total = r.add("Add", r.input(0), r.input(1))
    if r.has(bias):
        total = r.add("Add", total, r.input(bias))
    parameters = r.input(2), *([r.input(3)] if is_centred and r.has(3) else [])
    # onnxruntime's default, where ONNX has 1e-5, too.
    r.finish(r.add(kind, total, *parameters, axis=-1, epsilon=r.given.get("epsilon", 1e-12)))
    if r.wants(3):
        r.finish(total, 3)
    return True


def rotary_embedding(r: Rewriting) -> str:
    """Rotary positions, with the places of the rows or that of the first one."""
    _refuse(r, {}, scale=1.0, is_packed_batching=0)
    shape, names = r.shape(0), ("interleaved", "rotary_embedding_dim", "num_heads")
    given, places = {name: int(r.given.get(name, 0)) for name in names}, r.input(1)
    if len(shape) == 3 and not given["num_heads"]:
        given["num_heads"] = shape[-1] // (2 * r.shape(2)[-1])
    if len(r.shape(1)) == 1:
        places = _behind(r, places, (shape[0], shape[-2]))
    return r.add("RotaryEmbedding", r.input(0), r.input(2), r.input(3), places, **given)


def _behind(r: Rewriting, first: str, extents: tuple[int, int]) -> str:
    """The places of (batch, rows), which begin at the first one."""
    rows = r.constant(np.arange(extents[1])[None], np.int64)
    start = r.reshaped(r.cast(first, np.int64), (-1, 1))
    return r.expanded(r.add("Add", start, rows), extents)


def group_query_attention(r: Rewriting) -> bool:
    """Rotary positions, an update of the cache behind the tokens before, and attention.

    A cache of a fixed length is written at the place of each row. One whose output is longer by the
    new rows grows.
    """
    inputs = {11: "head_sink", 12: "k_scale", 14: "q_norm_weight", 16: "query_seqlens"}
    ways = dict.fromkeys(("smooth_softmax", "qk_output", "sliding_window_cache"), 0)
    _refuse(r, inputs, **ways, causal=1, local_window_size=-1)
    heads, shared = (int(r.given[name]) for name in ("num_heads", "kv_num_heads"))
    (batch, rows, width), query, key, value = r.shape(0), *(r.input(place) for place in range(3))
    if not key:
        size = width // (heads + 2 * shared)
        ends = [0, heads * size, (heads + shared) * size, width]
        query, key, value = (r.part(query, a, b, 2) for a, b in pairwise(ends))
    before = r.shape(3)[2] if r.has(3) else 0
    made = {value.name: shape_of(value) for value in r.state.proto.graph.output}
    present = made.get(r.node.output[1]) if r.wants(1) else None
    is_fixed = before > 0 and (present is None or present[2] == before)
    first = r.constant([before] * batch, np.int64)
    if is_fixed:
        # Rows of a prompt begin at place 0, also if the last ones hold no token.
        first = r.reshaped(r.cast(r.input(5), np.int64), (batch,))
        if rows > 1:
            behind, none = (r.constant(one, np.int64) for one in (rows - 1, 0))
            first = r.add("Max", r.add("Sub", first, behind), none)
    tokens = r.add("Add", first, r.constant(rows, np.int64))
    if int(r.given.get("do_rotary", 0)):
        places = r.input(9) if r.has(9) else _behind(r, first, (batch, rows))
        more, order = (r.input(7), r.input(8), places), int(r.given.get("rotary_interleaved", 0))
        query, key = (
            r.add("RotaryEmbedding", side, *more, interleaved=order, num_heads=count)
            for side, count in ((query, heads), (key, shared))
        )
    sides = [by_head(r, one, n) for one, n in ((query, heads), (key, shared), (value, shared))]
    cached = [r.input(3), r.input(4)] if before else []
    if is_fixed:
        for place, cache in enumerate(cached, 1):
            sides[place] = r.add("TensorScatter", cache, sides[place], first, axis=-2)
        return _attention(r, sides, r.input(10), ["", "", tokens], is_causal=1)
    return _attention(r, sides, r.input(10), cached, is_causal=1)


def multi_head_attention(r: Rewriting) -> bool:
    """Attention of rows of all heads, with a bias of each side, and a mask."""
    ways = {4: "key_padding_mask", 8: "past_sequence_length", 9: "cache_indirection"}
    _refuse(r, {**ways, **({} if r.has(1) and r.has(2) else {0: "sides in one tensor"})})
    heads, sides = int(r.given["num_heads"]), [r.input(place) for place in range(3)]
    if r.has(3):
        ends = np.cumsum([0, *(r.shape_of(side)[-1] for side in sides)]).tolist()
        parts = [r.part(r.input(3), a, b, 0) for a, b in pairwise(ends)]
        sides = [r.add("Add", side, part) for side, part in zip(sides, parts, strict=True)]
    sides = [by_head(r, side, heads) for side in sides]
    cached = [r.input(6), r.input(7)] if r.has(6) else []
    is_causal = int(r.given.get("unidirectional", 0))
    return _attention(r, sides, r.input(5), cached, is_causal=is_causal)


def _attention(
    r: Rewriting, sides: Sequence[str], mask: str, cached: Sequence[str], *, is_causal: int
) -> bool:
    """ONNX's Attention of (batch, heads, rows, size), whose output has the heads in each row.

    ``cached`` are its inputs behind the mask. The other outputs are keys and values, with those of
    a cache that grows.
    """
    given = {"is_causal": is_causal, "softcap": float(r.given.get("softcap", 0))}
    # onnxruntime's scale of 0 is the default, as none is.
    given |= {"scale": r.given["scale"]} if r.given.get("scale") else {}
    grows = bool(cached) and bool(cached[0])
    made, *grown = r.several("Attention", 3 if grows else 1, *sides, mask, *cached, **given)
    batch, heads, rows, size = r.shape_of(made)
    turned = r.add("Transpose", made, perm=[0, 2, 1, 3])
    r.finish(r.reshaped(turned, (batch, rows, heads * size)))
    for place, name in enumerate(grown or sides[1:], 1):
        if r.wants(place):
            r.finish(name, place)
    return True


#: Operator -> rewrite, all of DOMAIN.
CONTRIBUTED: Mapping[str, Callable[[Rewriting], str | bool]] = {
    "GroupQueryAttention": group_query_attention,
    "MultiHeadAttention": multi_head_attention,
    "RotaryEmbedding": rotary_embedding,
    "SimplifiedLayerNormalization": simplified_normalization,
    "SkipLayerNormalization": normalization_of_sum,
    "SkipSimplifiedLayerNormalization": normalization_of_sum,
}
