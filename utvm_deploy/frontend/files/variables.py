"""Variables of a file -> state of the graph, without the operators that name and initialize them.

A file names a variable (VAR_HANDLE) and assigns its first value in a subgraph that runs once
(CALL_ONCE). It reads the variable and assigns it. Here each becomes a pair of tensors.
READ_VARIABLE reads the state that a run finds. A last ASSIGN_VARIABLE, after all other operators,
writes the state for the next run. A read after an assignment gives the assigned tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.source import ModelFile, SourceOperator
from utvm_deploy.graph.model import Tensor

_HANDLE, _READ, _ASSIGN = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"
#: Calls a subgraph on the first run alone.
ONCE = "CALL_ONCE"
#: Operators that the import removes.
RESOLVED = (ONCE, _HANDLE)
_KINDS = (*RESOLVED, _READ, _ASSIGN)
_RESOURCE = "resource"


@dataclass
class _Variable:
    """What is known about one while the import goes through the operators."""

    name: str
    first: Tensor | None = None  # the constant that a subgraph assigns once
    like: Tensor | None = None  # what was read or assigned first: all must have its form
    found: int | None = None  # the tensor that a run finds
    assigned: SourceOperator | None = None  # in this run, the last time

    def check(self, op: SourceOperator, tensor: Tensor) -> None:
        """Raise unless the tensor has the form of all others of this variable."""
        self.like = self.like or tensor
        if (tensor.shape, tensor.dtype) != (self.like.shape, self.like.dtype):
            raise op.unsupported(
                f"variable '{self.name}' is {self.like.dtype} of shape {self.like.shape}, but "
                f"'{tensor.name}' is {tensor.dtype} of shape {tensor.shape}; they must be equal"
            )


class _Handles:
    """Which tensors of a subgraph name which variable."""

    def __init__(self, variables: dict[tuple[str, str], _Variable]) -> None:
        self._variables = variables
        self._named: dict[int, tuple[str, str]] = {}

    def name(self, op: SourceOperator) -> None:
        """Take a VAR_HANDLE."""
        handle, key = op.output(), (op.text("Container"), op.text("SharedName"))
        (number,) = op.outputs
        if handle.dtype != _RESOURCE:
            raise op.damaged(f"'{handle.name}' is {handle.dtype}, which names no variable")
        if number in self._named or handle.data is not None:
            raise op.damaged(f"'{handle.name}' names another variable already")
        self._named[number] = key
        self._variables.setdefault(key, _Variable(key[1] or handle.name))

    def variable(self, op: SourceOperator) -> _Variable:
        """The variable that an operator reads or assigns."""
        handle, number = op.input(0), op.inputs[0]
        if number not in self._named:
            raise op.damaged(f"'{handle.name}' names no variable; VAR_HANDLE must make it before")
        return self._variables[self._named[number]]


def resolve_variables(source: ModelFile) -> ModelFile:
    """The file with pairs of tensors in the place of its variables."""
    if not any(op.kind in _KINDS for op in source.operators):
        _check_called(source)
        return source
    variables: dict[tuple[str, str], _Variable] = {}
    handles, initialized = _Handles(variables), set[int]()
    tensors, operators = list(source.tensors), list[SourceOperator]()
    states: list[tuple[int, int]] = []
    cut = None if source.prefill is None else source.prefill.operators
    for op in source.operators:
        if op.index == cut:  # a block finds what steps left, and not what this step computes
            operators += _written(variables.values(), tensors, states)
        if op.kind == _HANDLE:
            handles.name(op)
        elif op.kind == ONCE:
            if any(v.found is not None or v.assigned for v in variables.values()):
                raise op.unsupported("variables are read or assigned before it; it must come first")
            called = op.integer("InitSubgraphIndex")
            if called not in source.once:
                raise op.damaged(f"it calls subgraph {called}, which the file does not have")
            if called not in initialized:  # each runs once, however often it is called
                initialized.add(called)
                _initialize(op, source.once[called], variables)
        elif op.kind == _READ:
            operators.append(_read(op, handles.variable(op), tensors))
        elif op.kind == _ASSIGN:
            variable = handles.variable(op)
            variable.check(op, op.input(1))
            variable.assigned = op
        else:
            operators.append(op)
    _check_called(source)
    operators += _written(variables.values(), tensors, states)
    kept, constants = {number for pair in states for number in pair}, set[int]()
    for variable in variables.values():
        number = variable.found
        if number is not None and number not in kept:  # what is never assigned is a constant
            assert variable.first is not None, "_read demands it"
            tensors[number] = replace(tensors[number], data=variable.first.data, first=None)
            constants.add(number)
    resolved = (
        _moving(op) if op.kind == _READ and op.inputs[0] in constants else op for op in operators
    )
    return replace(
        source,
        tensors=tuple(tensors),
        operators=tuple(replace(op, tensors=tuple(tensors)) for op in resolved),
        states=tuple(states),
    )


def _written(
    variables: Iterable[_Variable], tensors: list[Tensor], states: list[tuple[int, int]]
) -> Iterator[SourceOperator]:
    """The operators that write the states for what comes next, which finds them there."""
    for variable in variables:
        last, number = variable.assigned, variable.found
        if last is None or number is None:
            continue
        states.append((number, len(tensors)))
        yield replace(last, inputs=last.inputs[1:], outputs=(len(tensors),))
        variable.found, variable.assigned = len(tensors), None
        tensors.append(
            replace(tensors[number], name=f"{variable.name} (next)", source=None, first=None)
        )


def called_once(main: ModelFile, subgraphs: int) -> list[int]:
    """The subgraphs behind the main one that a CALL_ONCE calls, each once, in order."""
    numbers = {op.integer("InitSubgraphIndex") for op in main.operators if op.kind == ONCE}
    return sorted(number for number in numbers if 0 < number < subgraphs)


def _check_called(source: ModelFile) -> None:
    """Raise ModelError where a file has a subgraph that no CALL_ONCE calls."""
    if len(source.once) + 1 < source.subgraphs:
        raise ModelError(
            f"the model has {source.subgraphs} subgraphs; only models with exactly one, and with "
            "others that CALL_ONCE calls to initialize variables, are supported: export a single "
            "function without control flow"
        )


def _initialize(
    once: SourceOperator,
    operators: Sequence[SourceOperator],
    variables: dict[tuple[str, str], _Variable],
) -> None:
    """Note the constants that the operators of a subgraph assign, which CALL_ONCE calls."""
    handles = _Handles(variables)
    for op in operators:
        try:
            if op.kind == _HANDLE:
                handles.name(op)
            elif op.kind == _ASSIGN:
                variable, value = handles.variable(op), op.input(1)
                if value.data is None:
                    raise op.unsupported(f"it assigns '{value.name}', which is not a constant")
                variable.first = variable.like = value
            else:
                raise op.unsupported("only VAR_HANDLE and ASSIGN_VARIABLE can be there")
        except ModelError as exc:
            raise type(exc)(f"{once.place}: in the subgraph that it calls, {exc}") from exc
    for variable in variables.values():
        # One that is only named there is not initialized; the form of others is what they got.
        variable.like = variable.first


def _read(op: SourceOperator, variable: _Variable, tensors: list[Tensor]) -> SourceOperator:
    """The operator that reads what was assigned in this run or, the first time, is found."""
    out = op.output()
    variable.check(op, out)
    if variable.assigned is not None:
        return _moving(replace(op, inputs=variable.assigned.inputs[1:2]))
    if variable.first is None:
        raise op.unsupported(
            f"variable '{variable.name}' is read before anything is assigned to it; export the "
            "model with its initialization"
        )
    if variable.found is None:
        variable.found = len(tensors)
        found = replace(out, name=variable.name, source=None, first=variable.first.data)
        tensors.append(found)
    return replace(op, inputs=(variable.found,))


def _moving(op: SourceOperator) -> SourceOperator:
    """An operator that reads no state, but the same bytes elsewhere."""
    return replace(op, kind="RESHAPE", options={})
