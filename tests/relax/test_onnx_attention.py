"""Attention and rotary positions as ONNX has them since version 23, against ONNX's reference."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.onnx.model import load_onnx
from utvm_deploy.frontend.onnx_rewrites.pipeline import rewritten, without_composed

pytestmark = pytest.mark.filterwarnings("ignore")

#: What products of float32 in another order may differ by.
BOUND = 1e-5
SEEDS, MORE_SEEDS = 60, 1_000


@dataclass
class Net:
    """A model under construction; inputs have the values that it is run with."""

    seed: int
    opset: int = 24
    nodes: list[Any] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance, self.rng = random.Random(self.seed), np.random.default_rng(self.seed)

    def normal(self, *shape: int) -> Any:
        """Random values of float32."""
        return self.rng.normal(size=shape).astype(np.float32)

    def given(self, name: str, value: Any, *, is_constant: bool | None = None) -> str:
        """A tensor that is an input or a constant; one of both if it is not said."""
        is_constant = self.chance.random() < 0.4 if is_constant is None else is_constant
        (self.constants if is_constant else self.inputs)[name] = np.asarray(value)
        return name

    def add(self, kind: str, inputs: list[str], made: list[str], **attributes: Any) -> str:
        """An operator; its first output."""
        self.nodes.append(helper.make_node(kind, inputs, made, **attributes))
        return made[0]

    def model(self) -> Any:
        """The model; ONNX infers the shapes of what it makes."""
        ends = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in self.inputs.items()
        ]
        made = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs
        ]
        known = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "net", ends, made, known)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 11
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
        for one, shape in zip(graph.output, inferred, strict=True):
            one.CopyFrom(shape)
        del model.graph.output[:]
        model.graph.output.extend(inferred)
        return model


def attention(seed: int) -> Net:
    """Rotary positions, then Attention, with drawn heads, masks, caches and outputs."""
    net = Net(seed, opset=random.Random(seed).choice([23, 24, 24, 25]))
    one, chance = net.chance.choice, net.chance
    batch, rows, shared, size = one([1, 1, 2]), one([1, 3, 5]), one([1, 2]), one([2, 4, 6])
    heads, width = shared * one([1, 2, 3]), one([2, 4])
    is_flat, before = chance.random() < 0.5, one([0, 0, 3])
    own = rows if chance.random() < 0.7 else rows + 2
    has_tokens = net.opset > 23 and not before and chance.random() < 0.4
    places = before + own

    def rows_of(name: str, count: int, heads: int, size: int) -> str:
        shape = (batch, count, heads * size) if is_flat else (batch, heads, count, size)
        return net.given(name, net.normal(*shape), is_constant=False)

    query, key = rows_of("q", rows, heads, size), rows_of("k", own, shared, size)
    value = rows_of("v", own, shared, width)
    if chance.random() < 0.5:
        query = _rotary(net, query, batch, rows, heads if is_flat else 0, size)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": shared} if is_flat else {}
    for name, values in (
        ("is_causal", [0, 1]),
        ("softcap", [0.0, 0.0, 2.0]),
        ("scale", [None, 0.3]),
    ):
        if (drawn := one(values)) is not None:
            attributes[name] = drawn
    if net.opset > 24:
        attributes |= {"left_window_size": one([-1, 1]), "right_window_size": one([-1, 0, 2])}
    inputs = [query, key, value, _mask(net, batch, heads, rows, places)]
    if before:
        for name, last in (("past_k", size), ("past_v", width)):
            past = net.normal(batch, shared, before, last)
            inputs.append(net.given(name, past, is_constant=False))
    elif has_tokens:
        inputs += ["", "", net.given("tokens", net.rng.integers(0, places + 1, batch))]
    net.outputs = ["y", *(["present_k", "present_v"] if before else [])]
    made = [*net.outputs, *([] if before else ["", ""])]
    if chance.random() < 0.3 and not has_tokens:
        # The reference shows scores with softcap for those without, which its text has.
        attributes["qk_matmul_output_mode"] = one(
            [1, 2, 3, 0][: 3 + (not attributes.get("softcap"))]
        )
        made.append("shown")
        net.outputs.append("shown")
    while not inputs[-1]:
        inputs.pop()
    net.add("Attention", inputs, made if made[-1] else ["y"], **attributes)
    return net


def _mask(net: Net, batch: int, heads: int, rows: int, places: int) -> str:
    kind, one = net.chance.choice(["", "bool", "float", "infinite"]), net.chance.choice
    if not kind:
        return ""
    if net.opset > 23:
        places -= one([0, 0, 1]) if places > 1 else 0
    shape = one([(rows, places), (1, 1, rows, places), (batch, one([1, heads]), rows, places)])
    counts = net.rng.random(shape) < 0.6  # some rows have none
    if kind == "bool":
        return net.given("mask", counts)
    hidden = -np.inf if kind == "infinite" else net.chance.choice([-1e4, -65504.0, -1e9])
    return net.given("mask", np.where(counts, net.normal(*shape), np.float32(hidden)))


def _rotary(net: Net, x: str, batch: int, rows: int, heads: int, size: int) -> str:
    one = net.chance.choice
    turned = one([0, 2]) if size > 2 else 0
    attributes = {"interleaved": one([0, 1]), "rotary_embedding_dim": turned}
    half, has_places = (turned or size) // 2, net.chance.random() < 0.6
    shape = (9, half) if has_places else (batch, rows, half)
    angles = net.normal(*shape)
    is_constant = net.chance.random() < 0.7
    inputs = [
        x,
        net.given("cos", np.cos(angles), is_constant=is_constant),
        net.given("sin", np.sin(angles), is_constant=is_constant),
    ]
    if has_places:
        inputs.append(net.given("places", net.rng.integers(0, 9, (batch, rows))))
    if heads:
        attributes["num_heads"] = heads
    return net.add("RotaryEmbedding", inputs, ["turned"], **attributes)


def furthest(model: Any, feed: dict[str, Any], wanted: list[Any]) -> float:
    """The largest difference of a model's outputs to those wanted, of which NaN is none."""
    read = {value.name for value in model.graph.input}
    made = ReferenceEvaluator(model).run(
        None, {name: value for name, value in feed.items() if name in read}
    )
    found = 0.0
    for own, other in zip(made, wanted, strict=True):
        is_equal = (own == other) | (np.isnan(own) & np.isnan(other))
        with np.errstate(invalid="ignore"):
            away = np.where(is_equal, 0, np.abs(own - other))
        found = max(found, float(np.nan_to_num(away, nan=np.inf).max()))
    return found


def check(seed: int) -> None:
    net = attention(seed)
    model = net.model()
    wanted = ReferenceEvaluator(model).run(None, net.inputs)
    load_onnx(Path())
    for change in (rewritten, without_composed):
        made = change(onnx, model)
        assert not {"Attention", "RotaryEmbedding"} & {one.op_type for one in made.graph.node}
        assert furthest(made, net.inputs, wanted) < BOUND, (seed, change)


@pytest.mark.parametrize("part", range(4))
def test_rewritten_attention_is_that_of_the_reference(part: int) -> None:
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        check(seed)


@pytest.mark.soak
def test_many_nets_of_attention_are_rewritten_right() -> None:
    for seed in range(MORE_SEEDS):
        check(seed)


def test_what_is_refused() -> None:
    load_onnx(Path())
    cases: list[tuple[dict[str, Any], list[str], type[ModelError], str]] = [
        ({"softmax_precision": TensorProto.DOUBLE}, [], UnsupportedOperator, "float64; export it"),
        ({"q_num_heads": 3, "kv_num_heads": 3}, [], ModelError, "which do not divide the last"),
    ]
    for attributes, more, kind, said in cases:
        net = Net(0)
        names = [net.given(name, net.normal(1, 3, 8), is_constant=False) for name in "qkv"]
        heads = {"q_num_heads": 2, "kv_num_heads": 2}
        net.outputs = ["y"]
        net.add("Attention", [*names, *more], ["y"], **{**heads, **attributes})
        with pytest.raises(kind, match=said):
            without_composed(onnx, net.model())


@pytest.mark.parametrize("turned", [4, 3])
def test_one_cache_of_cosines_and_sines_and_an_odd_number_of_elements(turned: int) -> None:
    net = Net(0)
    x = net.given("x", net.normal(1, 2, 3, 6), is_constant=False)
    cache = net.given("cache", net.normal(1, 3, turned // 2), is_constant=True)
    net.add("RotaryEmbedding", [x, cache, cache], ["y"], rotary_embedding_dim=turned)
    net.outputs, model = ["y"], net.model()
    if turned % 2:
        with pytest.raises(ModelError, match="turns 3 elements of each head"):
            rewritten(onnx, model)
        return
    wanted = ReferenceEvaluator(model).run(None, net.inputs)
    assert furthest(rewritten(onnx, model), net.inputs, wanted) < BOUND


def block(seed: int) -> Net:
    """A block with positions, shared keys, a causal mask, and one that is an input."""
    net, width, rows = Net(seed), 16, 6
    x = net.given("x", net.normal(1, rows, width), is_constant=False)
    for name, outputs in (("wq", width), ("wk", 8), ("wv", 8), ("wo", width)):
        net.given(name, net.normal(width, outputs) / 4, is_constant=True)
    net.given("ones", np.ones(width, np.float32), is_constant=True)
    angles = np.arange(rows, dtype=np.float32)[None, :, None] / np.array([1, 10], np.float32)
    net.given("cos", np.cos(angles), is_constant=True)
    net.given("sin", np.sin(angles), is_constant=True)
    normal = net.add("RMSNormalization", [x, "ones"], ["normal"], axis=-1)
    query, key, value = (net.add("MatMul", [normal, f"w{one}"], [one]) for one in "qkv")
    query, key = (
        net.add(
            "RotaryEmbedding",
            [name, "cos", "sin"],
            [f"{name}_turned"],
            num_heads=heads,
            interleaved=heads == 4,
        )
        for name, heads in ((query, 4), (key, 2))
    )
    counts = np.tril(np.ones((rows, rows)))[None, None]
    lowest = np.finfo(np.float32).min
    mask = net.given("mask", np.where(counts, 0, lowest).astype(np.float32), is_constant=False)
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    made = net.add("Attention", [query, key, value, mask], ["read"], is_causal=1, **heads)
    net.add("Add", [x, net.add("MatMul", [made, "wo"], ["made"])], ["y"])
    net.outputs = ["y"]
    return net


@pytest.mark.tools
def test_a_block_is_compiled_in_float32_and_in_int8(tmp_path: Path) -> None:
    net, path, target = block(3), tmp_path / "block.onnx", tmp_path / "block.tflite"
    onnx.save(net.model(), path)
    found = utvm_deploy.verify(path, "host", samples=2)
    assert found.ok and found.origin is not None and not found.origin.different
    mask = net.inputs["mask"]
    data = {
        "x": net.normal(60, 1, 6, 16),
        "mask": np.broadcast_to(mask, (60, *mask.shape)),
    }
    made = utvm_deploy.quantize(path, data)
    assert made.float_operators == ()
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db > 25
    made.save(target)
    assert utvm_deploy.verify(target, "host", samples=2).ok
