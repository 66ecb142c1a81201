"""The model of speed knows fast schedules from slow ones, by those that were measured."""

from __future__ import annotations

import numpy as np

from utvm_deploy.tuning.searching.speed_model import FEWEST_KNOWN, Key, scores

#: Ticks halve with each doubling of the tile.
TICKS = {8: 800.0, 16: 400.0, 32: 200.0, 64: 100.0, 128: 50.0, 256: 25.0}


def _key(tile: int, sketch: int = 0) -> Key:
    return sketch, f"1.{tile}/2"


def test_what_is_like_the_fastest_scores_best() -> None:
    known = {_key(tile): ticks for tile, ticks in TICKS.items()}
    asked = [_key(tile) for tile in (10, 24, 48, 96, 192)]
    found = scores(known, asked, np.random.default_rng(0))
    assert (np.diff(found) > 0).all() and (found > 0).all()


def test_what_is_unlike_everything_scores_between() -> None:
    """A sketch that nobody measured is neither the best nor the worst."""
    known = {_key(tile): ticks for tile, ticks in TICKS.items()}
    worst, other, best = scores(
        known, [_key(8), _key(10**6, sketch=1), _key(256)], np.random.default_rng(0)
    )
    assert worst < other < best


def test_too_few_measurements_say_nothing() -> None:
    known = {_key(tile): ticks for tile, ticks in list(TICKS.items())[: FEWEST_KNOWN - 1]}
    asked = [_key(8), _key(256)]
    found = scores(known, asked, np.random.default_rng(7))
    assert found.tolist() == np.random.default_rng(7).random(2).tolist()
