"""Writes golden/: what Vela made of our digits model, so that tests run without Vela.

python tests/ethos_u/make_golden.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utvm_deploy.backends.ethos_u.check import NpuProgram, Place
from utvm_deploy.backends.ethos_u.configurations import configuration
from utvm_deploy.backends.ethos_u.vela import compiled_by_vela
from utvm_deploy.frontend.files.tflite_cut import only_operators
from utvm_deploy.frontend.tflite import load_model

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "models" / "digits_int8.tflite"
#: The layers before the first fully connected one.
REGION = "region_ethos-u55-128"
CONFIGURATIONS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256")


def without_dense(path: Path) -> bytes:
    """The operators before the first fully connected one and its RESHAPE, as a file."""
    graph = load_model(path, is_quiet=True)
    kinds = [one.kind for one in graph.operators]
    last = kinds.index("FULLY_CONNECTED")
    inputs = [graph.tensors[number].source or 0 for number in graph.inputs]
    outputs = [graph.tensors[number].source or 0 for number in graph.operators[last - 1].outputs]
    kept = {source for one in graph.operators[:last] for source in one.sources}
    return only_operators(path.read_bytes(), kept, inputs, outputs)


def golden(name: str) -> Path:
    """The file of a configuration."""
    return HERE / "golden" / f"digits_{name}.npz"


def stored(program: NpuProgram) -> dict[str, object]:
    """The arrays of Vela's format "raw" that are read."""

    def columns(which: str, places: tuple[Place, ...]) -> dict[str, object]:
        return {
            f"{which}_region": [one.region for one in places],
            f"{which}_offset": [one.offset for one in places],
            f"{which}_shape": [[one.size_bytes] for one in places],
            f"{which}_elem_size": [1 for _ in places],
        }

    return {
        "cmd_data": program.payload,
        "weight_data": program.weights,
        "scratch_size": program.scratch_bytes,
        **columns("input", program.inputs),
        **columns("output", program.outputs),
    }


def main() -> None:
    """Compile and write."""
    for name in (*CONFIGURATIONS, REGION):
        path = MODEL.read_bytes() if name != REGION else without_dense(MODEL)
        chosen = configuration(name.removeprefix("region_"))
        program, _ = compiled_by_vela(path, MODEL.name, chosen)
        golden(name).parent.mkdir(exist_ok=True)
        np.savez_compressed(golden(name), **stored(program))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
