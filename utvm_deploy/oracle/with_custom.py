"""The reference of a model with custom operators, which LiteRT cannot run.

LiteRT runs the model without them. What they make are inputs of that model. A plug-in's NumPy
reference computes these from what LiteRT made before, or our formulas do, for the signal operators
of TFLite Micro. LiteRT runs once more for each group of them that waits for what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import Chosen, chosen_now, given_only
from utvm_deploy.frontend.files.tflite_cut import without_operators
from utvm_deploy.frontend.formats import converted
from utvm_deploy.frontend.relax.facts import is_relax
from utvm_deploy.frontend.tflite import load_model, tflite_bytes
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.signals.attributes import Signal, UtvmRgb565
from utvm_deploy.oracle.number_reference import run_numbers
from utvm_deploy.oracle.program import is_first
from utvm_deploy.oracle.reference import ReferenceRun, run_reference
from utvm_deploy.oracle.signals.formulas import FORMULAS, computed


def run_oracle(
    path: Path,
    inputs: Sequence[Array | Sequence[Array]],
    custom: CustomOperators | None = None,
    *,
    outputs_only: bool = False,
    apart: int = 0,
    with_shadow: bool = False,
) -> ReferenceRun:
    """``run_reference``, where ``custom`` computes the custom operators that it knows.

    Raises VerifyError, and PluginError for what the plug-in's reference does wrong.
    """
    own = chosen_now().number_format
    if own is not None and own.computes:
        several = [[one] if isinstance(one, np.ndarray) else list(one) for one in inputs]
        return run_numbers(load_model(path, custom, is_quiet=True), several)
    graph = _with_custom(path, custom)
    if graph is None:
        return run_reference(
            path, inputs, outputs_only=outputs_only, apart=apart, with_shadow=with_shadow
        )
    tensors, pending = graph.tensors, [one for one in graph.operators if _is_custom(one)]
    made = [n for one in pending for n in one.outputs if tensors[n].source is not None]
    samples = [[one] if isinstance(one, np.ndarray) else list(one) for one in inputs]
    found: list[dict[int, Array]] = [{n: _empty(tensors[n]) for n in made} for _ in samples]
    positions = {one.sources[0] for one in pending}
    computing = _Computing(graph, custom, apart=apart)
    references = computing.references(pending)
    data = tflite_bytes(path)
    with TemporaryFolder("utvm-oracle") as directory:
        file = directory / path.with_suffix(".tflite").name
        file.write_bytes(without_operators(data, positions, [_source(tensors[n]) for n in made]))

        def run(*, with_shadow: bool = False) -> ReferenceRun:
            rows = zip(samples, found, strict=True)
            given = [[*one, *(new[n] for n in made)] for one, new in rows]
            with given_only(Chosen()):  # what was chosen is in the file
                return run_reference(file, given, apart=apart, with_shadow=with_shadow)

        while pending:
            known, ready = run().tensors, _ready(graph, pending)
            for operator in ready:
                computing.add(operator, known, found)
            pending = [one for one in pending if one not in ready]
        last = run(with_shadow=with_shadow)
        return replace(last, reference=", and ".join([last.reference, *references]))


class _Computing:
    """What computes custom operators: a plug-in's reference, or the signal formulas.

    ``apart`` is as for ``is_first``.
    """

    def __init__(self, graph: Graph, custom: CustomOperators | None, *, apart: int) -> None:
        self._graph, self._custom, self._apart = graph, custom, apart

    def references(self, operators: Sequence[Operator]) -> list[str]:
        """The names of what computes these, for reports."""
        are_signals = [isinstance(one.attributes, Signal) for one in operators]
        found = ["our formulas of TFLite Micro's signal library"] if any(are_signals) else []
        if all(isinstance(one.attributes, UtvmRgb565) for one in operators):
            found = ["our formula of RGB565"]
        if self._custom is not None and not all(are_signals):
            found.append(self._custom.reference)
        return found

    def add(
        self,
        operator: Operator,
        known: Sequence[Mapping[int, Array]],
        found: Sequence[dict[int, Array]],
    ) -> None:
        """Put what an operator makes of each sample's known tensors to what is found."""
        attributes, tensors = operator.attributes, self._graph.tensors
        state = None
        for position, (one, new) in enumerate(zip(known, found, strict=True)):
            inputs = [None if n is None else self._value(n, one, new) for n in operator.inputs]
            if isinstance(attributes, Signal):
                if attributes.keeps_state and not is_first(position, self._apart):
                    inputs[-1] = state
                made = computed(operator.kind, attributes, [i for i in inputs if i is not None])
                state = made[-1]
            else:
                assert self._custom is not None, "it has imported the operator"
                made = self._custom.computed(self._graph, operator, inputs)
            pairs = zip(operator.outputs, made, strict=True)
            new.update((n, array) for n, array in pairs if tensors[n].source is not None)

    def _value(self, number: int, known: Mapping[int, Array], new: Mapping[int, Array]) -> Array:
        """An input: of a custom operator, of LiteRT, a constant, or a state at first."""
        tensor = self._graph.tensors[number]
        if tensor.data is not None:
            return tensor.data
        if number in new:
            return new[number]
        return _empty(tensor) if tensor.source is None else known[tensor.source]


def _with_custom(path: Path, custom: CustomOperators | None) -> Graph | None:
    """The graph of a model with custom operators; None for others, and for what we refuse."""
    graph = None
    with suppress(ModelError):
        data = tflite_bytes(path)
        if is_relax(data):
            return None  # TVM computes the whole file
        if custom is None and any(name.encode() in data for name in FORMULAS):
            graph = load_model(path, is_quiet=True)
    if custom is not None:
        graph = load_model(path, custom)
    return graph if graph is not None and any(map(_is_custom, graph.operators)) else None


def _is_custom(operator: Operator) -> bool:
    return isinstance(operator.attributes, External | Signal)


def _ready(graph: Graph, pending: Sequence[Operator]) -> list[Operator]:
    """Those whose inputs are known after a run of LiteRT, in which outputs of ``pending`` are 0."""
    ready: list[Operator] = []
    new, unknown = set[int](), set[int]()
    for operator in graph.operators:
        reads = {number for number in operator.inputs if number is not None}
        if operator not in pending:
            if reads & (new | unknown):
                unknown.update(operator.outputs)
        elif reads & unknown:
            unknown.update(operator.outputs)
        else:
            ready.append(operator)
            new.update(operator.outputs)
    return ready


def check_accepted(path: Path, custom: CustomOperators | None = None) -> None:
    """Raise VerifyError for a file that the reference does not start; Relax models are taken."""
    data = converted(path)
    if data is None or not is_relax(data):
        run_oracle(path, [], custom)


def _empty(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, tensor.dtype)


def _source(tensor: Tensor) -> int:
    """Where a tensor is in the file; the importer knows it of what a custom operator has."""
    assert tensor.source is not None
    return tensor.source
