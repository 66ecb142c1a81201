"""Random models with each pass over the graph alone, and with all passes together."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from random_models.by_pass import TOGETHER, PassRun, model_of, run_seeds
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify

#: Board -> first seed and number of models, in the long run.
LONG = {"host": (10_000, 2_000), "mps2_an500": (13_000, 300)}
#: A short run takes every ninth of so many models of the long one, for seconds.
QUICK = 180
STEP = 9
FEWEST_EQUAL = 0.7


def check(found: PassRun, models: int) -> None:
    for name in found.outcomes:
        print(f"{name}: {dict(found.count(name))}")
    assert not found.faults(), "\n".join(found.faults())
    assert found.count(TOGETHER)["EQUAL"] >= FEWEST_EQUAL * models


@pytest.mark.tools
def test_some_models_with_each_pass() -> None:
    first, _ = LONG["host"]
    found = run_seeds("host", range(first, first + QUICK, STEP), is_quick=True)
    check(found, QUICK // STEP)
    # These need what ``with_work`` does.
    assert {"drop_dead_channels", "share_equal", "join_dense"} <= set(found.outcomes)


@pytest.mark.soak
@pytest.mark.parametrize("name", LONG)
def test_many_models_with_each_pass(name: str) -> None:
    emulator = load_board(name).emulator
    if emulator and not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    first, count = LONG[name]
    check(run_seeds(name, range(first, first + count)), count)


@pytest.mark.slow
def test_models_of_all_kinds_lose_channels(tmp_path: Path) -> None:
    """Channels go from the output of each kind of operator that the pass can follow."""
    kinds: Counter[str] = Counter()
    wide: Counter[str] = Counter()
    first, _ = LONG["host"]
    for seed in range(first, first + 200):
        try:
            graph = load_model(model_of(seed).save(tmp_path / "m.tflite"))
        except UtvmError:
            continue
        less = simplify(graph)
        for operator in less.operators:
            tensor = less.tensors[operator.outputs[0]]
            if tensor.channels is not None:
                (wide if tensor.dtype == "int16" else kinds)[operator.kind] += 1
    layers = {"ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D"}
    assert layers | {"CONCATENATION", "MEAN", "QUANTIZE"} <= set(kinds), kinds
    assert {"CONV_2D", "CONCATENATION"} <= set(wide), wide


def test_a_seed_has_the_same_work() -> None:
    for seed in range(10):
        one, other = (model_of(seed).to_bytes() for _ in range(2))
        assert one == other
