"""Layers that are computed in strips of rows, as the layers of the file that they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.verifying.on_board import verify

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolution, pool, convolution, and an average over the image: one chain."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 32, 32, 2), 0.05, 0)
    y = m.conv2d(
        x, rng.integers(-99, 99, (16, 3, 3, 2), dtype=np.int8), np.arange(16), padding="SAME"
    )
    y = m.max_pool(y, (2, 2), stride=2, padding="VALID")
    y = m.conv2d(
        y, rng.integers(-99, 99, (8, 3, 3, 16), dtype=np.int8), np.arange(8), padding="SAME"
    )
    m.output(m.average_pool(y, (16, 16), padding="VALID"))
    return m.save(tmp_path_factory.mktemp("streamed") / "streamed.tflite")


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    rng = np.random.default_rng(4)
    return rng.integers(-128, 128, (1, 32, 32, 2), dtype=np.int8)


@pytest.fixture(scope="module")
def reference(path: Path, sample: np.ndarray) -> Mapping[int, np.ndarray]:
    return run_reference(path, [[sample]]).tensors[0]


@pytest.fixture(scope="module")
def compiled(path: Path) -> CompiledModel:
    made = compile_model(path, load_board("host"), CompileOptions(objective=Objective.RAM))
    assert sum(layer.kind == "MOVE" for layer in made.layers) > 10
    assert any(layer.kind == "POOL_SUMS" for layer in made.layers)
    return made


def broken(compiled: CompiledModel, *wrong: Layer) -> CompiledModel:
    """The model, with one wrong byte at the start of what these calls write."""
    patch = "".join(
        f"    if (index == {one.index}) {{ arena[{one.outputs[0].offset}] ^= 1; }}\n"
        for one in wrong
    )
    head, tail = compiled.sources[f"{compiled.name}.c"].split(
        call := "        layers[index](arena);\n    }\n}\n", 1
    )
    text = head + call[:-2] + patch + "}\n" + tail
    return replace(compiled, sources={**compiled.sources, f"{compiled.name}.c": text})


def test_run_layers_gives_whole_tensors(
    host: Device, compiled: CompiledModel, sample: np.ndarray, reference: Mapping[int, np.ndarray]
) -> None:
    runs = host.load(compiled, into="ram").run_layers(sample)
    kinds = [run.layer.kind for run in runs]
    assert kinds == ["CONV_2D", "MAX_POOL_2D", "CONV_2D", "AVERAGE_POOL_2D"]
    assert [run.layer.operators for run in runs] == [(0,), (1,), (2,), (3,)]
    for run in runs:
        (output,), (array,) = run.layer.outputs, run.outputs
        assert output.source is not None and output.rows is None and "[" not in run.layer.name
        np.testing.assert_array_equal(array, reference[output.source])
        assert run.strips > 1 and f"in {run.strips} strips" in run.headline
    assert [row["strips"] for row in runs.table] == [run.strips for run in runs]


def test_a_layer_in_strips_is_replaced_as_a_whole(
    host: Device, compiled: CompiledModel, sample: np.ndarray, reference: Mapping[int, np.ndarray]
) -> None:
    model = host.load(compiled, into="ram")
    plain = model.run_layers(sample)
    for one in (0, 2, 3):
        index = plain[one].layer.index
        same = model.run_layers(sample, replace={index: "reference"}, reference=reference)
        assert [run.is_replaced for run in same] == [place == one for place in range(4)]
        assert same[one].ticks == 0
        for a, b in zip(plain, same, strict=True):
            np.testing.assert_array_equal(a.outputs[0], b.outputs[0])
    zeros = np.zeros_like(plain[1].outputs[0])
    other = model.run_layers(sample, replace={plain[1].layer.index: zeros})
    np.testing.assert_array_equal(other[1].outputs[0], zeros)
    assert (other[2].outputs[0] != plain[2].outputs[0]).any()
    strip = layers_of_file(compiled.layers)[0].strips[1].index
    with pytest.raises(ModelError, match=f"call {strip} .* a part of layer 0; replace"):
        model.run_layers(sample, replace={strip: zeros})


def test_verify_has_a_row_for_each_layer_and_names_the_strip(
    host: Device, compiled: CompiledModel, path: Path, sample: np.ndarray
) -> None:
    samples = Samples(((sample,),), None, "random")
    right = verify(host.load(compiled, into="ram"), path, samples)
    assert right.ok and [check.layer.operators for check in right.layers] == [
        (0,),
        (1,),
        (2,),
        (3,),
    ]
    assert right.layer_bytes == 32 * 32 * 16 + 16 * 16 * 16 + 16 * 16 * 8 + 8
    second = layers_of_file(compiled.layers)[2]
    strip = second.strips[3]
    rows = strip.outputs[0].rows
    assert rows is not None and rows[0] > 0
    found = verify(host.load(broken(compiled, strip), into="ram"), path, samples)
    wrong = [check for check in found.layers if check.mismatch]
    mismatch = wrong[0].mismatch
    assert not found.ok and wrong[0].layer.index == second.layer.index and mismatch is not None
    assert mismatch.tensor == strip.name and mismatch.call == strip.index
    assert mismatch.element == (0, rows[0], 0, 0) and mismatch.elements == 16 * 16 * 8


def test_rows_that_are_pushed_are_one_layer(host: Device, path: Path, sample: np.ndarray) -> None:
    pushed = compile_model(
        path, host.board, CompileOptions(objective=Objective.RAM, input_rows=True)
    )
    runs = host.load(pushed, into="ram").run_layers(sample)
    assert runs[0].layer.kind == "INPUT_ROWS" and runs[0].layer.name == pushed.taken[0].name
    np.testing.assert_array_equal(runs[0].outputs[0], sample)


def test_the_command_has_no_row_of_a_strip(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["verify", str(path), "--board", "host", "--optimize", "ram", "--samples", "1"]
    assert main(argv) == 0
    assert "bytes of 4 layers, all equal" in capsys.readouterr().out
