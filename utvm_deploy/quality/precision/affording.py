"""Chooses among mixed files by what they take on a board: time, RAM and flash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.quality.precision.facts import Budgets, ModelPrice
from utvm_deploy.quality.quantizing.child_steps import RecipeResult
from utvm_deploy.quality.quantizing.facts import INT8, INT16X8, Recipe

#: Mixed files that are measured with more wide layers, and with fewer.
MOST_MEASURED = 6
#: The part of int8's and int16x8's ticks that a mixed file must stay below where it loses no less.
#: A layer's ticks depend a little on where the linker puts its code.
CLEARLY_FASTER = 0.99

#: A .tflite file -> what it takes on the board.
Measure = Callable[[bytes], ModelPrice]


@dataclass(frozen=True)
class Candidate:
    """One of the files that are compared."""

    wide: tuple[str, ...]
    recipe: Recipe
    result: RecipeResult
    loss: float

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.result.data)

    @property
    def narrow(self) -> tuple[str, ...]:
        """Outputs of the operators with weights of int4."""
        return self.recipe.narrow


@dataclass(frozen=True)
class Afforded:
    """The file that was chosen, and its price.

    ``dearer`` is the price of the file that loss alone chose, if it takes more RAM or flash than
    int8 and int16x8 do.
    """

    file: Candidate
    price: ModelPrice
    dearer: ModelPrice | None


def affordable(
    files: Sequence[Candidate],
    chosen: Candidate,
    max_loss: float,
    budgets: Budgets,
    measure: Measure,
    prices: Mapping[str, ModelPrice],
) -> Afforded | None:
    """The cheapest file among those that lose least; None if int8 itself is over a budget.

    ``files`` are ordered from int8 to int16x8, and ``chosen`` is the first that loses little
    enough. int8, int16x8 and a mixed file compete. The mixed file must be faster than int16x8. It
    may take as much RAM and flash as the larger of int8 and int16x8, or what a budget says.
    """
    least, widest = prices[INT8], prices[INT16X8]
    if budgets.excess(least):
        return None
    priced = [(files[0], least)]
    if not budgets.excess(widest) and files[-1].loss <= max(files[0].loss, max_loss):
        priced.append((files[-1], widest))
    limits = limits_of(budgets, least, widest)
    measured: dict[int, ModelPrice] = {}

    def price_of(candidate: Candidate) -> ModelPrice:
        place = len(candidate.wide)
        if place not in measured:
            measured[place] = measure(candidate.result.data)
        return measured[place]

    mixed = _first_within(files, chosen, max_loss, limits, price_of)
    if mixed is not None:
        priced.append((mixed, price_of(mixed)))
    dearer = measured.get(len(chosen.wide))
    # A budget that it exceeds, or its time, would exclude it as well.
    if dearer is not None and (
        not limits.excess(dearer) or replace(budgets, cycles=limits.cycles).excess(dearer)
    ):
        dearer = None

    def rank(one: tuple[Candidate, ModelPrice]) -> tuple[float, float, int, int]:
        file, price = one
        is_pure = file is files[0] or file is files[-1]
        ticks = price.ticks if is_pure else price.ticks / CLEARLY_FASTER
        # A loss that is smaller than it must be does not justify a higher price.
        return max(file.loss, max_loss), ticks, price.flash_bytes, price.ram_bytes

    return Afforded(*min(priced, key=rank), dearer)


def limits_of(budgets: Budgets, least: ModelPrice, widest: ModelPrice) -> Budgets:
    """What a mixed file may take: the budgets, and what int8 or int16x8 takes."""
    ram = max(least.ram_bytes, widest.ram_bytes) if budgets.ram is None else budgets.ram
    flash = max(least.flash_bytes, widest.flash_bytes) if budgets.flash is None else budgets.flash
    cycles = widest.ticks if budgets.cycles is None else min(widest.ticks, budgets.cycles)
    return Budgets(ram, flash, cycles)


def _first_within(
    files: Sequence[Candidate],
    chosen: Candidate,
    max_loss: float,
    limits: Budgets,
    price_of: Callable[[Candidate], ModelPrice],
) -> Candidate | None:
    """The chosen file if it is within the limits; else one with more or fewer wide layers.

    More wide layers lose as little and take more time, but may need kernels of one kind only.
    """
    if chosen is files[0] or chosen is files[-1]:
        return None
    place, last = files.index(chosen), len(files) - 1
    is_too_slow = limits.cycles is not None and price_of(chosen).ticks > limits.cycles
    wider = [] if is_too_slow else list(_spread(place + 1, last))
    worst = max(files[place].loss, max_loss)
    for number in (place, *wider):
        if files[number].loss <= worst and not limits.excess(price_of(files[number])):
            return files[number]
    for number in _fewer(place):
        if files[number].loss <= max(files[0].loss, max_loss) and not limits.excess(
            price_of(files[number])
        ):
            return files[number]
    return None


def places(count: int, most: int) -> list[int]:
    """Some of 1 to ``count``, at about equal distances, with ``count``; at most ``most``."""
    step = max(1, -(-count // most))
    return list(range(count, 0, -step))[::-1]


def _spread(first: int, end: int) -> Iterator[int]:
    """Some places from ``first`` to before ``end``, at about equal distances."""
    step = max(1, -(-(end - first) // (MOST_MEASURED - 1)))
    return iter(range(first, end, step))


def _fewer(place: int) -> Iterator[int]:
    """Some smaller places, above 0: that of int8."""
    for _ in range(MOST_MEASURED - 1):
        place = place * 2 // 3
        if place == 0:
            return
        yield place
