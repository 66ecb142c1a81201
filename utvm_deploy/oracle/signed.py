"""Whether an int8 model computes what the uint8 model that it came from does, except the offset.

The kernels of both types round equally in most operators, but not in all. An average of an even
number of values, for example, may lie between two steps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.formats import unsigned_tensors
from utvm_deploy.graph.check import place_of
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.graph.quantize_hint import quantize_command
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.oracle.with_custom import run_oracle

_SAMPLES = 8
_OFFSET = 128


def check_same_values(path: Path, data: bytes, graph: Graph) -> None:
    """Raise ModelError, with the operator, where random samples have other values.

    ``graph`` is that of ``data``, the int8 file.
    """
    unsigned = unsigned_tensors(path)
    if not unsigned:
        return
    samples = random_samples(graph, _SAMPLES).inputs
    with TemporaryFolder("utvm-signed") as folder:
        file = folder / "model.tflite"
        file.write_bytes(data)
        with given_only(Chosen()):  # what was chosen is in the file
            made = run_oracle(file, samples)
    is_moved = [graph.tensors[number].source in unsigned for number in graph.inputs]
    moved = [
        [_unsigned(array) if moves else array for array, moves in zip(one, is_moved, strict=True)]
        for one in samples
    ]
    before = run_oracle(path, moved)
    for operator in graph.operators:
        for number in (graph.tensors[output].source for output in operator.outputs):
            # What --input puts in front has one operator more for int8.
            if number is None or number not in made.tensors[0] or number not in before.tensors[0]:
                continue
            of_old = _signed if number in unsigned else np.asarray
            wrong = sum(
                int((of_old(old[number]) != new[number]).sum())
                for old, new in zip(before.tensors, made.tensors, strict=True)
            )
            if wrong:
                raise ModelError(
                    f"{path} has no int8 form with equal bytes: {place_of(graph, operator)}, "
                    f"rounds {wrong:,} values of {_SAMPLES} random samples differently on int8; "
                    f"quantize the float model: {quantize_command()}"
                )


def _unsigned(array: Array) -> Array:
    moved: Array = (array.astype(np.int16) + _OFFSET).astype(np.uint8)
    return moved


def _signed(array: Array) -> Array:
    moved: Array = (array.astype(np.int16) - _OFFSET).astype(np.int8)
    return moved
