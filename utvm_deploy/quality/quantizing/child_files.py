"""The files that the parent and the child process give each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing.facts import Range, Recipe

MODEL, PREPARED, JOB, FACTS = "model", "prepared", "job.json", "facts.json"
CONVERTED = "converted"
RESULTS, REFUSAL = "results.json", "refusal.txt"


def load_arrays(folder: Path, role: str, *, mapped: bool = False) -> tuple[Array, ...]:
    """The arrays ``role_0.npy``, ``role_1.npy`` and so on."""
    arrays: list[Array] = []
    while (path := folder / f"{role}_{len(arrays)}.npy").exists():
        arrays.append(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
    return tuple(arrays)


def save_arrays(folder: Path, role: str, arrays: tuple[Array, ...]) -> None:
    """Write the arrays ``role_0.npy``, ``role_1.npy`` and so on."""
    for index, array in enumerate(arrays):
        np.save(folder / f"{role}_{index}.npy", array)


def save_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write what a step found."""
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def run_in_order(
    folder: Path,
    job: Mapping[str, Any],
    run: Callable[[Sequence[Array]], Sequence[Array]],
    names: Sequence[str] = (),
) -> None:
    """Save, as inputs, what each state holds at the samples of a job, which run one after another.

    The job's ``pairs`` have the positions of a state among inputs and outputs, or one of the
    outputs' ``names``. ``inputs`` says how many inputs there are, and ``places`` which samples are
    wanted. A state is ``first_0.npy`` at first, and so on. ``run`` gives the outputs of one sample.
    """
    for _, left in job["pairs"]:
        if isinstance(left, str) and left not in names:
            raise ModelError(
                f"the model has no output '{left}' for --state; its outputs: {', '.join(names)}"
            )
    pairs = [
        (found, names.index(left) if isinstance(left, str) else left)
        for found, left in job["pairs"]
    ]
    places = set(job["places"])
    others = [place for place in range(job["inputs"]) if place not in dict(pairs)]
    given = {place: np.load(folder / f"input_{place}.npy", mmap_mode="r") for place in others}
    states = dict(zip(dict(pairs), load_arrays(folder, "first"), strict=True))
    kept: dict[int, list[Array]] = {place: [] for place in states}
    for sample in range(len(given[others[0]])):
        if sample in places:
            for place, value in states.items():
                kept[place].append(value)
        every = {place: array[sample] for place, array in given.items()} | states
        made = run([every[place] for place in range(job["inputs"])])
        states = {found: made[left].reshape(states[found].shape) for found, left in pairs}
    for place, values in kept.items():
        np.save(folder / f"input_{place}.npy", np.stack(values))


def plain_ranges(ranges: Mapping[str, Range]) -> dict[str, tuple[float | None, ...]]:
    """Ranges as they are in files."""
    return {name: (one.low, one.high, one.top) for name, one in ranges.items()}


def ranges_of(plain: Mapping[str, Any]) -> dict[str, Range]:
    """What ``plain_ranges`` gives, as ranges."""
    return {name: Range(*one) for name, one in plain.items()}


def load_ranges(folder: Path, *, is_final: bool) -> dict[str, Range]:
    """The ranges of tensors that the calibration found: on all samples, or without some of them."""
    stored = json.loads((folder / FACTS).read_text("utf-8"))
    return ranges_of(stored["ranges" if is_final else "fitted"])


def recipe_of(facts: Mapping[str, Any]) -> Recipe:
    """The recipe in a job."""
    ranges = ranges_of(facts["ranges"])
    ways = facts["float_ends"], facts["clipping"], tuple(facts["narrow"])
    return Recipe(facts["scheme"], facts["operators"], ranges, *ways)
