"""What a mixed file may take on a board: no more than int8 or int16x8, or than a budget."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from utvm_deploy.compiler.options import FLASH_RATE
from utvm_deploy.quality.precision.affording import (
    MOST_MEASURED,
    Afforded,
    Candidate,
    affordable,
    places,
)
from utvm_deploy.quality.precision.facts import (
    POINTS,
    Budgets,
    LayerPrice,
    LayerSensitivity,
    Mixed,
    ModelPrice,
)
from utvm_deploy.quality.precision.narrowing import cheapest, narrowing_order, smallest
from utvm_deploy.quality.quantizing.child_steps import RecipeResult
from utvm_deploy.quality.quantizing.facts import Recipe

#: Ticks, RAM, flash.
Price = tuple[int, int, int]
INT8, INT16X8 = (100, 50, 400), (1000, 90, 300)


def _price(taken: Price) -> ModelPrice:
    ticks, ram, flash = taken
    return ModelPrice(ticks, "cycles", ram, flash, {})


def _chosen(
    losses: Sequence[float],
    mixes: Sequence[Price],
    *,
    max_loss: float = 0.5,
    budgets: Budgets | None = None,
) -> tuple[Afforded, int]:
    """The choice among files of 0, 1, 2 ... wide layers, and how many were measured."""
    files = [
        Candidate(
            tuple(map(str, range(width))), Recipe("int8"), RecipeResult(b"%d" % width, (), ()), loss
        )
        for width, loss in enumerate(losses)
    ]
    prices = [INT8, *mixes, INT16X8]
    asked: list[int] = []

    def measure(data: bytes) -> ModelPrice:
        asked.append(int(data))
        return _price(prices[int(data)])

    first = next(one for one in files if one.loss <= max_loss)
    known = {"int8": _price(INT8), "int16x8": _price(INT16X8)}
    found = affordable(files, first, max_loss, budgets or Budgets(), measure, known)
    assert len(asked) == len(set(asked)) <= 2 * MOST_MEASURED
    assert found is not None
    return found, len(found.file.wide)


def test_a_mix_with_more_flash_than_both_gets_more_wide_layers() -> None:
    mixes = [(200, 60, 430), (300, 60, 420), (500, 60, 390)]
    found, wide = _chosen([9.0, 0.4, 0.3, 0.2, 0.0], mixes)
    assert wide == 3 and found.price.flash_bytes == 390
    assert found.dearer is not None and found.dearer.flash_bytes == 430


@pytest.mark.parametrize("mix", [(200, 60, 430), (200, 95, 350), (1200, 60, 350)])
def test_where_no_mix_is_cheap_enough_all_layers_are_wide(mix: Price) -> None:
    found, wide = _chosen([9.0, 0.4, 0.0], [mix])
    assert wide == 2 and found.price == _price(INT16X8)
    assert (found.dearer is not None) == (mix[0] < 1000)


def test_a_budget_takes_the_place_of_the_ceiling() -> None:
    found, wide = _chosen([9.0, 0.4, 0.0], [(200, 60, 430)], budgets=Budgets(flash=430))
    assert wide == 1 and found.dearer is None
    # RAM keeps its ceiling.
    found, wide = _chosen([9.0, 0.4, 0.0], [(200, 95, 430)], budgets=Budgets(flash=430))
    assert wide == 2 and found.dearer is not None


def test_a_mix_is_never_slower_than_int16x8_even_if_that_is_over_a_budget() -> None:
    _, wide = _chosen([9.0, 0.4, 0.0], [(1100, 60, 350)], budgets=Budgets(ram=80))
    assert wide == 0


def test_a_mix_never_loses_more_than_int8() -> None:
    found, wide = _chosen([0.1, 0.9, 0.4], [(90, 40, 100)])
    assert wide == 0 and found.price == _price(INT8)
    # A cycle budget asks for fewer wide layers; those lose more than int8 here.
    losses = [5.0, 9.0, 9.0, 0.4, 0.0]
    mixes = [(150, 60, 350), (300, 60, 350), (600, 60, 350)]
    _, wide = _chosen(losses, mixes, budgets=Budgets(cycles=400))
    assert wide == 0


def test_few_files_are_measured() -> None:
    mixes = [(200, 60, 430)] * 40
    _chosen([9.0, *[0.4] * 40, 0.0], mixes)


def test_with_int8_over_a_budget_nothing_is_affordable() -> None:
    file = _file(0, 0.0, 1)
    known = {"int8": _price(INT8), "int16x8": _price(INT16X8)}
    budgets = Budgets(ram=40)
    assert affordable([file], file, 0.5, budgets, lambda _: _price(INT8), known) is None


def _file(narrow: int, loss: float, size: int) -> Candidate:
    recipe = Recipe("int8", narrow=tuple(map(str, range(narrow))))
    return Candidate((), recipe, RecipeResult(bytes(size), (), ()), loss)


def test_layers_that_save_most_for_their_error_become_int4_first() -> None:
    def row(output: str, decibels: float, ticks: int) -> LayerSensitivity:
        prices = {"int8": LayerPrice(100, 0), "int4": LayerPrice(100 + ticks, 0)}
        both = {"int8": 60.0, "int4": decibels}
        return LayerSensitivity(0, "CONV_2D", output, both, None, prices)

    small = LayerSensitivity(0, "SOFTMAX", "none", {"int8": 50.0, "int16x8": 90.0}, None, {})
    rows = [row("slow", 50, 9000), row("exact", 50, 0), small, row("rough", 20, 0)]
    sizes = {"slow": 1000, "exact": 1000, "rough": 1000}
    assert narrowing_order(rows, sizes) == ["exact", "rough", "slow"]
    # Twenty times the bytes for ten times the error.
    assert narrowing_order([row("a", 40, 0), row("b", 30, 0)], {"a": 100, "b": 2000})[0] == "b"


def test_without_a_board_the_smallest_file_within_the_loss_is_taken() -> None:
    files = [_file(1, 0.3, 90), _file(2, 0.4, 80), _file(3, 0.6, 70)]
    assert smallest(_file(0, 0.1, 100), files, 0.5) is files[1]
    # One that loses too much already takes no more loss.
    assert smallest(first := _file(0, 0.7, 100), [_file(1, 0.8, 10)], 0.5) is first


@pytest.mark.parametrize(
    ("ticks", "flash", "is_taken"), [(0, 100, True), (300, 100, True), (500, 100, False)]
)
def test_int4_must_be_worth_its_ticks(ticks: int, flash: int, is_taken: bool) -> None:
    first, other = _file(0, 0.0, 9), _file(1, 0.2, 5)
    price = _price((1000 + ticks, 50, 1000 - flash))
    limits = Budgets(ram=50)
    before = first, _price((1000, 50, 1000))
    found = cheapest(before, [other], 0.5, limits, lambda _: price)
    assert found is not None and (found[0] is other) == is_taken
    assert 300 < flash * FLASH_RATE < 500
    # Neither more RAM than allowed, nor a larger loss.
    found = cheapest(before, [other], 0.5, Budgets(ram=40), lambda _: price)
    assert found == before
    found = cheapest(before, [_file(1, 0.6, 5)], 0.5, limits, lambda _: price)
    assert found == before


def test_where_int8_is_over_a_budget_int4_may_lose_more() -> None:
    files = [_file(1, 0.9, 9), _file(2, 2.0, 8)]

    def measure(data: bytes) -> ModelPrice:
        return _price((100, 50, 40 * len(data)))

    found = cheapest(None, files, 0.5, Budgets(flash=330), measure)
    assert found is not None and found[0] is files[1]
    assert cheapest(None, files, 0.5, Budgets(flash=300), measure) is None


@pytest.mark.parametrize(("count", "most"), [(0, 4), (1, 4), (4, 4), (5, 4), (41, 6)])
def test_places_end_with_the_last_and_are_few(count: int, most: int) -> None:
    found = places(count, most)
    assert found == sorted(set(found)) and len(found) <= most
    assert found[-1:] == [count][: len(found)] and (count == 0) == (not found)


def test_the_note_names_what_is_dearer_and_the_budget_that_allows_it() -> None:
    prices = {"int8": _price(INT8), "int16x8": _price(INT16X8)}
    losses = {"int8": 9.0, "int16x8": 0.0}
    own = _price(INT16X8)
    mixed = Mixed((), 0.0, POINTS, losses, own, prices, True, _price((200, 95, 430)))
    assert mixed.note == (
        "a mix with fewer int16x8 layers takes 200 cycles, but also 95 bytes of RAM and 430 bytes "
        "of flash, more than int8 and int16x8 do; to allow it, give a RAM budget of 95 bytes and "
        "a flash budget of 430 bytes"
    )
    assert Mixed((), 0.0, POINTS, losses, own, prices, True).note is None
