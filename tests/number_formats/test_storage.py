"""Weights in a number format: the bytes of the float32 model whose weights were rounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tflite
import tvm
from float_writer import FloatWriter
from format_models import EXAMPLE, SHAPES, drawn, module, network
from sparse_writer import sparsified

import utvm_deploy
from utvm_deploy.base.errors import UsageError
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.frontend.files.given_shapes import with_chosen
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.number_formats import known_format
from utvm_deploy.results.reporting.stored import read_report

pytestmark = pytest.mark.tools


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_bytes_are_those_of_rounded_weights(device: Device, tmp_path: Path, name: str) -> None:
    path = network(tmp_path / "net.tflite")
    found = utvm_deploy.verify(path, device, samples=2, number_format=name)
    assert found.ok
    assert all(check.bound.is_exact for check in found.found.layers)
    compiled = utvm_deploy.compile(path, device.board, number_format=name)
    whole = utvm_deploy.compile(path, device.board)
    floats = 4 * (8 * 27 + 72 + 2880 + 10)
    assert floats // 2 <= compiled.weights_bytes < 0.51 * whole.weights_bytes
    assert {layer.engine for layer in compiled.layers if layer.kind != "RESHAPE"} == {"generic"}


@pytest.mark.parametrize(("where", "name"), [("host", "float16"), ("mps2_an500", "bfloat16")])
def test_relax_modules_have_the_bytes_of_rounded_weights(
    where: str, name: str, tmp_path: Path
) -> None:
    """Also of weights in a function of TVM's."""
    own, x = known_format(name), drawn(1, 3, 8, 8)
    weights = [drawn(*shape) for shape in SHAPES]
    compiled = utvm_deploy.compile(module(weights), where, number_format=name)
    rounded = utvm_deploy.compile(module([own.rounded(one) for one in weights]), where)
    assert compiled.weights_bytes < 0.55 * rounded.weights_bytes
    path = tmp_path / "module.relax"
    path.write_text(tvm.ir.save_json(module(weights)))
    with utvm_deploy.connect(where, timing="instructions") as device:
        ours, theirs = (device.load(one)(x) for one in (compiled, rounded))
        assert ours.tobytes() == theirs.tobytes()
        assert utvm_deploy.verify(path, device, samples=1, number_format=name).ok


def test_weights_that_are_stored_without_zeros_are_rounded(tmp_path: Path) -> None:
    weights = drawn(6, 8)
    weights[:, ::2] = 0
    m = FloatWriter()
    m.output(m.fully_connected(m.input((1, 8)), weights, drawn(6)))
    (operator,) = m.operators
    stored = m.tensors[operator.inputs[1]]
    stored.sparsity, stored.data = sparsified(weights, (1,))
    path = m.save(tmp_path / "sparse.tflite")
    with with_chosen(number_format="bfloat16"):
        graph = load_model(path)
    found = graph.tensors[graph.operators[0].inputs[1] or 0].data
    assert found is not None
    assert found.tobytes() == known_format("bfloat16").rounded(weights).tobytes()
    assert utvm_deploy.verify(path, "host", samples=2, number_format="bfloat16").ok


def test_the_graph_says_the_format(tmp_path: Path) -> None:
    path = network(tmp_path / "net.tflite")
    assert load_model(path).number_format is None
    with with_chosen(number_format="bfloat16"):
        graph = load_model(path)
    assert graph.number_format is known_format("bfloat16")
    with pytest.raises(UsageError, match="number_format is for files and Relax modules"):
        import torch

        utvm_deploy.compile(
            torch.nn.Linear(4, 2), "host", inputs=(torch.zeros(1, 4),), number_format="bfloat16"
        )


def test_a_row_may_share_the_bytes_of_a_table(tmp_path: Path) -> None:
    """Kernels keep the table as numbers, and the row has the values of these."""
    weights = drawn(4, 8)
    m = FloatWriter()
    m.output(m.fully_connected(m.input((1, 8)), weights, drawn(4)))
    m.output(m.add(m.input((1, 32)), m.constant(weights.reshape(32))))
    data = bytearray(m.save(tmp_path / "two.tflite").read_bytes())
    subgraph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    tensors = [subgraph.Tensors(n) for n in range(subgraph.TensorsLength())]
    table, row = (
        next(one for one in tensors if one.ShapeAsNumpy().tolist() == shape and one.Buffer() > 0)
        for shape in ([4, 8], [32])
    )
    place = row._tab.Pos + row._tab.Offset(8)  # of its buffer's number
    data[place : place + 4] = table.Buffer().to_bytes(4, "little")
    path = tmp_path / "shared.tflite"
    path.write_bytes(data)
    compiled = utvm_deploy.compile(path, "host", number_format="bfloat16")
    assert compiled.weights_bytes < 2 * 32 + 4 * (32 + 4) + 16
    assert utvm_deploy.verify(path, "host", samples=2, number_format="bfloat16").ok


@pytest.mark.parametrize("name", ["bfloat16", str(EXAMPLE)])
def test_inspect_counts_numbers(tmp_path: Path, name: str) -> None:
    path = network(tmp_path / "net.tflite")
    floats, found = (utvm_deploy.inspect(path, number_format=one) for one in (None, name))
    for one, row in zip(floats.table, found.table, strict=True):
        assert row["weights_bytes"] in (one["weights_bytes"], one["weights_bytes"] // 2) or (
            one["weights_bytes"] // 2 < row["weights_bytes"] < one["weights_bytes"]
        )
    compiled = utvm_deploy.compile(path, "host", number_format=name)
    assert 0 <= compiled.weights_bytes - (found.found.weights_bytes or 0) < 64


def test_a_report_names_formats_without_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(network(tmp_path / "net.tflite").parent)
    command = ["report", "net.tflite", "--board", "host", "-o", "net.html", "--format"]
    assert main([*command, str(EXAMPLE)]) == 1
    assert "a report names no code, such as the number format " in capsys.readouterr().err
    assert main([*command, "bfloat16"]) == 0
    stored = read_report(Path("net.html"))
    assert stored["options"]["number_format"] == "bfloat16"
    assert main(["reproduce", "net.html"]) == 0
    assert "0 differ" in capsys.readouterr().out
    stored["options"]["number_format"] = str(EXAMPLE)
    Path("edited.json").write_text(json.dumps(stored))
    assert main(["reproduce", "edited.json"]) == 1
    assert "a report names no code" in capsys.readouterr().err


def test_kernels_of_numbers_are_tuned(tmp_path: Path) -> None:
    path = network(tmp_path / "net.tflite")
    found = utvm_deploy.tune(path, "host", tmp_path / "r.jsonl", trials=4, number_format="float16")
    assert any("float16" in row["kernel"] for row in found.table)
    with pytest.raises(UsageError, match="workers of a cluster know no number formats"):
        utvm_deploy.tune(
            path, "host", found.records, trials=1, cluster="tcp://x:1", number_format="float16"
        )
