"""The files that the parent and the child process give each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utvm_deploy.graph.model import Array

MODEL, PREPARED, JOB, FACTS = "model.tflite", "prepared.tflite", "job.json", "facts.json"
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
