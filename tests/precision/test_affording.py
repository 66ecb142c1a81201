"""What a mixed file may take on a board: no more than int8 or int16x8, or than a budget."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.quality.precision.affording import MOST_MEASURED, Afforded, Candidate, affordable
from utvm_deploy.quality.precision.facts import POINTS, Budgets, Mixed, ModelPrice
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


def test_int8_over_a_budget_is_an_error() -> None:
    with pytest.raises(UtvmError, match="even the int8 model is over a budget: RAM 50 of 40 bytes"):
        _chosen([9.0, 0.4, 0.0], [(200, 60, 350)], budgets=Budgets(ram=40))


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
