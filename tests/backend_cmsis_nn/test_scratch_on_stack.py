"""Scratch on the stack: the same bytes come out, the arena shrinks, and the image's stack grows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.errors import CompileError, DeviceError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project.fit import with_stack_for

DIGITS = data_dir("models") / "digits.tflite"


def test_bytes_are_the_same_on_every_board(device: Device, small_model: Path) -> None:
    (inputs,) = random_samples(load_model(small_model), 1).inputs
    sums = []
    for scratch in ("arena", "stack"):
        compiled = utvm_deploy.compile(
            small_model, device.board, kernels="generic", scratch=scratch
        )
        sums.append(device.load(compiled).run_checked(inputs))
    assert sums[0] == sums[1]


def test_the_arena_holds_activations_alone() -> None:
    board = load_board("mps2_an500")
    arena, stack = (
        utvm_deploy.compile(DIGITS, board, kernels="generic", scratch=place)
        for place in ("arena", "stack")
    )
    needs = [layer.scratch_bytes for layer in stack.layers]
    assert needs == [layer.scratch_bytes for layer in arena.layers] and max(needs) > 0
    assert arena.stack_bytes == 0 and "below one kilobyte" in arena.sources["digits.h"]
    # In whole words of eight bytes.
    assert max(needs) <= stack.stack_bytes < max(needs) + 8
    assert stack.arena_bytes < arena.arena_bytes
    assert f"below {1024 + stack.stack_bytes} bytes" in stack.sources["digits.h"]
    words = re.findall(r"int64_t scratch_0\[(\d+)\]", stack.sources["digits.c"])
    assert [8 * int(count) for count in words] == [-(-one // 8) * 8 for one in needs if one]
    larger = with_stack_for(stack, board).project.stack_bytes
    assert larger >= max(board.project.stack_bytes, 1024 + stack.stack_bytes)
    much = replace(stack, stack_bytes=9_232)
    assert with_stack_for(much, board).project.stack_bytes == 12_288  # in eighths of 16 KiB
    assert with_stack_for(arena, board) == board


def test_what_the_stack_cannot_hold_stays_in_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    from utvm_deploy.compiler import options

    board = load_board("mps2_an500")
    whole = utvm_deploy.compile(DIGITS, board, kernels="generic", scratch="stack")
    needs = sorted({layer.scratch_bytes for layer in whole.layers})
    monkeypatch.setattr(options, "MAX_STACK_SCRATCH_BYTES", needs[-1] - 1)
    part = utvm_deploy.compile(DIGITS, board, kernels="generic", scratch="stack")
    assert part.stack_bytes < whole.stack_bytes and part.arena_bytes >= whole.arena_bytes


def test_refusals() -> None:
    with pytest.raises(
        CompileError, match="no scratch place 'heap'; choose one of auto, arena, stack"
    ):
        utvm_deploy.compile(DIGITS, "host", scratch="heap")
    compiled = utvm_deploy.compile(DIGITS, "host", kernels="generic", scratch="stack")
    with (
        utvm_deploy.connect("host") as device,
        pytest.raises(DeviceError, match=r"scratch on the stack.*compile it with scratch='arena'"),
    ):
        device.load(compiled, into="ram")
