"""Guard pages find what reads one byte too far, on both sides of a buffer, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from guarded import PAGE, compile_apart, faults_of, faults_of_compiled, is_possible, plan_of
from tflite_writer import ModelWriter

from utvm_deploy import connect
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device

pytestmark = pytest.mark.skipif(not is_possible(), reason="guard pages are for Linux on x86-64")
INPUTS = [np.arange(13, dtype=np.int8).reshape(1, 13)]


@pytest.fixture
def host() -> Iterator[Device]:
    with connect("host") as device:
        yield device


def model_in(folder: Path) -> Path:
    m = ModelWriter()
    x = m.input((1, 13), 0.1)
    y = m.fully_connected(x, np.ones((9, 13), np.int8), np.zeros(9, np.int32), scale=0.2)
    m.output(m.add(y, y, scale=0.3))
    return m.save(folder / "model.tflite")


def test_a_right_model_faults_nowhere(host: Device, tmp_path: Path) -> None:
    assert faults_of(host, plan_of(model_in(tmp_path), host.board), INPUTS) == []


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("layer", [0, 1])
def test_one_byte_too_far(host: Device, tmp_path: Path, at_end: bool, layer: int) -> None:
    compiled = compile_apart(plan_of(model_in(tmp_path), host.board), at_end=at_end)
    text = compiled.sources["model.c"]
    (span,) = [s for s in compiled.layers[layer].arena if s.size_bytes == (13, 9)[layer]][:1]
    assert (span.offset + span.size_bytes * at_end) % PAGE == 0
    right = f"const int8_t *)(void *)(arena + {span.offset})"
    at = text.index(right, text.index(f"static void layer_{layer}("))
    wrong = right.replace(str(span.offset), str(span.offset + (1 if at_end else -1)))
    sources = {**compiled.sources, "model.c": text[:at] + wrong + text[at + len(right) :]}
    (found,) = faults_of_compiled(host, [replace(compiled, sources=sources)], INPUTS)
    assert found.startswith(f"layer {layer}, ") and "fault" in found.lower()
    # What was protected is not any more.
    assert faults_of(host, plan_of(model_in(tmp_path), host.board), INPUTS) == []


def test_buffers_take_turns(tmp_path: Path) -> None:
    """In a quick check, some begin where their pages begin, and others end where these end."""
    compiled = compile_apart(plan_of(model_in(tmp_path), load_board("host")), at_end=None)
    spans = [span for layer in compiled.layers for span in layer.arena]
    assert {span.offset % PAGE == 0 for span in spans} == {False, True}
    assert all(0 in (span.offset % PAGE, (span.offset + span.size_bytes) % PAGE) for span in spans)
