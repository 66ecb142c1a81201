"""Equal steps become a loop in C, which computes what the reference makes of the written-out file.

The layers that are counted stay, one for each call.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from host_model import HostModel, build_objects
from small_models import int8
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.repeats import Repeat, repeats
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.file_layers import layers_of_file
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.compiled.model import CompiledModel, Loop
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.oracle.reference import run_reference

STEPS, INPUTS, CELLS = 6, 16, 8


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("abcabcabc", [Repeat(0, 3, 9)]),
        ("xabcabcab", [Repeat(1, 3, 8)]),
        ("aaaa", [Repeat(0, 1, 4)]),
        ("abababcdcdcd", [Repeat(0, 2, 6), Repeat(6, 2, 6)]),
        ("abcabcabcxbcxbc", [Repeat(0, 3, 9), Repeat(9, 3, 6)]),
        ("abcd", []),
        ("", []),
    ],
)
def test_repeats(text: str, found: list[Repeat]) -> None:
    assert repeats(text) == found


def recurrent(
    steps: int = STEPS, *, scale_of_last: float = 0.02, has_views: bool = False
) -> ModelWriter:
    """A cell over the rows of an input, there and back, with its first state as an input."""
    m, rng = ModelWriter(), np.random.default_rng(7)
    x = m.input((1, steps, INPUTS), 0.05)
    made = []
    for order in (range(steps), reversed(range(steps))):
        state = m.input((1, CELLS), 0.02)
        into, back = int8(rng, CELLS, INPUTS), int8(rng, CELLS, CELLS)
        for number, step in enumerate(order):
            begin, size = (
                m.constant(np.array(v, np.int32)) for v in ([0, step, 0], [1, 1, INPUTS])
            )
            row = m.reshape(m.node("SLICE", [x, begin, size], (1, 1, INPUTS)), (1, INPUTS))
            first = m.fully_connected(row, into, scale=0.1)
            second = m.fully_connected(state, back, scale=0.1)
            total = m.add(first, second, scale=0.1)
            state = m.node("LOGISTIC", [total], (1, CELLS), scale=1 / 256, zero_point=-128)
            last = number + 1 == steps and order != range(steps)
            scale = scale_of_last if last else 0.02
            state = m.node("QUANTIZE", [state], (1, CELLS), scale=scale, zero_point=0)
            made.append(state)
    options = ("ConcatenationOptions", {"Axis": 1, "FusedActivationFunction": 0})
    there = [m.reshape(one, (1, CELLS, 1)) if has_views else one for one in made[:steps]]
    shape = (1, steps * CELLS, 1) if has_views else (1, steps * CELLS)
    m.output(m.node("CONCATENATION", there, shape, options), made[-1])
    return m


def followed_by_a_layer(m: ModelWriter) -> ModelWriter:
    """With a layer behind the loops, which has weights."""
    whole, rng = m.outputs[0], np.random.default_rng(1)
    m.output(m.fully_connected(whole, int8(rng, 4, STEPS * CELLS), scale=0.3))
    return m


def compiled_for(path: Path, board: str = "host", **options: object) -> CompiledModel:
    return compile_model(path, load_board(board), CompileOptions(**options))  # type: ignore[arg-type]


@pytest.mark.tools
def test_a_recurrent_layer_there_and_back(tmp_path: Path) -> None:
    """Both directions are loops, whole and layer by layer, and the C has one step of each."""
    path = recurrent().save(tmp_path / "cell.tflite")
    compiled = compiled_for(path)
    assert [(loop.period, loop.steps) for loop in compiled.loops] == [(5, STEPS), (5, STEPS)]
    assert compiled.sources["cell.c"].count("static void layer_") == len(compiled.layers) - 50
    rng = np.random.default_rng(3)
    inputs = [int8(rng, *buffer.shape) for buffer in compiled.inputs]
    run = run_reference(path, [inputs])
    host = HostModel(compiled, tmp_path)
    for ours, theirs in zip(host.run(inputs), run.outputs[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for source, array in host.run_layers(inputs).items():
        np.testing.assert_array_equal(array, run.tensors[0][source].reshape(array.shape))


@pytest.mark.tools
@pytest.mark.parametrize("has_views", [False, True])
def test_the_calls_of_a_loop_are_one_layer(has_views: bool, tmp_path: Path) -> None:
    compiled = compiled_for(recurrent(has_views=has_views).save(tmp_path / "cell.tflite"))
    layers = layers_of_file(compiled.layers, compiled.loops)
    there, back = (one for one in layers if one.loop is not None)
    # The state of each step is read after the first loop, and that of the last step only after
    # the second one.
    assert len(there.layer.outputs) == STEPS and len(back.layer.outputs) == 1
    assert there.layer.kind == "LOOP" and there.layer.macs == STEPS * (INPUTS + CELLS) * CELLS
    assert [call.index for one in layers for call in one.calls] == list(range(len(compiled.layers)))
    write_library(compiled, tmp_path / "cell.tar")
    assert read_library(tmp_path / "cell.tar").loops == compiled.loops


@pytest.mark.tools
def test_an_archive_with_an_impossible_loop_is_refused(tmp_path: Path) -> None:
    compiled = compiled_for(recurrent().save(tmp_path / "cell.tflite"))
    for loops, why in (
        ([Loop(3, 5, 600, (4,))], "the steps of a loop is 600"),
        ([Loop(3, 5, 4, ())], "the number of calls that a loop leaves outputs of is 0"),
        ([Loop(0, 5, 4, (4,)), Loop(15, 5, 4, (19,))], "the first layer of a loop is 15"),
    ):
        write_library(replace(compiled, loops=tuple(loops)), tmp_path / "cell.tar")
        with pytest.raises(ModelError, match=why):
            read_library(tmp_path / "cell.tar")


@pytest.mark.tools
def test_steps_that_differ_are_no_loop(tmp_path: Path) -> None:
    """Of five steps back, four are equal if the last one has another scale."""
    path = recurrent(5, scale_of_last=0.03).save(tmp_path / "cell.tflite")
    assert [loop.steps for loop in compiled_for(path).loops] == [5, 4]
    assert compiled_for(path, whole_layers=True).loops == ()


@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_the_c_has_no_warnings(compiler: str, tmp_path: Path) -> None:
    """The name of the model contains that of a parameter."""
    path = followed_by_a_layer(recurrent()).save(tmp_path / "footstep.tflite")
    build_objects(compiled_for(path), tmp_path / "c", compiler)


@pytest.mark.tools
def test_lstm_of_keras(shared_models: Path) -> None:
    """Two layers as WHILE: of 521 calls, the C has one step of each layer."""
    compiled = compiled_for(shared_models / "found" / "lstm_k3_f.tflite", "mps2_an500")
    assert [loop.steps for loop in compiled.loops] == [19, 19]
    assert compiled.sources["lstm_k3_f.c"].count("static void layer_") < 60
