"""ONNX models that are odd or hostile: one sentence, or the right graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.onnx.model import onnx_to_model
from utvm_deploy.frontend.relax.facts import loaded
from utvm_deploy.frontend.relax.road import relax_graph
from utvm_deploy.graph.model import Graph


def value(
    name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


X, Y = value("x", [3]), value("y", [3])
K = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "k")


def saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (X,),
    outputs: Sequence[onnx.ValueInfoProto] = (Y,),
    constants: Sequence[onnx.TensorProto] = (),
) -> Path:
    graph = helper.make_graph(nodes, "odd", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, path)
    return path


def node(kind: str, source: str = "x", result: str = "y", **given: object) -> onnx.NodeProto:
    return helper.make_node(kind, [source] if source else [], [result], **given)


def branch(name: str) -> onnx.GraphProto:
    made = node("Constant", "", name, value=K)
    return helper.make_graph([made], name, [], [value(name, [3])])


def with_if(path: Path) -> Path:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", "sum", "condition", to=TensorProto.BOOL),
        node("If", "condition", then_branch=branch("a"), else_branch=branch("b")),
    ]
    return saved(path, nodes)


def with_loop(path: Path) -> Path:
    state = value("state", [3])
    body = helper.make_graph(
        [node("Identity", "go", "going"), helper.make_node("Add", ["state", "state"], ["next"])],
        "body",
        [value("step", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), state],
        [value("going", [], TensorProto.BOOL), value("next", [3])],
    )
    count = numpy_helper.from_array(np.array(3, np.int64), "count")
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    return saved(path, [loop], constants=[count])


def too_large(path: Path) -> Path:
    shape = numpy_helper.from_array(np.array([60_000, 100_000, 1_000], np.int64), "shape")
    nodes = [
        node("ConstantOfShape", "shape", "zeros"),
        helper.make_node("Add", ["x", "zeros"], ["y"]),
    ]
    outputs = [value("y", [60_000, 100_000, 1_000])]
    return saved(path, nodes, [value("x", [1])], outputs, [shape])


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def with_unequal_sums(path: Path) -> Path:
    weights = numpy_helper.from_array(np.ones((16, 4), np.float32), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    return saved(path, [product], [value("x", [1, 15])], [value("y", [1, 4])], [weights])


def damaged(path: Path) -> Path:
    data = saved(path, [node("Relu")]).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def no_inputs(path: Path) -> Path:
    return saved(path, [node("Identity", "k")], inputs=(), constants=[K])


def by_values(path: Path) -> Path:
    outputs = [value("y", [1, "count"], TensorProto.INT64)]
    return saved(path, [node("NonZero")], outputs=outputs)


def custom(path: Path) -> Path:
    return saved(path, [node("Foo", domain="acme")])


def with_computed_k(path: Path) -> Path:
    top = helper.make_node("TopK", ["x", "count"], ["y", "places"])
    return saved(path, [top], [X, value("count", [1], TensorProto.INT64)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (by_values, "the operator NonZero, which makes 'y', has an output .* on values; cut the"),
        (custom, "the operator acme.Foo, which makes 'y', cannot be imported"),
        (lambda path: saved(path, [node("Det")]), "Det"),
        (
            with_computed_k,
            "operator TopK, which makes 'y', .* depends on values; make 'count' constant",
        ),
        (no_inputs, "has no inputs"),
        (damaged, "not an ONNX file, or it is damaged"),
        (empty, "is empty; export the model again"),
        (
            with_unequal_sums,
            r"\(MatMul\), which makes 'y', contradicts itself: Incompatible dimensions",
        ),
        (too_large, "FoldConstant needs more memory than an import may take"),
    ],
)
def test_what_is_refused_is_named(make: Callable[[Path], Path], said: str, tmp_path: Path) -> None:
    path = make(tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match=said) as caught:
        onnx_to_model(path)
    assert str(caught.value).startswith(f"{path}") and "\n" not in str(caught.value)


def graph_of(path: Path) -> Graph:
    return relax_graph(loaded(onnx_to_model(path)), "odd")


@pytest.mark.parametrize("make", [with_if, with_loop])
def test_an_if_has_both_branches_and_a_loop_its_steps(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    graph = graph_of(make(tmp_path / "control.onnx"))
    assert [graph.tensors[number].shape for number in graph.outputs] == [(3,)]


def test_outputs_that_are_inputs_constants_or_equal(tmp_path: Path) -> None:
    nodes = [node("Relu"), node("Identity", "k", "z")]
    outputs = (Y, value("z", [3]), X, Y)
    graph = graph_of(saved(tmp_path / "odd.onnx", nodes, outputs=outputs, constants=[K]))
    assert [operator.kind for operator in graph.operators] == ["CALL_TIR", *["RESHAPE"] * 3]
    assert len(set(graph.outputs)) == 4


def test_a_model_of_a_constant_alone(tmp_path: Path) -> None:
    graph = graph_of(saved(tmp_path / "odd.onnx", [node("Identity", "k")], constants=[K]))
    assert [operator.kind for operator in graph.operators] == ["RESHAPE"]


def test_inputs_that_nothing_reads(tmp_path: Path) -> None:
    inputs = (X, value("unused", [2, 4]))
    graph = graph_of(saved(tmp_path / "odd.onnx", [node("Relu")], inputs=inputs))
    assert [graph.tensors[i].shape for i in graph.inputs] == [(3,), (2, 4)]
