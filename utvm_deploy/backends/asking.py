"""Asks the functions of a backend. What a plug-in does wrong becomes one sentence."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from utvm_deploy.backends.interface import Backend, Build, CText, Match, Pattern, TensorType
from utvm_deploy.base.errors import PluginError, UtvmError
from utvm_deploy.base.python_file import TookTooLong, said_of, shown, within
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel, TensorArgument
from utvm_deploy.kernels.contract.operation import Operation

_Answer = TypeVar("_Answer")

#: The most that a plug-in takes to build a call, and to say which operators of a model it computes.
BUILD_SECONDS, MATCH_SECONDS = 600.0, 60.0


def built(backend: Backend, build: Build, match: Match) -> KernelCall | str:
    """The call for a match, or why the backend has none."""
    if not backend.origin:
        made = build(match)
        if isinstance(made, str):
            return made
        assert isinstance(made.kernel, LibraryKernel)
        return replace(made, kernel=replace(made.kernel, backend=backend.name))
    where = where_of(match)
    call = asked(backend, f"build for {where}", lambda: build(match), BUILD_SECONDS, match.graph)
    if isinstance(call, str):
        return call or "the backend gives no reason"
    if not isinstance(call, KernelCall) or not isinstance(call.kernel, LibraryKernel):
        raise PluginError(
            f"{backend.origin}: build for {where} returned an object of type "
            f"{type(call).__name__}; return what utvm_deploy.backends.call() gives, or a text that "
            "says why there is no call"
        )
    missing = [one for one in call.kernel.functions if not backend.has(one)]
    if missing:
        raise PluginError(
            f"{backend.origin}: build for {where} calls {missing[0]}, which the library "
            f"of {backend.name} does not define; correct the name, or build the library again"
        )
    _check_ends(backend, match, call)
    text = backend.code.text if isinstance(backend.code, CText) else ""
    has_state = bool(backend.initialize or call.kernel.engine)
    kernel = replace(
        call.kernel, text=text, is_guarded=True, has_state=has_state, backend=backend.name
    )
    return replace(call, kernel=kernel)


def _check_ends(backend: Backend, match: Match, call: KernelCall) -> None:
    """The call has the tensors of this match, and not those of another one."""
    passed = {one.tensor for one in call.arguments if isinstance(one, TensorArgument)}
    ends = {*match.inputs, *match.outputs}
    if not {*match.outputs} <= passed or any(
        number not in ends and match.graph.tensors[number].data is None for number in passed
    ):
        raise PluginError(
            f"{backend.origin}: build for {where_of(match)} returned the call of other tensors; "
            "return what call() gives for this match"
        )


def computed(
    backend: Backend, pattern: Pattern, match: Match, inputs: Sequence[Array | None]
) -> tuple[Array, ...]:
    """What a custom operator makes of these inputs, by the plug-in's NumPy reference."""
    assert pattern.reference is not None
    reference, tensors = pattern.reference, match.graph.tensors
    where = where_of(match)
    made = asked(backend, f"reference for {where}", lambda: reference(match, inputs), BUILD_SECONDS)
    if isinstance(made, np.ndarray):
        made = (made,)
    wanted = [tensors[number] for number in match.operators[-1].outputs]
    if not isinstance(made, Sequence) or len(made) != len(wanted):
        raise PluginError(
            f"{backend.origin}: reference for {where} did not return a list of {len(wanted)} "
            "arrays; return one for each output of the operator"
        )
    for array, tensor in zip(made, wanted, strict=True):
        found = (
            f"{array.dtype.name} {list(array.shape)}"
            if isinstance(array, np.ndarray)
            else f"an object of type {type(array).__name__}"
        )
        expected = f"{tensor.dtype} {list(tensor.shape)}"
        if found != expected:
            raise PluginError(
                f"{backend.origin}: reference for {where} returned {found}, and the tensor is "
                f"{expected}; return an array of this type and shape"
            )
    return tuple(made)


def inferred(
    backend: Backend, pattern: Pattern, inputs: Sequence[Tensor | None], options: bytes
) -> tuple[TensorType, ...]:
    """The types of a custom operator's outputs."""
    assert pattern.infer is not None
    infer, where = pattern.infer, pattern.custom
    made = asked(backend, f"infer for {where}", lambda: infer(inputs, options), MATCH_SECONDS)
    if isinstance(made, TensorType):
        made = (made,)
    if not isinstance(made, Sequence) or not all(isinstance(one, TensorType) for one in made):
        raise PluginError(
            f"{backend.origin}: infer for {where} did not return a list of TensorType; return one "
            "for each output of the operator"
        )
    return tuple(made)


def is_covered(backend: Backend, operation: Operation) -> bool:
    """What ``Backend.covers`` says. PluginError if it is not a boolean."""
    assert backend.covers is not None
    found = backend.covers(operation)
    if not isinstance(found, bool | np.bool_):
        raise PluginError(f"it returned {shown(found)} for {operation.kind}; return True or False")
    return bool(found)


def asked(
    backend: Backend,
    what: str,
    work: Callable[[], _Answer],
    seconds: float,
    graph: Graph | None = None,
) -> _Answer:
    """What ``work`` gives.

    Raises PluginError, with file and line, if it raises an exception, takes more ``seconds`` or
    changes the ``graph``. Our own backends have no such limit: what they run has deadlines.
    """
    before = _parts_of(graph)
    try:
        made = within(seconds, work) if backend.python_digest else work()
    except PluginError as error:
        raise PluginError(f"{backend.origin}: {what}: {error}") from error
    except (UtvmError, KeyboardInterrupt):
        raise
    except TookTooLong as error:
        raise PluginError(
            f"{backend.origin}: {what} took more than {error} seconds; correct the plug-in"
        ) from None
    except BaseException as error:  # anything may be wrong in somebody else's code
        raise PluginError(
            f"{backend.origin}: {what} raised {said_of(error)}; correct the plug-in"
        ) from error
    after = _parts_of(graph)
    if len(before) != len(after) or any(map(operator.is_not, before, after)):
        raise PluginError(f"{backend.origin}: {what} changed the model's graph; change a copy")
    return made


def _parts_of(graph: Graph | None) -> list[object]:
    """What a graph and its operators consist of."""
    things: tuple[Graph | Operator, ...] = () if graph is None else (graph, *graph.operators)
    return [getattr(one, field.name) for one in things for field in fields(one)]


def where_of(match: Match) -> str:
    """A match in a message."""
    return f"{match.kind} {match.graph.tensors[match.outputs[0]].name!r}"
