"""An ONNX file whose cache of keys and values is inputs and outputs that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx")
onnxruntime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime"
)

TOKENS, WIDTH, HEADS, PLACES = 12, 16, 2, 8
SIZE = WIDTH // HEADS
#: How many tokens a text of the test has.
STEPS = 64
STATES = {"k_in": "k_out", "v_in": "v_out"}


def step(path: Path, places: int = PLACES, *, is_whole: bool = False) -> Path:
    """One token of attention, by TensorScatter, with a mask of the places behind it.

    If it ``is_whole``, Attention is one operator, with rotary positions in front of it.
    """
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(WIDTH, WIDTH)) for name in ("wq", "wk", "wv", "wo")}
    constants: dict[str, Any] = {
        "table": rng.normal(size=(TOKENS, WIDTH)).astype(np.float32),
        **{name: (array / 2).astype(np.float32) for name, array in weights.items()},
        "heads": np.array([1, HEADS, 1, SIZE]),
        "row": np.array([1, WIDTH]),
        "places": np.arange(places),
        "low": np.float32(-1e9),
    }
    if is_whole:
        angles = np.arange(places)[:, None] / np.array([1, 2, 5, 10])
        constants |= {"cos": np.cos(angles).astype(np.float32), "one": np.array([1])}
        constants |= {"sin": np.sin(angles).astype(np.float32), "row": np.array([1, 1])}
        constants["heads"] = np.array([1, 1, WIDTH])
    nodes: list[Any] = []

    def add(kind: str, inputs: list[str], made: str, **attributes: Any) -> str:
        nodes.append(onnx.helper.make_node(kind, inputs, [made], **attributes))
        return made

    x = add("Gather", ["table", "token"], "x")
    query, key, value = (
        add("Reshape", [add("MatMul", [x, w], f"{w}_y"), "heads"], f"{w}_h")
        for w in ("wq", "wk", "wv")
    )
    if is_whole:
        place = add("Reshape", ["position", "row"], "place")
        query, key = (
            add("RotaryEmbedding", [one, "cos", "sin", place], f"{one}_turned", num_heads=HEADS)
            for one in (query, key)
        )
    add("TensorScatter", ["k_in", key, "position"], "k_out", axis=-2)
    add("TensorScatter", ["v_in", value, "position"], "v_out", axis=-2)
    if is_whole:
        tokens = add("Add", ["position", "one"], "tokens")
        sides, heads = [query, "k_out", "v_out"], {"q_num_heads": HEADS, "kv_num_heads": HEADS}
        flat = add("Attention", [*sides, "", "", "", tokens], "read", **heads)
    else:
        turned = add("Transpose", ["k_out"], "turned", perm=[0, 1, 3, 2])
        scores = add("MatMul", [query, turned], "scores")
        hidden = add("Greater", ["places", "position"], "hidden")
        seen = add("Where", [hidden, "low", scores], "seen")
        read = add("MatMul", [add("Softmax", [seen], "shares", axis=-1), "v_out"], "read")
        flat = add("Reshape", [read, "row"], "flat")
    made = add("MatMul", [flat, "wo"], "made")
    add("Add", [x, made], "y")  # which onnxruntime makes a Gemm of
    kinds = onnx.TensorProto
    cache = [1, places, WIDTH] if is_whole else [1, HEADS, places, SIZE]

    def info(name: str, kind: int, shape: list[int]) -> Any:
        return onnx.helper.make_tensor_value_info(name, kind, shape)

    graph = onnx.helper.make_graph(
        nodes,
        "step",
        [info(name, kinds.INT64, [1]) for name in ("token", "position")]
        + [info(name, kinds.FLOAT, cache) for name in STATES],
        [info("y", kinds.FLOAT, [1, 1, WIDTH] if is_whole else [1, WIDTH])]
        + [info(name, kinds.FLOAT, cache) for name in STATES.values()],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)])
    model.ir_version = 11
    onnx.save(model, str(path))
    return path


@pytest.mark.tools
@pytest.mark.slow
def test_float_and_integer_steps_keep_the_cache(tmp_path: Path) -> None:
    path = step(tmp_path / "step.onnx")
    assert utvm_deploy.verify(path, "host", samples=8, states=STATES).ok
    count = np.arange(128)
    # The data have no values of the cache: it runs along.
    data = {
        "token": np.random.default_rng(1).integers(0, TOKENS, (128, 1)),
        "position": count[:, None] % PLACES,
    }
    made = utvm_deploy.quantize(path, data, states=STATES)
    assert made.float_operators == ()
    assert all(one.sqnr_db is None or one.sqnr_db > 25 for one in made.outputs)
    quantized = tmp_path / "step.tflite"
    made.save(quantized)
    assert len(load_model(quantized).inputs) == 4
    compiled = utvm_deploy.compile(quantized, "host", states=STATES)
    assert [one.most for one in compiled.inputs] == [TOKENS - 1, PLACES - 1]
    assert utvm_deploy.verify(quantized, "host", samples=64, states=STATES).ok


@pytest.mark.tools
@pytest.mark.slow
def test_steps_of_whole_attention_are_those_of_onnxruntime(tmp_path: Path) -> None:
    path, quantized = step(tmp_path / "step.onnx", STEPS, is_whole=True), tmp_path / "step.tflite"
    rng = np.random.default_rng(2)
    tokens, positions = rng.integers(0, TOKENS, (128, 1)), np.arange(128)[:, None] % STEPS
    session = onnxruntime.InferenceSession(str(path))
    caches = {name: np.zeros((1, STEPS, WIDTH), np.float32) for name in STATES}
    compiled = utvm_deploy.compile(path, "host", states=STATES)
    with utvm_deploy.connect("host") as device:
        model = device.load(compiled)
        for token, position in zip(tokens[:STEPS], positions, strict=False):
            feed = {**caches, "token": token, "position": position}
            wanted, *now = session.run(["y", *STATES.values()], feed)
            caches = dict(zip(STATES, now, strict=True))
            (made,), _ = model.run([token, position])
            assert np.abs(made - wanted).max() < 1e-5
    data = {"token": tokens, "position": positions}
    result = utvm_deploy.quantize(path, data, states=STATES)
    assert all(one.sqnr_db is None or one.sqnr_db > 25 for one in result.outputs)
    result.save(quantized)
    assert utvm_deploy.verify(quantized, "host", samples=STEPS, states=STATES).ok


def test_a_cache_that_grows_is_refused(tmp_path: Path) -> None:
    """Attention's own cache is longer after each run."""
    names = ("q", "k", "v", "past_k", "past_v"), ("y", "now_k", "now_v")
    lengths = (1, 1, 1, PLACES, PLACES), (1, PLACES + 1, PLACES + 1)
    ends = [
        [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, HEADS, rows, SIZE])
            for name, rows in zip(some, counts, strict=True)
        ]
        for some, counts in zip(names, lengths, strict=True)
    ]
    node = onnx.helper.make_node("Attention", [*names[0][:3], "", *names[0][3:]], names[1])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "grows", *ends),
        opset_imports=[onnx.helper.make_opsetid("", 24)],
    )
    model.ir_version = 11
    onnx.save(model, str(tmp_path / "grows.onnx"))
    with pytest.raises(ModelError, match="grows in each run, so let the model write"):
        utvm_deploy.inspect(tmp_path / "grows.onnx", states={"past_k": "now_k", "past_v": "now_v"})
