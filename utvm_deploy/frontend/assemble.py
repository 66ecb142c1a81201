"""A file's operators and tensors -> the graph, or all that cannot be imported, told at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.files.limits import MAX_EXTENTS, MAX_TOLD
from utvm_deploy.frontend.files.prepared import check_prepared
from utvm_deploy.frontend.files.source import CUSTOM, ModelFile, Several, SourceOperator
from utvm_deploy.frontend.files.state import with_states
from utvm_deploy.frontend.files.suggestions import suggestion
from utvm_deploy.frontend.files.variables import resolve_variables
from utvm_deploy.frontend.operators.importers import importer_of
from utvm_deploy.frontend.shape_arithmetic import fold_shapes
from utvm_deploy.frontend.stored_weights import widen_constants
from utvm_deploy.graph.model import Graph, Operator, Tensor
from utvm_deploy.graph.rewrite import compacted, with_own_outputs


class CustomImporter(Protocol):
    """Imports custom operators, which are none of TFLite's."""

    def knows(self, kind: str) -> bool:
        """Whether it imports this one; ``kind`` is as in a ``SourceOperator``."""

    def imported(self, op: SourceOperator) -> Operator:
        """The graph's operator; raises ModelError."""


def assemble(
    source: ModelFile, name: str, digest: str, custom: CustomImporter | None = None
) -> Graph:
    """The graph, from operators and tensors that are known to be in bounds.

    Raises UnsupportedOperator, with all of them, for operators that cannot be imported.
    """
    check_prepared(source.operators)
    source = resolve_variables(source)
    check_extents(source)
    source = fold_shapes(widen_constants(source))
    unknown = [
        op
        for op in source.operators
        if importer_of(op) is None and not (custom is not None and custom.knows(op.kind))
    ]
    problems: list[tuple[SourceOperator, str]] = []
    operators: list[Operator] = []
    tensors = source.tensors
    for op in source.operators:
        try:
            several = imported(replace(op, tensors=tensors), custom)
            operators += several.operators
            tensors += several.between
        except UnsupportedOperator as exc:
            problems.append((op, str(exc).removeprefix(f"{op.place}: ")))
        except ModelError:
            # What an unknown operator reads and makes need not be quantized: that one is named.
            if not unknown:
                raise
    if problems:
        raise _unsupported(problems, has_unknown=bool(unknown))
    graph = Graph(
        name, tensors, tuple(operators), source.inputs, source.outputs, digest, source.states
    ).replaced(prefill=source.prefill)
    return with_states(with_own_outputs(compacted(graph)))


def refuse_custom_operators(operators: Sequence[SourceOperator]) -> None:
    """Raise UnsupportedOperator with all that have no importer, if there are any."""
    problems = [
        (op, suggestion(op.kind))
        for op in operators
        if op.kind.startswith(CUSTOM) and importer_of(op) is None
    ]
    if problems:
        raise _unsupported(problems, has_unknown=True)


def imported(op: SourceOperator, custom: CustomImporter | None = None) -> Several:
    """The graph's operators for one of the file."""
    if custom is not None and custom.knows(op.kind):
        return Several((custom.imported(op),), ())
    row = importer_of(op)
    if row is None:
        raise UnsupportedOperator(f"{op.place}: {suggestion(op.kind)}")
    made = row.importer(op)
    if isinstance(made, Several):
        return made
    return Several((made,) if isinstance(made, Operator) else made, ())


def _unsupported(
    problems: Sequence[tuple[SourceOperator, str]], has_unknown: bool
) -> UnsupportedOperator:
    """One error for operators and what is wrong with each; an equal reason appears once."""
    count = "1 operator" if len(problems) == 1 else f"{len(problems)} operators"
    alike: dict[tuple[str, str], list[SourceOperator]] = {}
    for op, why in problems:
        alike.setdefault((op.kind, why), []).append(op)
    groups = list(alike.items())
    told = "; ".join(f"{_places(ops)}: {why}" for (_, why), ops in groups[:MAX_TOLD])
    more = sum(len(ops) for _, ops in groups[MAX_TOLD:])
    if more:
        told += f"; and {more} more"
    if has_unknown:
        told += "; utvm inspect --supported lists what can be"
    return UnsupportedOperator(f"{count} cannot be imported: {told}")


def check_extents(source: ModelFile) -> None:
    """What importers make of a dimension costs a number for each position of it."""
    extents = 0
    for op in source.operators:
        made = sum(_positions(source.tensors[i]) for i in op.outputs)
        read = sum(_positions(source.tensors[i]) for i in op.inputs if i is not None)
        # An operator with several outputs becomes as many, each of which reads the input.
        extents += made + read * max(len(op.outputs), 1)
        if extents > MAX_EXTENTS:
            raise ModelError(
                f"{op.place}: the dimensions up to here add up to more than {MAX_EXTENTS:,} "
                "positions; choose a model for microcontrollers"
            )


def _positions(tensor: Tensor) -> int:
    """The tensor's extents added up, or what a list of positions in another holds."""
    if tensor.data is not None and tensor.dtype in ("int32", "int64"):
        return math.prod(tensor.shape)
    return sum(max(extent, 0) for extent in tensor.shape)


def _places(ops: Sequence[SourceOperator]) -> str:
    if len(ops) == 1:
        return ops[0].place
    *before, last = [str(op.index) for op in ops[:MAX_TOLD]]
    if len(ops) > MAX_TOLD:
        before, last = [*before, last], f"{len(ops) - MAX_TOLD} more"
    return f"operators {', '.join(before)} and {last} ({ops[0].kind})"
