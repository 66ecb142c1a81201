"""A model file that cannot be imported: its operators, and what is wrong with each of them.

``tflite.load_model`` ends at the first error that concerns the file as a whole. This survey
continues.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.assemble import check_extents, imported
from utvm_deploy.frontend.control_flow import CALLED
from utvm_deploy.frontend.files.source import ModelFile, SourceOperator
from utvm_deploy.frontend.files.variables import RESOLVED, resolve_variables
from utvm_deploy.frontend.shape_arithmetic import fold_shapes
from utvm_deploy.frontend.stored_weights import widen_constants
from utvm_deploy.graph.model import Tensor
from utvm_deploy.graph.names import with_short_names

# How the verifier's messages begin.
_OPERATOR = re.compile(r"operator (\d+) \(")


@dataclass(frozen=True, eq=False)
class SurveyedOperator:
    """An operator of the file, whether it can be imported or not."""

    index: int  # position in the file
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    problem: str  # why it cannot be imported and what to do; empty if it can be


@dataclass(frozen=True, eq=False)
class Survey:
    """All operators of a file that cannot be imported."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: tuple[SurveyedOperator, ...]
    problems: tuple[str, ...]  # of the model as a whole


def survey(source: ModelFile, faults: Mapping[int, str], error: str) -> Survey:
    """What is wrong with each operator.

    ``faults`` says of tensors why they cannot be used, ``error`` what the import ended with.
    """
    if not faults:
        with suppress(ModelError):
            source = fold_shapes(widen_constants(resolve_variables(source)))
    check_extents(source)
    problems = {op.index: _problem(op, faults) for op in source.operators}
    whole = [text for number, text in faults.items() if not _is_used(number, source.operators)]
    place = _OPERATOR.match(error)
    if place is not None and not problems.get(int(place[1]), ""):
        # Found by a check of all operators together.
        problems[int(place[1])] = error
    elif not any(problems.values()) and not whole:
        whole.append(error)
    names = [tensor.name for tensor in source.tensors]

    def shown(problem: str, op: SourceOperator) -> str:
        place = with_short_names(op.place, names)
        text = with_short_names(problem, names)
        return text.removeprefix(f"{place}: ").removeprefix(f"{place}, ")

    return Survey(
        inputs=tuple(source.tensors[i] for i in source.inputs),
        outputs=tuple(source.tensors[i] for i in source.outputs),
        operators=tuple(
            SurveyedOperator(
                op.index,
                op.kind,
                tuple(op.tensors[i] for i in op.inputs if i is not None),
                tuple(op.tensors[i] for i in op.outputs),
                shown(problems[op.index], op),
            )
            for op in source.operators
        ),
        problems=tuple(with_short_names(text, names) for text in whole),
    )


def _problem(op: SourceOperator, faults: Mapping[int, str]) -> str:
    found = [faults[i] for i in (*op.inputs, *op.outputs) if i is not None and i in faults]
    if found:
        return found[0]
    if op.kind in RESOLVED or op.kind in CALLED:
        return ""  # gone before operators are imported
    try:
        imported(op)
    except ModelError as exc:
        return str(exc)
    return ""


def _is_used(number: int, operators: Collection[SourceOperator]) -> bool:
    return any(number in op.inputs or number in op.outputs for op in operators)
