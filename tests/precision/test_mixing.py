"""Schemes for each layer: the table of layers, the choice, its budgets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import DataError, UsageError, UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.quality.precision import mixing, steps
from utvm_deploy.quality.precision.facts import Budgets, LayerPrice, LayerSensitivity, ModelPrice
from utvm_deploy.quality.precision.mixing import mix
from utvm_deploy.quality.precision.prices import measure
from utvm_deploy.quality.precision.sensitivity import accuracy, layer_sensitivities
from utvm_deploy.quality.precision.steps import (
    MixedModel,
    QuantizedWithLayers,
    Sensitivities,
    sensitivities,
)
from utvm_deploy.quality.quantizing import facts as quantizing_facts
from utvm_deploy.quality.quantizing.facts import Calibration
from utvm_deploy.quality.quantizing.model_steps import calibrated, opened
from utvm_deploy.results.profiling.layer_costs import profile

pytestmark = pytest.mark.tools

MODELS = Path(__file__).resolve().parents[2] / "models"
DIGITS, SAMPLES = MODELS / "digits_float.tflite", MODELS / "digits_calib.npz"


@pytest.fixture(scope="module")
def digits() -> Calibration:
    return calibrated(opened(DIGITS), SAMPLES)


@pytest.fixture(scope="module")
def rows(digits: Calibration) -> tuple[LayerSensitivity, ...]:
    return layer_sensitivities(digits, None, {})


def _measure(data: bytes) -> ModelPrice:
    """A board on which a larger file takes more of everything."""
    return ModelPrice(len(data), "cycles", len(data), len(data), {})


def _prices() -> Mapping[str, ModelPrice]:
    layers: dict[str, LayerPrice] = {}
    return {
        "int8": ModelPrice(100, "cycles", 100, 100, layers),
        "int16x8": ModelPrice(10**6, "cycles", 10**6, 10**6, layers),
    }


def test_each_layer_is_quantized_alone(rows: tuple[LayerSensitivity, ...]) -> None:
    assert [row.kind for row in rows] == [
        *("DEPTHWISE_CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D"),
        *("AVERAGE_POOL_2D", "FULLY_CONNECTED", "SOFTMAX"),
    ]
    decibels = {row.kind: row.sqnr_db["int8"] for row in rows}
    # Softmax of int8 has steps of 1/256; every other layer is behind it.
    assert min(decibels, key=lambda kind: decibels[kind] or 0.0) == "SOFTMAX"
    last = rows[-1].sqnr_db
    assert last["int8"] is not None and last["int16x8"] is not None
    assert last["int16x8"] > last["int8"] + 6


def test_the_cheapest_choice_within_the_loss_is_taken(
    digits: Calibration, rows: tuple[LayerSensitivity, ...]
) -> None:
    losses = []
    for allowed in (0.0, 4.0, 100.0):
        made, recipe = mix(digits, None, rows, max_loss=allowed, budgets=Budgets())
        assert made.loss <= max(allowed, 0.01) and made.is_within
        assert set(made.wide) <= {row.output for row in rows}
        assert set(made.wide) <= set(recipe.operators) or recipe.scheme == "int16x8"
        losses.append((len(made.wide), made.loss))
    # A larger allowance takes no more layers; one that int8 meets takes none.
    assert [count for count, _ in losses] == sorted((c for c, _ in losses), reverse=True)
    assert losses[1][0] == 1 and losses[2][0] == 0
    assert made.losses["int8"] > 4.0 and made.losses["int16x8"] == 0.0
    # Weights of int4 where that is small enough a loss: those of all layers, but of wide ones.
    assert len(made.narrow) == 5 and recipe.narrow == made.narrow
    assert {made.scheme_of(row.output) for row in rows} == {"int4", "int8"}


def test_budgets_take_fewer_wide_layers(
    digits: Calibration, rows: tuple[LayerSensitivity, ...]
) -> None:
    made, _ = mix(
        digits,
        None,
        rows,
        max_loss=0.0,
        budgets=Budgets(ram=200),
        measure=_measure,
        prices=_prices(),
    )
    assert not made.wide and not made.is_within
    # A larger loss than that of int8 is not taken for less flash.
    assert made.loss <= made.losses["int8"]
    with pytest.raises(UtvmError, match="even the int8 model is over a budget: flash 100 of 50"):
        mix(
            digits,
            None,
            rows,
            max_loss=0.0,
            budgets=Budgets(flash=50),
            measure=_measure,
            prices=_prices(),
        )


@pytest.mark.parametrize(("ticks", "is_mixed"), [(500, True), (995, False), (1100, False)])
def test_a_mixed_file_must_be_clearly_faster_than_int16x8(
    digits: Calibration, rows: tuple[LayerSensitivity, ...], ticks: int, is_mixed: bool
) -> None:
    prices = {**_prices(), "int16x8": ModelPrice(1000, "cycles", 1000, 1000, {})}
    made, recipe = mix(
        digits,
        None,
        rows,
        max_loss=4.0,
        budgets=Budgets(),
        measure=lambda _: ModelPrice(ticks, "cycles", 1000, 1000, {}),
        prices=prices,
    )
    assert (recipe.scheme == "int8") == is_mixed
    assert made.price == prices["int16x8"] or is_mixed
    assert made.is_within


@pytest.mark.parametrize("loss", [-1.0, 0.2])
def test_a_smaller_loss_than_is_allowed_does_not_justify_a_price(
    digits: Calibration,
    rows: tuple[LayerSensitivity, ...],
    loss: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def losses(_calibration: Any, _labels: Any, results: Any) -> list[float]:
        return [9.0, *[loss] * (len(results) - 2), 0.0]

    monkeypatch.setattr(mixing, "_losses", losses)
    prices = {**_prices(), "int16x8": ModelPrice(1000, "cycles", 1000, 1000, {})}
    made, recipe = mix(
        digits,
        None,
        rows,
        max_loss=0.5,
        budgets=Budgets(),
        measure=lambda _: ModelPrice(1001, "cycles", 1, 1000, {}),
        prices=prices,
    )
    assert recipe.scheme == "int16x8" and made.price == prices["int16x8"]


def test_a_price_is_what_profile_measures() -> None:
    path, board = MODELS / "digits_int8.tflite", load_board("mps2_an500")
    compiled = utvm_deploy.compile(path, board, name="priced", scratch="auto")
    with utvm_deploy.connect(board) as device:
        known = profile(device.load(compiled), random_samples(load_model(path), 1))
    price = measure(path.read_bytes(), board)
    assert (price.ticks, price.ram_bytes) == (known.ticks, known.ram_bytes)


def test_the_verb_prints_the_table_and_the_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mixed.tflite"
    data = str(MODELS / "digits_labelled.npz")
    words = ["quantize", str(DIGITS), "--data", data, "--scheme", "mixed", "--max-loss", "0.1"]
    assert main([*words, "-o", str(target), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["scheme"] == "mixed" and target.stat().st_size == facts["bytes"]
    assert facts["mixed"]["loss_unit"] == "percentage points"
    assert facts["mixed"]["loss"] <= 0.1 and facts["mixed"]["is_within"]
    assert {row["kind"] for row in facts["layers"]} >= {"CONV_2D", "SOFTMAX"}


def test_a_bad_output_names_the_layers_that_cost_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quantizing_facts, "LEAST_SQNR_DB", {"int8": 90.0, "int16x8": 90.0})
    argv = ["quantize", str(DIGITS), "--data", str(SAMPLES), "-o", str(tmp_path / "q.tflite")]
    for more in ([], ["--sensitivity"]):
        assert main([*argv, *more]) == 0
        told = capsys.readouterr().err
        assert "below 90 dB; of single operators, these cost most: 8 (SOFTMAX, 48." in told
        assert "--sensitivity" not in told
    (told,) = utvm_deploy.quantize(DIGITS, SAMPLES).warnings
    assert "these cost most: 8 (SOFTMAX, 48." in told
    # A model with many layers takes long.
    monkeypatch.setattr(steps, "MOST_TRIED_LAYERS", 3)
    assert main(argv) == 0
    assert "below 90 dB; --sensitivity shows which layers" in capsys.readouterr().err


def test_python_has_the_same(tmp_path: Path) -> None:
    made = utvm_deploy.quantize(DIGITS, SAMPLES, scheme="mixed", max_loss=4.0)
    assert isinstance(made, MixedModel) and made.mixed.loss_unit == "dB"
    made.save(tmp_path / "mixed.tflite")
    types = {tensor.dtype for tensor in load_model(tmp_path / "mixed.tflite").tensors}
    assert {"int4", "int8", "int16"} <= types and "float32" not in types
    assert (
        main(["verify", str(tmp_path / "mixed.tflite"), "--board", "host", "--samples", "2"]) == 0
    )


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.arange(40) % 14, "sample 10 has label 10, and output .* knows classes 0 to 9"),
        (np.array(["cat", "dog"] * 20), "name 2 classes .cat, dog., and output .* has 10"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: Any, said: str) -> None:
    data = {"inputs": np.zeros((40, 8, 8, 1), np.float32), "labels": labels}
    with pytest.raises(DataError, match=said):
        sensitivities(DIGITS, data)


def test_a_single_score_says_one_of_two_classes() -> None:
    scores = np.array([[0.1], [0.9], [0.5], [0.4]], np.float32)
    assert accuracy([scores], np.array([0, 1, 1, 1])) == 75.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-loss", "1"], "--max-loss goes with --scheme mixed"),
        (["--scheme", "mixed", "--ram-budget", "32K"], "a budget is measured on a board"),
        (["--scheme", "mixed", "--cycle-budget", "0"], "is not a number of cycles"),
        (["--scheme", "mixed", "--ram-budget", "0"], "a budget of 0 bytes holds no model"),
        (["--scheme", "mixed", "--flash-budget=-4K"], "is not a size"),
        (["--scheme", "mixed", "--max-loss", "much"], "is not a number, such as 0.5"),
    ],
)
def test_bad_options_are_named(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("UTVM_BOARD", raising=False)
    target = tmp_path / "out.tflite"
    try:
        status = main(["quantize", str(DIGITS), "--data", str(SAMPLES), "-o", str(target), *words])
    except SystemExit as exit:
        status = int(exit.code or 0)
    assert status != 0 and not target.exists()
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def board_mix(digits: Calibration) -> Sensitivities:
    return sensitivities(DIGITS, SAMPLES, board=load_board("mps2_an500"))


@pytest.mark.emulator
@pytest.mark.parametrize("flash", [None, 65536])
def test_a_mixed_model_is_no_dearer_than_int8_and_int16x8(
    board_mix: Sensitivities, flash: int | None
) -> None:
    made, recipe = mix(
        board_mix.calibration,
        None,
        board_mix.rows,
        max_loss=0.5,
        budgets=Budgets(flash=flash),
        measure=partial(measure, board=load_board("mps2_an500")),
        prices=board_mix.prices,
    )
    int8, int16x8 = made.prices["int8"], made.prices["int16x8"]
    assert made.price is not None and made.is_within
    assert made.loss <= made.losses["int8"]
    assert made.price.ticks <= int16x8.ticks
    assert made.price.ram_bytes <= max(int8.ram_bytes, int16x8.ram_bytes)
    if flash is None:
        assert made.price.flash_bytes <= max(int8.flash_bytes, int16x8.flash_bytes)
    else:
        # A budget says what flash there is: a fast mix may use it.
        assert made.price.flash_bytes <= flash and made.price.ticks < 0.7 * int16x8.ticks
        assert made.wide and recipe.scheme == "int8" and made.note is None


@pytest.mark.emulator
def test_a_budget_of_flash_that_int8_exceeds_gets_layers_of_int4(
    board_mix: Sensitivities,
) -> None:
    int8, int4 = board_mix.prices["int8"], board_mix.prices["int4"]
    budget = (int8.flash_bytes + int4.flash_bytes) // 2
    words: dict[str, Any] = {
        "max_loss": 20.0,
        "measure": partial(measure, board=load_board("mps2_an500")),
        "prices": board_mix.prices,
    }
    rows = board_mix.rows
    made, _ = mix(board_mix.calibration, None, rows, budgets=Budgets(flash=budget), **words)
    assert made.price is not None and made.price.flash_bytes <= budget < int8.flash_bytes
    assert made.narrow and made.is_within
    with pytest.raises(UtvmError, match="even the int4 model is over a budget: flash"):
        mix(board_mix.calibration, None, rows, budgets=Budgets(flash=9000), **words)


def test_the_function_has_the_arguments_of_the_verb(tmp_path: Path) -> None:
    heard: list[str] = []
    made = utvm_deploy.quantize(
        DIGITS,
        SAMPLES,
        equalize="yes",
        sensitivity=True,
        progress=lambda what, _done, _total: heard.append(what),
    )
    assert isinstance(made, QuantizedWithLayers) and heard
    assert len(made.layers) == 7 and made.equalizing is not None
    assert len(made.to_dict()["layers"]) == 7
    made.save(tmp_path / "made.tflite")
    again = utvm_deploy.quantize(DIGITS, SAMPLES)
    assert not isinstance(again, QuantizedWithLayers)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scheme": "mixed", "equalize": "yes"}, "leave clipping= and equalize= out"),
        ({"scheme": "mixed", "clipping": "mse"}, "leave clipping= and equalize= out"),
        ({"board": "mps2_an500"}, "leave out board=, or give sensitivity=True"),
        ({"cycle_budget": 5}, "cycle_budget goes with scheme='mixed'"),
    ],
)
def test_arguments_that_do_not_go_together_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        utvm_deploy.quantize(DIGITS, SAMPLES, **arguments)
