"""Operators that onnxruntime adds for language models, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.onnx.model import load_onnx
from utvm_deploy.frontend.onnx_rewrites.contributed import placed
from utvm_deploy.frontend.onnx_rewrites.pipeline import rewritten, without_composed

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

#: What products of float32 in another order may differ by.
BOUND = 1e-5
HEADS, SHARED, SIZE, PLACES = 4, 2, 16, 6
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def net(
    kind: str,
    inputs: list[Any],
    outputs: list[tuple[int, ...]],
    known: tuple[int, ...] = (),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> tuple[Any, dict[str, Any]]:
    """A model of one operator and what it is run with; inputs at the places ``known`` are fixed."""
    values = {f"i{place}": np.asarray(one) for place, one in enumerate(inputs) if one is not None}
    names = [f"i{place}" if one is not None else "" for place, one in enumerate(inputs)]
    fixed = {f"i{place}" for place in known}
    made = [f"o{place}" if shape else "" for place, shape in enumerate(outputs)]
    node = helper.make_node(kind, names, made, domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in values.items()
            if name not in fixed
        ],
        [
            helper.make_tensor_value_info(f"o{place}", TensorProto.FLOAT, shape)
            for place, shape in enumerate(outputs)
            if shape
        ],
        [numpy_helper.from_array(values[name], name) for name in sorted(fixed)],
    )
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions)
    model.ir_version = 9
    return model, {name: value for name, value in values.items() if name not in fixed}


def grouped(
    rows: int, tokens: int, *, grows: bool = False, is_packed: bool = False, **attributes: Any
) -> tuple[Any, dict[str, Any]]:
    """GroupQueryAttention behind ``tokens - rows`` tokens, with rotary positions."""
    width, narrow = HEADS * SIZE, SHARED * SIZE
    sides = [normal(1, rows, width), normal(1, rows, narrow), normal(1, rows, narrow)]
    if is_packed:
        sides = [np.concatenate(sides, -1), None, None]
    before = tokens - rows if grows else PLACES
    caches = [normal(1, SHARED, before, SIZE) if before else None for _ in range(2)]
    angles = normal(PLACES, SIZE // 2)
    inputs = [*sides, *caches, np.array([tokens - 1], np.int32), np.array(tokens, np.int32)]
    inputs += [np.cos(angles), np.sin(angles)]
    present = (1, SHARED, before + rows if grows else PLACES, SIZE)
    outputs = [(1, rows, width), present, present]
    given = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1, **attributes}
    return net("GroupQueryAttention", inputs, outputs, (6, 7, 8), **given)


def several(rows: int, places: int, before: int = 0, **attributes: Any) -> Any:
    """MultiHeadAttention with a bias, a mask and a cache."""
    width = HEADS * SIZE
    inputs = [normal(1, n, width) for n in (rows, places, places)]
    inputs += [normal(3 * width), None, normal(1, HEADS, rows, places + before)]
    present = (1, HEADS, before + places, SIZE)
    if before:
        inputs += [normal(1, HEADS, before, SIZE) for _ in range(2)]
    outputs = [(1, rows, width), *([present] * 2 if before else [])]
    return net("MultiHeadAttention", inputs, outputs, num_heads=HEADS, **attributes)


def rotary(shape: tuple[int, ...], places: Any, **attributes: Any) -> Any:
    angles = normal(PLACES, attributes.get("rotary_embedding_dim", SIZE) // 2)
    inputs = [normal(*shape), np.asarray(places), np.cos(angles), np.sin(angles)]
    return net("RotaryEmbedding", inputs, [shape], (2, 3), **attributes)


def summed(kind: str, *parameters: Any) -> Any:
    inputs = [normal(1, 3, 8), normal(1, 3, 8), normal(8), *parameters]
    return net(kind, inputs, [(1, 3, 8), (), (), (1, 3, 8)], epsilon=0.01)


CASES = {
    "a step": lambda: grouped(1, 4),
    "the first step": lambda: grouped(1, 1, rotary_interleaved=1),
    "a block behind tokens": lambda: grouped(2, 5, is_packed=True, softcap=2.0),
    "a cache that grows": lambda: grouped(1, 4, grows=True, scale=0.3),
    "a prompt without a cache": lambda: grouped(3, 3, grows=True),
    "heads of their own": lambda: several(3, 5),
    "heads with a cache": lambda: several(2, 2, 3, scale=0.2),
    "earlier places only": lambda: several(4, 4, unidirectional=1),
    "a place for each row": lambda: rotary((1, 2, 16), [[3, 1]], interleaved=1),
    "the first place": lambda: rotary((1, HEADS, 3, SIZE), [2]),
    "a part of each head": lambda: rotary((1, 3, 16), [1], num_heads=2, rotary_embedding_dim=4),
    "simplified": lambda: net(
        "SimplifiedLayerNormalization", [normal(2, 8), normal(8)], [(2, 8)], domain="", axis=-1
    ),
    "a sum": lambda: summed("SkipSimplifiedLayerNormalization", normal(8)),
    "a sum, centred": lambda: summed("SkipLayerNormalization", normal(8), normal(8)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_in_onnxruntime(name: str) -> None:
    model, feed = CASES[name]()
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    load_onnx(Path())
    placed(onnx, model)
    for change in (rewritten, without_composed):
        made = change(onnx, model)
        assert not any(node.domain for node in made.graph.node)
        read = {value.name for value in made.graph.input}
        found = ReferenceEvaluator(made).run(None, {k: v for k, v in feed.items() if k in read})
        for own, other in zip(found, wanted, strict=True):
            # onnxruntime makes places of a cache zeros that hold no token yet.
            counts = other != 0 if own.ndim == 4 else np.ones(own.shape, bool)
            assert np.abs(own - other)[counts].max() < BOUND and counts.any()


def test_what_is_refused() -> None:
    load_onnx(Path())
    for made, said in (
        (grouped(1, 2, smooth_softmax=1), "has smooth_softmax, which is not supported; export it"),
        (rotary((1, 2, 16), [0], scale=2.0), "has scale"),
    ):
        with pytest.raises(UnsupportedOperator, match=said):
            rewritten(onnx, made[0])


@pytest.mark.tools
@pytest.mark.slow
def test_a_step_keeps_its_cache(tmp_path: Path) -> None:
    model, _ = grouped(1, 4)
    path, target, states = (
        tmp_path / "step.onnx",
        tmp_path / "step.tflite",
        {"i3": "o1", "i4": "o2"},
    )
    onnx.save(model, path)
    assert utvm_deploy.verify(path, "host", samples=4, states=states).ok
    data = {
        f"i{place}": normal(60, 1, 1, (HEADS, SHARED, SHARED)[place] * SIZE) for place in range(3)
    }
    data["i5"] = (np.arange(60, dtype=np.int32) % PLACES)[:, None]
    made = utvm_deploy.quantize(path, data, states=states)
    assert all(one.sqnr_db is None or one.sqnr_db > 25 for one in made.outputs)
    made.save(target)
    assert utvm_deploy.verify(target, "host", samples=PLACES, states=states).ok
