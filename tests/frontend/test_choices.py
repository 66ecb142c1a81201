"""What a .tflite file leaves open: shapes of inputs, and which of several signatures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.tflite import load_model

pytestmark = pytest.mark.tools


def _opened(writer: ModelWriter, path: Path, *extents: int) -> Path:
    """The file; these dimensions of all activations of rank 4 and of rows are open, and 1."""
    model = schema.read_model(writer.to_bytes())
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if schema.constant(model, tensor) is None:
                shape = np.array(tensor.shape, np.int32)
                taken = [one for one in extents if one < (len(shape) if len(shape) == 4 else 1)]
                signature = shape.copy()
                shape[taken], signature[taken] = 1, -1
                tensor.shape, tensor.shapeSignature = shape, signature
    path.write_bytes(schema.model_bytes(model))
    return path


def _image_net(size: int = 8, padding: str = "SAME") -> ModelWriter:
    """A convolution, and the means over rows and columns."""
    rng = np.random.default_rng(33)
    m = ModelWriter()
    x = m.input((1, size, size, 3), 0.05, 3)
    weights = rng.integers(-99, 99, (4, 3, 3, 3), dtype=np.int8)
    y = m.conv2d(x, weights, np.zeros(4, np.int32), padding=padding)
    axes = m.constant(np.array([1, 2], np.int32))
    m.output(m.node("MEAN", [y, axes], (1, 4), ("ReducerOptions", {"KeepDims": False})))
    return m


@pytest.fixture(scope="module")
def image_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that knows neither batch, rows nor columns."""
    return _opened(_image_net(), tmp_path_factory.mktemp("open") / "image.tflite", 0, 1, 2)


def test_open_rows_are_asked_for(image_net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(image_net), "--board", "host"]) == 1
    said = capsys.readouterr().err
    assert "has the shape (?, ?, ?, 3)" in said and "--shape 1,32,32,3" in said


def test_shapes_are_inferred_anew(image_net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--shape", "2,12,10,3", "--board", "host", "--samples", "1"]
    assert main(["verify", str(image_net), *given]) == 0
    assert "all equal" in capsys.readouterr().out
    assert utvm_deploy.inspect(image_net, inputs=(2, 12, 10, 3)).graph is not None


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("1,8,3", r"has 4 dimensions \(\?, \?, \?, 3\), but the given shape 1,8,3 has 3"),
        ("1,8,8,4", r"has the shape \(\?, \?, \?, 3\), which 1,8,8,4 does not fit"),
        ("y=1,8,8,3", "has no input 'y'; its inputs: tensor_0"),
    ],
)
def test_shapes_that_do_not_fit(
    image_net: Path, shape: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(image_net), "--shape", shape]) == 1
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(capsys.readouterr().err)


def test_a_shape_that_an_operator_refuses(tmp_path: Path) -> None:
    path = _opened(_image_net(padding="VALID"), tmp_path / "valid.tflite", 0, 1, 2)
    with (
        given_only(Chosen({"": (1, 2, 8, 3)})),
        pytest.raises(ModelError, match="of the shape 1,2,8,3: 'tensor_3' becomes empty"),
    ):
        load_model(path)


def test_a_fixed_shape_stays(tmp_path: Path) -> None:
    path = tmp_path / "fixed.tflite"
    _image_net().save(path)
    with given_only(Chosen({"": (1, 8, 8, 3)})):
        assert load_model(path).digest == load_model(path).digest
    with given_only(Chosen({"": (1, 9, 9, 3)})), pytest.raises(ModelError, match="the fixed shape"):
        load_model(path)


def test_the_batch_alone_is_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _opened(_image_net(), tmp_path / "batch.tflite", 0)
    graph = load_model(path)
    assert graph.tensors[graph.inputs[0]].shape == (1, 8, 8, 3)
    assert "the batch of input 'tensor_0' is bound to 1" in caplog.text
    with given_only(Chosen({"tensor_0": (3, 8, 8, 3)})):
        graph = load_model(path)
    assert graph.tensors[graph.outputs[0]].shape == (3, 4)


def test_several_inputs_need_names(tmp_path: Path) -> None:
    m = ModelWriter()
    a, b = m.input((1, 2, 2, 4), 0.05, 0), m.input((1, 2, 2, 4), 0.05, 0)
    m.output(m.node("ADD", [a, b], (1, 2, 2, 4), ("AddOptions", {})))
    path = _opened(m, tmp_path / "two.tflite", 1)
    with given_only(Chosen({"": (1, 5, 2, 4)})), pytest.raises(ModelError, match="several inputs"):
        load_model(path)
    with (
        given_only(Chosen({"tensor_0": (1, 5, 2, 4), "tensor_1": (1, 3, 2, 4)})),
        pytest.raises(ModelError, match="does not take inputs of the shape 1,5,2,4; 1,3,2,4"),
    ):
        load_model(path)
    with given_only(Chosen({"tensor_0": (1, 5, 2, 4), "tensor_1": (1, 5, 2, 4)})):
        graph = load_model(path)
    assert graph.tensors[graph.outputs[0]].shape == (1, 5, 2, 4)


def test_shapes_that_operators_compute(tmp_path: Path) -> None:
    """RESHAPE to what SHAPE, STRIDED_SLICE and PACK make of the input."""
    m = ModelWriter()
    x = m.input((1, 4, 4, 6), 0.05, 0)
    shape = m.tensor((4,), "int32")
    m.operator("SHAPE", [x], [shape], ("ShapeOptions", {"OutType": 2}))
    ends = [m.constant(np.array([one], np.int32)) for one in (1, 2, 1)]
    rows = m.tensor((), "int32")
    m.operator(
        "STRIDED_SLICE", [shape, *ends], [rows], ("StridedSliceOptions", {"ShrinkAxisMask": 1})
    )
    wanted = m.tensor((2,), "int32")
    rest = m.constant(np.array(-1, np.int32))
    m.operator("PACK", [rows, rest], [wanted], ("PackOptions", {"ValuesCount": 2}))
    y = m.tensor((4, 24), "int8", 0.05, 0)
    m.operator("RESHAPE", [x, wanted], [y], ("ReshapeOptions", {}))
    m.output(y)
    path = _opened(m, tmp_path / "computed.tflite", 1)
    with given_only(Chosen({"": (1, 7, 4, 6)})):
        graph = load_model(path)
    assert graph.tensors[graph.outputs[0]].shape == (7, 24)


def _state(name: str, rows: int) -> ModelWriter:
    """Adds its input to a variable, which a subgraph sets to 0 before."""
    once, m = ModelWriter(), ModelWriter()
    zero = once.constant(np.zeros((1, rows), np.float32))
    for one, kind in ((once, "VAR_HANDLE"), (m, "VAR_HANDLE")):
        handle = one.tensor((), "resource")
        one.operator(kind, [], [handle], ("VarHandleOptions", {"SharedName": name}))
        if one is once:
            once.operator("ASSIGN_VARIABLE", [handle, zero], [], None)
    m.operators.insert(0, _once(2))
    x = m.float_input((1, rows))
    before = m.tensor((1, rows), "float32")
    m.operator("READ_VARIABLE", [0], [before], None)
    y = m.node("ADD", [x, before], (1, rows), ("AddOptions", {}))
    m.operator("ASSIGN_VARIABLE", [0, y], [], None)
    m.output(y)
    m.once = once
    return m


def _once(number: int) -> Any:
    m = ModelWriter()
    m.operator("CALL_ONCE", [], [], ("CallOnceOptions", {"InitSubgraphIndex": number}))
    return m.operators[0]


def _signed(writer: ModelWriter, path: Path, signatures: Mapping[str, int]) -> Path:
    """The file with these signatures: name -> subgraph."""
    model = schema.read_model(writer.to_bytes())
    model.signatureDefs = []
    for name, number in signatures.items():
        one = schema.signature(model.subgraphs[number])
        one.signatureKey, one.subgraphIndex = name.encode(), number
        model.signatureDefs.append(one)
    path.write_bytes(schema.model_bytes(model))
    return path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two signatures with a variable that both have; the second one is another subgraph."""
    first, second = _state("sum", 4), _state("sum", 4)
    first.further = [first.once, first.once]  # one that nothing calls, and one that both call
    first.once = second
    second.once = None
    return _signed(first, tmp_path_factory.mktemp("signed") / "two.tflite", {"one": 0, "other": 1})


def test_signatures_are_listed(signed: Path) -> None:
    with pytest.raises(ModelError, match="has the signatures 'one', 'other'; choose one, such as"):
        load_model(signed)
    with pytest.raises(ModelError, match="has no signature 'third'; its signatures: one, other"):
        utvm_deploy.inspect(signed, signature="third")


def test_a_signature_of_another_subgraph(
    signed: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--signature", "other", "--board", "host", "--samples", "2"]
    assert main(["verify", str(signed), *options]) == 0
    assert "all equal" in capsys.readouterr().out
    with given_only(Chosen({}, "one")):
        load_model(signed)
    assert "variable 'sum' is shared with signature 'other', which is left out" in caplog.text


def test_one_signature_is_taken_by_itself(signed: Path, tmp_path: Path) -> None:
    model = schema.read_model(signed.read_bytes())
    model.signatureDefs = model.signatureDefs[1:]
    path = tmp_path / "one.tflite"
    path.write_bytes(schema.model_bytes(model))
    graph = load_model(path)
    assert graph.states and graph.tensors[graph.inputs[0]].shape == (1, 4)


def test_a_file_without_signatures(tmp_path: Path) -> None:
    path = tmp_path / "none.tflite"
    _image_net().save(path)
    with pytest.raises(ModelError, match="has no signatures, so there is no 'one'"):
        utvm_deploy.compile(path, "host", signature="one")
