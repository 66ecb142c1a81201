"""utvm inspect of models that cannot be compiled: the whole table, and what is wrong with what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import build_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.base.readable import MOST_OF_NAMES
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.names import short_name

LONG = "scope/" * 333 + "end"


def saved(model: ModelWriter, folder: Path) -> Path:
    return model.save(folder / "net.tflite")


def small_net() -> ModelWriter:
    """Three operators: a convolution, a RELU and a dense layer."""
    m = ModelWriter()
    x = m.input((1, 4, 4, 2), 0.1)
    x = m.relu(m.conv2d(x, np.ones((3, 3, 3, 2), np.int8), np.zeros(3, np.int32)))
    m.output(m.fully_connected(m.reshape(x, (1, 48)), np.ones((5, 48), np.int8)))
    return m


def inspected(capsys: pytest.CaptureFixture[str], path: Path, code: int) -> dict[str, Any]:
    assert main(["inspect", str(path), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["ok"] is (code == 0)
    return found


def problems(found: dict[str, Any]) -> dict[int, str]:
    return {one["index"]: one["problem"] for one in found["operators"] if one["problem"]}


def rows(capsys: pytest.CaptureFixture[str], path: Path) -> list[str]:
    """The lines that the table has for operators."""
    assert main(["inspect", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    printed = [line.rstrip() for line in captured.out.splitlines()]
    head, *lines = (line for line in printed if not line.startswith(("input", "output")))
    assert head.split() == ["#", "operator", "output", "problem"]
    return lines


def test_a_model_that_can_be_compiled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = inspected(capsys, saved(small_net(), tmp_path), 0)
    assert problems(found) == {} and found["problems"] == [] and found["macs"] > 0


def test_every_operator_has_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    m = small_net()
    m.operators[1].kind = "COS"
    m.operators[3].kind = "MyOp"
    path = saved(m, tmp_path)
    lines = rows(capsys, path)
    assert [line[:4].split() for line in lines[:4]] == [["0"], ["!", "1"], ["2"], ["!", "3"]]
    assert lines[1].endswith("cut the model before it and compute it in your own code")
    assert "CUSTOM 'MyOp'" in lines[3] and "custom operators are not part" in lines[3]
    assert lines[4] == "net cannot be compiled, because of 2 of 4 operators; see the lines with !"
    found = inspected(capsys, path, 1)
    assert sorted(problems(found)) == [1, 3]
    assert found["macs"] is None and found["svg"] is None
    assert found["operators"][0]["outputs"][0]["shape"] == [1, 4, 4, 3]


@pytest.mark.parametrize(
    ("change", "index", "says"),
    [
        (
            {"dtype": "uint8"},
            1,
            "is uint8, as in legacy quantized models, .* quantize the float model",
        ),
        (
            {"dtype": "float32", "scales": (), "zero_points": ()},
            0,
            "float32",
        ),
        ({"shape": (1, 4, 4, 0)}, 0, "dynamic or empty shape .* with a fixed input shape"),
        ({"shape": (1, -1, 4, 3)}, 0, "dynamic or empty shape"),
        ({"scales": (), "zero_points": ()}, 1, "has no scale and zero point; convert it again"),
        ({"scales": (0.0,)}, 0, "the scale 0.0, which must be positive"),
        ({"shape": (1, 4, 3, 3)}, 0, r"computes the shape \(1, 4, 4, 3\), but the file says"),
    ],
)
def test_reasons(
    change: dict[str, Any],
    index: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A tensor between the first two operators is not what it should be."""
    m = small_net()
    for name, value in change.items():
        assert hasattr(m.tensors[m.operators[0].outputs[0]], name)
        setattr(m.tensors[m.operators[0].outputs[0]], name, value)
    path = saved(m, tmp_path)
    found = problems(inspected(capsys, path, 1))
    assert re.search(says, found[index]), found
    assert "\n" not in found[index] and not found[index].startswith("operator")
    assert len(rows(capsys, path)) == len(m.operators) + 1


def test_what_is_wrong_with_the_model_as_a_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    m = small_net()
    m.outputs = []
    path = saved(m, tmp_path)
    found = inspected(capsys, path, 1)
    assert found["problems"] == ["the model has no outputs"] and problems(found) == {}
    assert main(["inspect", str(path), "--svg", str(tmp_path / "x.svg")]) == 1
    text = capsys.readouterr().out
    assert "! the model: the model has no outputs" in text and "no picture:" in text
    assert not (tmp_path / "x.svg").exists()


def test_what_no_kernel_can_be_made_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from utvm_deploy.compiler.stages import first_look

    lower = first_look.lower

    def refusing(graph: Any, operator: Any, *rest: Any) -> Any:
        if operator.kind == "FULLY_CONNECTED":
            raise UnsupportedOperator("no kernel has so many inputs; use fewer")
        return lower(graph, operator, *rest)

    monkeypatch.setattr(first_look, "lower", refusing)
    path = saved(small_net(), tmp_path)
    assert problems(inspected(capsys, path, 1)) == {3: "no kernel has so many inputs; use fewer"}
    assert "!" in rows(capsys, path)[3]


def test_no_model_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    whole = small_net().to_bytes()
    for data in (b"no model at all", whole[: len(whole) // 2]):
        path = tmp_path / "net.tflite"
        path.write_bytes(data)
        assert main(["inspect", str(path)]) == 1
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.startswith("error: ")
        assert len(captured.err.splitlines()) == 1


def test_short_names() -> None:
    assert short_name("a" * MOST_OF_NAMES) == "a" * MOST_OF_NAMES
    assert (
        short_name("abc" + LONG) == "abcscope/scope/scope/scope/sc.../scope/scope/scope/scope/end"
    )
    assert len(short_name(LONG)) == MOST_OF_NAMES == 60


def test_long_names_are_shortened_everywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    m = small_net()
    for number, tensor in enumerate(m.tensors):
        tensor.name = f"{number}{LONG}"
    path = saved(m, tmp_path)
    assert main(["inspect", str(path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 250
    weights = m.tensors[m.operators[0].inputs[1]]
    weights.zero_points = (3,)
    m.operators[1].kind = "M" * 300
    path = saved(m, tmp_path)
    with pytest.raises(ModelError, match="a zero point other than 0; only symmetric") as caught:
        load_model(path)
    said = str(caught.value)
    assert LONG not in said and len(said) < 800 and "1scope/" in said and "..." in said
    assert max(map(len, rows(capsys, path))) < 400
    m.tensors[m.operators[0].inputs[0]].shape = (1, 0, 4, 2)
    with pytest.raises(ModelError, match="custom operators are not part") as caught:
        load_model(saved(m, tmp_path))
    assert LONG not in str(caught.value)
    m.operators[1].kind = "RELU"
    with pytest.raises(ModelError, match="dynamic or empty shape") as caught:
        load_model(saved(m, tmp_path))
    assert LONG not in str(caught.value)


def test_the_branches_of_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    m = build_model("branches")
    for operator in m.operators:
        operator.kind = f"My{operator.kind}"
    found = inspected(capsys, saved(m, tmp_path), 1)
    assert len(problems(found)) == len(m.operators) == len(found["operators"])
