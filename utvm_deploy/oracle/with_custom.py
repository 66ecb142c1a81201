"""The reference of a model with custom operators, which LiteRT cannot run.

LiteRT runs the model without them. What they make are inputs of that model, and a plug-in's NumPy
reference computes these from what LiteRT made before. So each custom operator costs one more run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.tflite_cut import without_operators
from utvm_deploy.frontend.formats import converted
from utvm_deploy.frontend.relax.facts import is_relax
from utvm_deploy.frontend.tflite import load_model, tflite_bytes
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.oracle.reference import ReferenceRun, run_reference


def run_oracle(
    path: Path,
    inputs: Sequence[Array | Sequence[Array]],
    custom: CustomOperators | None = None,
    *,
    outputs_only: bool = False,
    with_shadow: bool = False,
) -> ReferenceRun:
    """``run_reference``, where ``custom`` computes the custom operators that it knows.

    Raises VerifyError, and PluginError for what the plug-in's reference does wrong.
    """
    graph = None if custom is None else load_model(path, custom)
    operators = [
        operator
        for operator in (graph.operators if graph is not None else ())
        if isinstance(operator.attributes, External)
    ]
    if graph is None or custom is None or not operators:
        return run_reference(path, inputs, outputs_only=outputs_only, with_shadow=with_shadow)
    tensors = graph.tensors
    made = [number for operator in operators for number in operator.outputs]
    samples = [[one] if isinstance(one, np.ndarray) else list(one) for one in inputs]
    found: list[dict[int, Array]] = [
        {number: np.zeros(tensors[number].shape, tensors[number].dtype) for number in made}
        for _ in samples
    ]
    positions = {operator.sources[0] for operator in operators}
    data = tflite_bytes(path)
    with TemporaryFolder("utvm-oracle") as directory:
        file = directory / path.with_suffix(".tflite").name
        file.write_bytes(without_operators(data, positions, [_source(tensors[n]) for n in made]))

        def run(*, with_shadow: bool = False) -> ReferenceRun:
            rows = zip(samples, found, strict=True)
            given = [[*one, *(new[n] for n in made)] for one, new in rows]
            return run_reference(file, given, with_shadow=with_shadow)

        for operator in operators:
            for known, new in zip(run().tensors, found, strict=True):
                outputs = custom.computed(graph, operator, _inputs(graph, operator, known))
                new.update(zip(operator.outputs, outputs, strict=True))
        last = run(with_shadow=with_shadow)
        return replace(last, reference=f"{last.reference}, and {custom.reference}")


def check_accepted(path: Path, custom: CustomOperators | None = None) -> None:
    """Raise VerifyError for a file that the reference does not start; Relax models are taken."""
    data = converted(path)
    if data is None or not is_relax(data):
        run_oracle(path, [], custom)


def _inputs(graph: Graph, operator: Operator, known: Mapping[int, Array]) -> list[Array | None]:
    tensors = [None if n is None else graph.tensors[n] for n in operator.inputs]
    return [
        None if one is None else known[_source(one)] if one.data is None else one.data
        for one in tensors
    ]


def _source(tensor: Tensor) -> int:
    """Where a tensor is in the file; the importer knows it of what a custom operator has."""
    assert tensor.source is not None
    return tensor.source
