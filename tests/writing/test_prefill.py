"""Blocks of steps: they leave what the single steps leave, and a prompt is taken by them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigrams import LENGTH, PIECES
from cached import cached
from host_model import HostModel

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Prefill

EXAMPLE = data_dir("templates").parent / "examples" / "writer"
BLOCK = 4
PROMPT = "abcab bca"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step and a block that was quantized otherwise, in one file."""
    folder = tmp_path_factory.mktemp("prefill")
    step, block = cached(folder / "step.tflite"), cached(folder / "b.tflite", BLOCK, scale=0.07)
    found = utvm_deploy.convert(step, folder / "both.tflite", prefill=block)
    assert found.output is not None
    return found.output


@pytest.mark.parametrize("board_name", ["host", "mps2_an500"])
def test_blocks_and_steps_in_any_order(board_name: str, model: Path) -> None:
    rng = np.random.default_rng(7)
    compiled = utvm_deploy.compile(model, board_name)
    with utvm_deploy.connect(board_name) as device:
        loaded = device.load(compiled)
        for _ in range(6):
            tokens = rng.integers(0, len(PIECES), LENGTH).astype(np.int32)
            loaded.reset_state()
            scores = []
            for place, token in enumerate(tokens):
                given = np.array([token], np.int32), np.array([place], np.int32)
                scores.append(loaded.step(given)[0][0].tobytes())
            wanted = loaded.state()
            loaded.reset_state()
            place = 0
            while place < LENGTH:
                first = np.array([place], np.int32)
                if place + BLOCK <= LENGTH and rng.random() < 0.5:
                    loaded.prefill((tokens[place : place + BLOCK], first))
                    place += BLOCK
                else:
                    made, _ = loaded.step((tokens[place : place + 1], first))
                    assert made[0].tobytes() == scores[place]
                    place += 1
            assert loaded.state() == wanted
        with pytest.raises(ModelError, match=r"says 9, and there are 0 to 8.*nothing was run"):
            loaded.prefill((tokens[:BLOCK], np.array([9], np.int32)))
        assert loaded.state() == wanted
    assert utvm_deploy.verify(model, board_name, samples=4).ok


def run(capsys: pytest.CaptureFixture[str], path: Path, board: str) -> tuple[str, dict[str, Any]]:
    argv = ["run", str(path), "--board", board, "--prompt", PROMPT, "--seed", "2"]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert main([*argv, "--json"]) == 0
    return shown, json.loads(capsys.readouterr().out)


def test_a_prompt_is_taken_by_blocks(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown, found = run(capsys, model, "mps2_an500")
    _, alone = run(capsys, cached(tmp_path / "step.tflite"), "mps2_an500")
    assert found["text"] == alone["text"] and found["tokens"] == alone["tokens"]
    assert found["prompt_ticks"] < alone["prompt_ticks"]
    assert found["text"]
    # Not its cycles: a message that is sent again on a loaded machine interrupts the model.
    assert re.search(r"in [\d,]+ modelled cycles on mps2_an500:\n  6 of the prompt \(", shown)
    assert " written (" in shown
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import firmware

    for path in (model, tmp_path / "step.tflite"):
        folder = tmp_path / path.stem
        image = firmware.make(path, "mps2_an500", folder, firmware.sampling_header(seed=2))
        (answer,) = firmware.play(image, "mps2_an500", [PROMPT])
        assert answer.splitlines()[0] == f"{PROMPT}{found['text']}"
        assert ", of which the prompt's 6 took " in answer


def test_the_c_checks_the_places_of_each_part(model: Path, tmp_path: Path) -> None:
    compiled = utvm_deploy.compile(model, "host")
    archive = tmp_path / "both.tar"
    write_library(compiled, archive)
    assert read_library(archive).prefill == compiled.prefill
    for name in ("step", "prefill", "run"):
        assert f"void both_{name}(uint8_t *arena);" in compiled.sources["both.h"]
    ours = HostModel(compiled, tmp_path)
    inputs = [np.zeros(one.shape, np.int32) for one in compiled.inputs]
    inputs[3][0] = LENGTH - BLOCK + 1
    assert [ours.outside(inputs), ours.outside(inputs, "prefill_")] == [-1, 3]
    inputs[3][0], inputs[1][0] = LENGTH - BLOCK, LENGTH
    assert [ours.outside(inputs), ours.outside(inputs, "prefill_")] == [1, -1]


def test_two_files_that_are_no_step_and_block(tmp_path: Path) -> None:
    step = cached(tmp_path / "step.tflite")
    for other, told in (
        (cached(tmp_path / "o.tflite", BLOCK, name="other"), "assigns the variable 'other', and"),
        (cached(tmp_path / "n.tflite", BLOCK, has_relu=True), "made by RELU, and in the step by F"),
        (data_dir("models") / "digits.tflite", "leaves nothing for the step: it assigns no var"),
    ):
        with pytest.raises(ModelError, match=told):
            utvm_deploy.convert(step, prefill=other)
    path = tmp_path / "step.onnx"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="has no signatures; --signature is for"):
        utvm_deploy.convert(path, prefill=step, signature="decode")


def test_signatures_are_chosen_by_their_names(model: Path, tmp_path: Path) -> None:
    assert utvm_deploy.compile(model, "host", signature="decode").prefill is None
    file = schema.read_model(model.read_bytes())
    for one, name in zip(file.signatureDefs, (b"one,more", b"more"), strict=True):
        one.signatureKey = name
    path = tmp_path / "comma.tflite"
    path.write_bytes(schema.model_bytes(file))
    assert utvm_deploy.inspect(path, signature="one,more").graph.prefill is None
    file.signatureDefs[0].signatureKey = b"one"
    path = tmp_path / "named.tflite"
    path.write_bytes(schema.model_bytes(file))
    with pytest.raises(ModelError, match="has the signatures 'one', 'more'; choose one"):
        utvm_deploy.compile(path, "host")
    with pytest.raises(ModelError, match="no signature 'others'; its signatures: one, more"):
        utvm_deploy.compile(path, "host", signature="one,others")
    compiled = utvm_deploy.compile(path, "host", signature="one,more")
    assert [one.name for one in compiled.block_inputs] == ["prefill_token", "prefill_position"]
    assert utvm_deploy.verify(path, "host", signature="one,more", samples=2).ok


@pytest.mark.parametrize("told", ['{"inputs": 1.0, "operators": 2}', '{"inputs": 2}', "[]"])
def test_damaged_facts_of_a_block_are_refused(told: str) -> None:
    with pytest.raises(ModelError, match="its metadata utvm_prefill is damaged"):
        Prefill.of_json(told, 4)
