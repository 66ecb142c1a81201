"""Samples of a model with states: what these hold there, if the user's data have no values of them.

The float model runs the samples one after another, and its states run along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utvm_deploy.base.progress import Progress
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.files.state import KeptState
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.datasets import Dataset
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.child_steps import (
    SAMPLE_TIMEOUT_S,
    Inputs,
    check_integers,
    check_state,
    run_step,
)
from utvm_deploy.quality.quantizing.facts import PT2E_SAMPLES
from utvm_deploy.quality.quantizing.samples import dataset_for, names_in

#: What states of all samples may take.
_STATE_BYTES = 256 << 20


def stepped(
    form: str,
    model: bytes,
    inputs: Inputs,
    states: Sequence[KeptState],
    data: Any,
    progress: Progress,
) -> Any:
    """The data as they are, or a dataset with values of states.

    ``states`` are those of the model's buffers, its last inputs and outputs. Others are named by
    the user. States of very many samples take too much memory: then only some samples at equal
    distances are left.
    """
    if isinstance(data, Dataset):
        return data
    kept: dict[str, str | int] = {
        one.found: number - len(states) for number, one in enumerate(states)
    }
    places = {one.name: place for place, one in enumerate(inputs)}
    named, held = dict(chosen_now().tied), names_in(data)
    given = {word for name in named for word in (name, f"inputs_{places.get(name)}")}
    kept |= named if held and not held & given else {}
    if not kept:
        return data
    for name in kept:
        check_state(name, places, "input")
    known = {one.found: one.first for one in states}
    firsts = {
        place: known.get(name, np.zeros(inputs[place].shape, inputs[place].dtype))
        for place, name in ((places[name], name) for name in kept)
    }
    samples = dataset_for(data, tuple(one for one in inputs if one.name not in kept))
    count = min(len(samples), PT2E_SAMPLES)
    most = max(_STATE_BYTES // max(sum(one.nbytes for one in firsts.values()), 1), 1)
    wanted = np.arange(min(count, most)) * count // max(min(count, most), 1)
    others = [place for place, _ in enumerate(inputs) if place not in firsts]
    with TemporaryFolder("utvm-quantize") as folder:
        (folder / child_files.MODEL).write_bytes(model)
        for place, column in zip(others, samples.batch(0, count), strict=True):
            check_integers(column, inputs[place], samples.origin)
            np.save(folder / f"input_{place}.npy", column.astype(inputs[place].dtype))
        child_files.save_arrays(folder, "first", tuple(firsts.values()))
        pairs = [(places[name], left) for name, left in kept.items()]
        job = {"pairs": pairs, "inputs": len(inputs), "places": wanted.tolist()}
        run_step(form, "step", folder, job, count * SAMPLE_TIMEOUT_S, progress)
        arrays = [np.load(folder / f"input_{place}.npy") for place in range(len(inputs))]
    columns: list[Array] = [a if p in firsts else a[wanted] for p, a in enumerate(arrays)]

    def read(start: int, stop: int) -> tuple[Array, ...]:
        return tuple(one[start:stop] for one in columns)

    return Dataset(len(wanted), read, samples.origin, positions=wanted)
