"""Random models with copies of weights, and perhaps scratch, in another memory than the arena's."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from random_models.by_pass import model_of
from random_models.runner import Outcome, Rig, Verdict, samples_for
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model

#: Board -> first seed and number of models, in the long run.
LONG = {"host": (20_000, 2_000), "mps2_an500": (23_000, 300)}
#: A short run takes every tenth of so many models of the long one, for seconds.
QUICK = 200
FEWEST_EQUAL = 0.7
#: Bytes: a part of the weights, perhaps all of them, and scratch as well.
SIZES = (200, 3_000, 20_000)


def run_seeds(board: str, seeds: Sequence[int], *, fence: bool = False) -> list[Outcome]:
    used: Counter[int] = Counter()
    sizes: dict[str, int] = {}

    def compiled(path: Path) -> CompiledModel:
        size = sizes[path.stem]
        found = compile_model(path, load_board(board), CompileOptions(pools={"dtcm": size}))
        used[size] += bool(found.pools)
        return found

    outcomes = []
    with Rig(board, compiled, fence=fence) as rig:
        for position, seed in enumerate(seeds):
            model = model_of(seed)
            path = model.save(rig.folder / f"seed_{seed}.tflite")
            sizes[path.stem] = SIZES[position % len(SIZES)]
            outcomes.append(rig.check_file(path, samples_for(model)))
            path.unlink()
    print(Counter(outcome.verdict.name for outcome in outcomes), dict(used))
    assert all(used[size] for size in SIZES)
    return outcomes


def check(outcomes: Sequence[Outcome]) -> None:
    # Others may have left the RAM of a board in pieces that are too small for a large model.
    outcomes = [one for one in outcomes if "has no room for" not in one.detail]
    faults = [f"{o.name}: {o.verdict.value}: {o.detail}" for o in outcomes if o.verdict.is_fault]
    assert not faults, "\n".join(faults)
    equal = sum(one.verdict is Verdict.EQUAL for one in outcomes)
    assert equal >= FEWEST_EQUAL * len(outcomes)


@pytest.mark.tools
def test_some_models_with_pools() -> None:
    first, _ = LONG["host"]
    check(run_seeds("host", range(first, first + QUICK, 10)))


@pytest.mark.soak
@pytest.mark.parametrize("name", LONG)
def test_many_models_with_pools(name: str) -> None:
    emulator = load_board(name).emulator
    if emulator and not shutil.which(emulator.program):
        pytest.skip(f"{emulator.program} is not installed")
    first, count = LONG[name]
    check(run_seeds(name, range(first, first + count), fence=emulator is not None))
