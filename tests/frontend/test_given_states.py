"""``--state``: an input and an output of a file that become a state of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend import formats
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.files.tflite_choice import Choice
from utvm_deploy.frontend.formats import converted
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.program import Program

pytestmark = pytest.mark.tools

SHAPE = (2, 1, 16)


def _cell(path: Path, *, dtype: str = "int8", zero_point: int = 5, hidden: bool = False) -> Path:
    """Adds input "tensor_0" to the state "tensor_1", and makes "tensor_2"; further outputs differ.

    ``hidden``: the next state is the only output.
    """
    m = ModelWriter()
    steps = () if dtype == "float32" else (0.05, zero_point)

    def tensor(shape: tuple[int, ...] = SHAPE, scale: float = 0.05) -> int:
        return m.tensor(shape, dtype, *((scale, *steps[1:]) if steps else ()))

    x, state = tensor(), tensor()
    m.inputs += [x, state]
    made = tensor()
    m.operator("ADD", [x, state], [made], ("AddOptions", {}))
    m.output(made)
    if not hidden:
        for shape, scale in ((SHAPE, 0.02), ((32,), 0.05)):
            other = tensor(shape, scale)
            if shape == SHAPE:
                m.operator("MUL", [made, x], [other], ("MulOptions", {}))
            else:
                m.operator("RESHAPE", [made], [other], ("ReshapeOptions", {"NewShape": [32]}))
            m.output(other)
    m.save(path)
    return path


def _chained(path: Path, states: dict[str, str], steps: int = 4) -> Any:
    """The outputs with a kept state, and those of a state that is handed on, for some steps."""
    with given_only(Chosen({}, None, tuple(states.items()))):
        data = converted(path)
    assert data is not None
    kept, plain = Program(data), Program(path.read_bytes())
    (shape, dtype), (_, _) = plain.forms
    rng = np.random.default_rng(4)
    state = np.full(shape, plain.quantized(plain.inputs[1]).zero_point, dtype)
    for _ in range(steps):
        x = rng.integers(-60, 60, shape).astype(dtype)
        made = plain.one([x, state])
        state = made[plain.outputs[0]]
        yield kept.one([x]), [made[number] for number in plain.outputs[1:]], kept.outputs


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", 5), ("int16", 0)])
def test_the_state_is_handed_on(dtype: str, zero_point: int, tmp_path: Path) -> None:
    path = _cell(tmp_path / "cell.tflite", dtype=dtype, zero_point=zero_point)
    for made, wanted, outputs in _chained(path, {"tensor_1": "tensor_2"}):
        assert len(outputs) == len(wanted) == 2
        for number, array in zip(outputs, wanted, strict=True):
            assert np.array_equal(made[number], array)


def test_what_is_compiled_equals_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _cell(tmp_path / "cell.tflite")
    options = ["--state", "tensor_1=tensor_2", "--board", "host", "--samples", "3"]
    assert main(["verify", str(path), *options]) == 0
    assert "all equal" in capsys.readouterr().out
    written = tmp_path / "kept.tflite"
    utvm_deploy.convert(path, written, states={"tensor_1": "tensor_2"})
    graph = load_model(written)
    ((found, _),) = graph.states
    assert graph.tensors[found].shape == SHAPE and len(graph.inputs) == 1
    assert len(load_model(path).inputs) == 2


def test_the_only_output_stays(tmp_path: Path) -> None:
    path = _cell(tmp_path / "cell.tflite", dtype="float32", hidden=True)
    graph = utvm_deploy.inspect(path, states={"tensor_1": "tensor_2"}).graph
    assert graph is not None and len(graph.states) == len(graph.outputs) == 1


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({"h": "tensor_2"}, "no input 'h' for --state; its inputs: 'tensor_0', 'tensor_1'"),
        ({"tensor_1": "h"}, "no output 'h' for --state; its outputs: 'tensor_2', 'tensor_3'"),
        ({"tensor_1": "tensor_0"}, "no output 'tensor_0'"),
        ({"tensor_1": "tensor_4"}, r"they have the shapes \(2, 1, 16\) and \(32,\)"),
        (
            {"tensor_1": "tensor_3"},
            r"scale 0\.05\d* and zero point 5 and scale 0\.0\d* and zero point 5; they must be "
            "equal, so quantize the float model with --state",
        ),
        ({"tensor_1": "tensor_2", "tensor_0": "tensor_2"}, "two states have the same output"),
        ({"tensor_1": "tensor_2", "tensor_0": "tensor_3"}, "they must be equal"),
    ],
)
def test_pairs_that_are_no_state(states: dict[str, str], said: str, tmp_path: Path) -> None:
    path = _cell(tmp_path / "cell.tflite")
    with pytest.raises(ModelError, match=said):
        utvm_deploy.compile(path, "host", states=states)


def test_an_output_that_nothing_writes(tmp_path: Path) -> None:
    m = ModelWriter()
    x, state = (m.input(SHAPE, 0.05, 0) for _ in range(2))
    m.output(m.node("ADD", [x, state], SHAPE, ("AddOptions", {})))
    m.output(state)
    m.save(tmp_path / "same.tflite")
    with pytest.raises(ModelError, match="no operator writes output 'tensor_1'"):
        utvm_deploy.inspect(tmp_path / "same.tflite", states={"tensor_1": "tensor_1"})


def test_options_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(_cell(tmp_path / "cell.tflite"))
    for given, said in (
        (["h"], "'h' is not IN=OUT, such as h0=hn"),
        (["a=b", "a=c"], "--state gives 'a' twice"),
        (["a=b", "c=b"], "--state gives 'b' twice"),
    ):
        options = [word for one in given for word in ("--state", one)]
        assert main(["inspect", path, *options]) == 2
        assert said in capsys.readouterr().err
    same = ["--state", "tensor_1=tensor_2"] * 2
    assert main(["inspect", path, *same]) == 0
    with pytest.raises(ModelError, match="is not a dict from names of inputs"):
        utvm_deploy.inspect(path, states=["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", [".onnx", ".tflite"])
def test_a_step_with_a_block_has_its_states_and_shapes(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, asked = _cell(tmp_path / f"step{ending}"), list[Choice]()
    monkeypatch.setattr(formats, "_kept_or_made", lambda _path, choice: asked.append(choice))
    states = (("tensor_1", "tensor_2"),)
    with given_only(Chosen({"tensor_0": SHAPE}, states=states)):
        formats.prefilled_tflite(step, step)
    (found,) = asked
    assert found.states == states and found.prefill is not None
    assert (found.shapes or {}) == ({"tensor_0": SHAPE} if ending == ".onnx" else {})
