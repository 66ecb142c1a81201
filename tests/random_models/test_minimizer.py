"""The minimizer, on kernels that are made wrong on purpose, and on the shapes of recipes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from random_models.command import main, store
from random_models.generator import generate
from random_models.minimizer import minimize, pruned, simpler
from random_models.recipe import Recipe, Unfit, write
from random_models.runner import Rig, Verdict
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Softmax

#: Seeds whose models are large and hold what the injected faults need.
OPERATORS = ("CONV_2D", "MAX_POOL_2D", "PAD", "RELU", "SOFTMAX")


def wrong_softmax(path: Path) -> CompiledModel:
    """The compiler, with a softmax that is much flatter than it should be."""
    graph = load_model(path)
    operators = [
        replace(one, attributes=replace(one.attributes, beta=one.attributes.beta / 64))
        if isinstance(one.attributes, Softmax)
        else one
        for one in graph.operators
    ]
    return compile_model(
        graph.replaced(operators=tuple(operators)), load_board("host"), CompileOptions(name="net")
    )


@pytest.fixture(scope="module")
def broken() -> Iterator[Rig]:
    with Rig("host", wrong_softmax) as rig:
        yield rig


def large_recipe_with(kind: str) -> Recipe:
    """The first model of six operators or more, that kind not the last, all in one piece."""
    for seed in range(500):
        recipe = generate(seed, OPERATORS)
        if len(recipe.kinds) >= 6 and kind in recipe.kinds[1:-1]:
            return recipe
    raise AssertionError(f"no model with {kind}")


@pytest.mark.tools
def test_a_wrong_kernel_is_reduced_to_itself(broken: Rig, tmp_path: Path) -> None:
    recipe = large_recipe_with("SOFTMAX")
    first = broken.check(recipe)
    assert first.verdict is Verdict.WRONG and first.wrong_kind == "SOFTMAX"
    found = minimize(recipe, lambda smaller: broken.check(smaller).verdict is Verdict.WRONG)
    assert found.recipe.kinds == ("SOFTMAX",)
    (x, softmax) = found.recipe.steps
    # All of one element is 127, right or wrong.
    assert x.attributes["shape"] == (2,)
    assert (x.attributes["scale"], x.attributes["zero_point"]) == (1.0, 0)
    assert softmax.attributes["beta"] == 1.0
    assert write(found.recipe).save(tmp_path / "smallest.tflite").stat().st_size < 1500


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_every_reduction_is_smaller_and_ends(seed: int) -> None:
    """With a fault that needs only a RELU or a PAD, whatever else there is."""
    recipe = generate(seed, OPERATORS)
    wanted = recipe.kinds[-1]
    found = minimize(recipe, lambda smaller: wanted in smaller.kinds, max_tries=5000)
    assert found.recipe.kinds == (wanted,)
    assert len(found.recipe.steps) == 2
    for candidate in simpler(found.recipe):
        # Whatever is still simpler is not a model, or has not the operator any more.
        with pytest.raises(Unfit):
            write(candidate)
            assert wanted in candidate.kinds, candidate
            raise Unfit("a reduction was left over")


def test_pruning_keeps_what_outputs_need() -> None:
    recipe = generate(11, OPERATORS)
    assert pruned(recipe) == recipe
    first = next(n for n, step in enumerate(recipe.steps) if step.kind in OPERATORS)
    alone = pruned(Recipe(recipe.steps, ((first, 0),)))
    assert alone.kinds == (recipe.steps[first].kind,)


@pytest.mark.tools
def test_what_fails_is_stored_and_replayed(
    broken: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("random_models.command.REGRESSIONS", tmp_path)
    monkeypatch.setattr(
        "random_models.command.Rig", lambda board, **how: Rig(board, wrong_softmax, **how)
    )
    assert main(["--count", "1", "--seed", "1", "--only", "SOFTMAX"]) == 1
    (path,) = tmp_path.glob("softmax_seed_1.tflite")
    assert "SOFTMAX" in capsys.readouterr().out
    with Rig("host") as right:
        recipe = generate(1, ("SOFTMAX",))
        assert right.check(recipe).verdict is Verdict.EQUAL
    assert path.read_bytes() != write(recipe).to_bytes()


def test_stored_files_are_named_after_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random_models.command.REGRESSIONS", tmp_path / "new")
    path = store(generate(3, OPERATORS), "relu_seed_3")
    assert path.read_bytes() == write(generate(3, OPERATORS)).to_bytes()
