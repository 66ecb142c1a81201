"""The reference of models that compute with the numbers of a format, or in float64: NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.kernels.choose.arithmetic import with_arithmetic
from utvm_deploy.kernels.portable.by_numpy import computed
from utvm_deploy.oracle.origin import gaps, magnitude_of
from utvm_deploy.oracle.reference import ReferenceRun
from utvm_deploy.oracle.relax_reference import tensors_of

#: How the names of these references begin.
REFERENCE = "NumPy"


def run_numbers(graph: Graph, samples: Sequence[Sequence[Array]]) -> ReferenceRun:
    """What a model computes with the numbers of its format. Raises VerifyError."""
    own, made = graph.number_format, with_arithmetic(graph)
    assert own is not None
    tensors, outputs = [], []
    for sample in samples:
        values = tensors_of(
            made, sample, lambda _, function, arrays: computed(function, arrays, own)
        )
        outputs.append(tuple(values[number] for number in graph.outputs))
        sources = ((made.tensors[n].source, array) for n, array in values.items())
        tensors.append({source: array for source, array in sources if source is not None})
    return ReferenceRun(tuple(outputs), tuple(tensors), f"{REFERENCE}'s form of {own.name}")


def float64_differences(
    graph: Graph, sample: Sequence[Array], found: Mapping[int, Array]
) -> dict[int, float]:
    """How far tensors are from those of float64, as a share of the largest magnitude of each.

    ``found`` has tensors of a run by their position in the file, as the result has. Layers whose
    kernel is a C routine, and those behind them, are left out. Raises VerifyError.
    """
    wide = tensors_of(
        graph, sample, lambda _, function, arrays: computed(function, arrays, None), is_wide=True
    )
    differences = {}
    for number, tensor in enumerate(graph.tensors):
        source = tensor.source
        if source is not None and source in found and number in wide and tensor.dtype == "float32":
            ours, own = found[source], graph.number_format
            if ours.dtype != np.float32 and own is not None:
                ours = own.decoded(ours)
            gap = gaps(ours, wide[number])
            differences[source] = float(gap.max()) / magnitude_of(wide[number])
    return differences
