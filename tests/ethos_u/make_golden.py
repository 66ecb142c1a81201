"""Writes golden/: what Vela made of our digits model, so that tests run without Vela.

python tests/ethos_u/make_golden.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utvm_deploy.backends.ethos_u.check import NpuProgram, Place, checked
from utvm_deploy.backends.ethos_u.configurations import configuration
from utvm_deploy.backends.ethos_u.dense import exact_multipliers, with_exact_dense
from utvm_deploy.backends.ethos_u.vela import compiled_by_vela
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.contract.operation import Operation

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "models" / "digits_int8.tflite"
CONFIGURATIONS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256")
#: With a region for a cache.
DEDICATED = "ethos-u65-256,dedicated-sram"


def exact(path: Path, program: NpuProgram) -> NpuProgram:
    """The program of a whole model with LiteRT's rounding of its fully connected layers."""
    graph = load_model(path, is_quiet=True)
    layers = [Operation(graph, one) for one in graph.operators if one.kind == "FULLY_CONNECTED"]
    found = [exact_multipliers(one) for one in layers]
    known = [one for one in found if one is not None]
    channels = sum(one.input(1).shape[0] for one in layers)
    made = with_exact_dense(program, checked(program), known, channels)
    assert made is not None and len(known) == len(layers)
    return made


def golden(name: str) -> Path:
    """The file of a configuration."""
    return HERE / "golden" / f"digits_{name.replace(',', '_')}.npz"


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
        "scratch_fast_size": program.cache_bytes,
        **columns("input", program.inputs),
        **columns("output", program.outputs),
    }


def main() -> None:
    """Compile and write."""
    for name in (*CONFIGURATIONS, DEDICATED):
        program, _ = compiled_by_vela(MODEL.read_bytes(), MODEL.name, configuration(name))
        golden(name).parent.mkdir(exist_ok=True)
        np.savez_compressed(golden(name), **stored(program))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
