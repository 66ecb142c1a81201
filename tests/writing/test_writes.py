"""A language model writes: through a session, on the command line, and as firmware."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigrams import LENGTH, PIECES, WORDS, bigrams

import utvm_deploy
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.device.writing import Sampler, write

EXAMPLE = data_dir("templates").parent / "examples" / "writer"
FIRMWARE_BOARDS = ("mps2_an500", "mps3_an547", "qemu_rv32imc")


def run_json(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> dict[str, Any]:
    assert main(["run", *map(str, argv), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def said(capsys: pytest.CaptureFixture[str], code: int, *argv: str | Path) -> str:
    assert main(["run", *map(str, argv)]) == code
    return capsys.readouterr().err.splitlines()[-1]


def by_hand(model: Path, prompt: str, sampler: Sampler) -> str:
    """The text, computed by the host board from single runs."""
    with utvm_deploy.connect("host") as device:
        loaded = device.load(utvm_deploy.compile(model, "host"))
        steps = list(write(loaded, WORDS, WORDS.begin(prompt), sampler))
    return prompt_and_text(prompt, [step.following for step in steps])


def prompt_and_text(prompt: str, following: Sequence[int]) -> str:
    tokens = following[len(WORDS.begin(prompt)) - 1 :]
    return prompt + "".join(PIECES[token] for token in tokens if token != WORDS.end)


def test_a_session_writes_what_single_runs_say(device: Device, tmp_path: Path) -> None:
    model = device.load(utvm_deploy.compile(bigrams(tmp_path / "m.tflite"), device.board))
    steps = list(write(model, WORDS, WORDS.begin("ab"), Sampler(seed=3)))
    again = list(islice(write(model, WORDS, WORDS.begin("ab"), Sampler(seed=3)), 4))
    assert [step.following for step in again] == [step.following for step in steps][:4]
    assert [step.token for step in steps[:2]] == [0, 5]
    assert len(steps) <= LENGTH
    sampler, output = Sampler(seed=3), model.compiled.outputs[0]
    model.reset_state()
    for position, step in enumerate(steps):
        scores = model(np.array([step.token], np.int32), np.array([position], np.int32))
        if position:
            assert step.following == sampler.choose(scores, output.scale or 0)


def test_the_command_line_streams_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = bigrams(tmp_path / "m.tflite")
    options = ("--board", "host", "--prompt", "bca", "--seed", "7")
    found = run_json(capsys, model, *options)
    text = by_hand(model, "bca", Sampler(seed=7))
    assert f"{found['prompt']}{found['text']}" == text
    assert main(["run", str(model), *options]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == text
    count = len(found["tokens"]) + 1
    assert shown[1].startswith(f"{count} tokens in ") and shown[2].startswith("  2 of the prompt (")
    assert (found["tokens"][-1] == 0) == (len(shown) == 3)
    fewer = run_json(capsys, model, *options, "--tokens", "3")
    assert fewer["tokens"] == found["tokens"][:3]
    best = run_json(capsys, model, *options, "--temperature", "0")
    assert best["tokens"] == run_json(capsys, model, *options, "--top-k", "1")["tokens"]


def test_a_vocabulary_may_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = bigrams(tmp_path / "m.tflite", vocabulary=None)
    options = (model, "--board", "host", "--prompt", "a")
    assert "m.tflite has no vocabulary" in said(capsys, 1, *options)
    words = tmp_path / "words.json"
    words.write_text(WORDS.to_json())
    assert run_json(capsys, *options, "--vocabulary", words)["tokens"]
    words.write_text('{"pieces": ["\\n", "a"], "end": 0, "length": 3}')
    told = said(capsys, 1, *options, "--vocabulary", words)
    assert "scores 8 tokens, and its vocabulary has 2 pieces" in told
    digits = ("--board", "host", "--prompt", "a", "--vocabulary", words)
    assert "does not write" in said(capsys, 1, data_dir("models") / "digits.tflite", *digits)


def test_what_a_prompt_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = bigrams(tmp_path / "m.tflite")
    for prompt, told in (
        ("aX", "'X', which is not in the model's vocabulary"),
        (b"a\xff".decode(errors="surrogateescape"), "not UTF-8"),
        ("c" * 12, "has 12 tokens, and the model's cache holds 11"),
    ):
        assert told in said(capsys, 2, model, "--board", "host", "--prompt", prompt)
    assert "give --prompt with it" in said(capsys, 2, model, "--board", "host", "--seed", "1")
    both = ("--board", "host", "--prompt", "a", "--float64")
    assert "leave these out" in said(capsys, 2, model, *both)


def test_interrupting_ends_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []

    def interrupted(*_: object) -> int:
        chosen.append(1)
        if len(chosen) == 3:
            raise KeyboardInterrupt
        return 1

    monkeypatch.setattr(Sampler, "choose", interrupted)
    model = bigrams(tmp_path / "m.tflite")
    assert said(capsys, 130, model, "--board", "host", "--prompt", "b") == (
        "interrupted; after 3 tokens"
    )
    monkeypatch.undo()
    assert run_json(capsys, model, "--board", "host", "--prompt", "b")["text"]


@pytest.mark.parametrize("board_name", FIRMWARE_BOARDS)
def test_firmware_writes_what_the_host_writes(
    board_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import firmware

    model = bigrams(tmp_path / "m.tflite")
    image = firmware.make(model, board_name, tmp_path, firmware.sampling_header(seed=5))
    prompts = ("", "ab", "é b", "X", "c" * 12, "c" * 300)
    answers = firmware.play(image, board_name, prompts)
    for prompt, answer in zip(prompts[:3], answers, strict=False):
        assert answer.splitlines()[0] == by_hand(model, prompt, Sampler(seed=5))
        unit = "modelled cycles" if load_board(board_name).has_cycle_model else "ticks"
        assert " tokens in " in answer and unit in answer
    assert "characters that the model does not know" in answers[3]
    assert "longer than the model's cache" in answers[4]
    assert "the line is too long" in answers[5]


def test_models_without_a_vocabulary_make_no_firmware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import firmware

    model = bigrams(tmp_path / "m.tflite", vocabulary=None)
    with pytest.raises(UtvmError, match="has no vocabulary"):
        firmware.make(model, "mps2_an500", tmp_path, "")
