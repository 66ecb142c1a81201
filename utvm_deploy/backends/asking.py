"""Asks the functions of a backend. What a plug-in does wrong becomes one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from utvm_deploy.backends.interface import Backend, CText, Match, Pattern, TensorType
from utvm_deploy.base.errors import PluginError, UtvmError
from utvm_deploy.base.python_file import said_of
from utvm_deploy.graph.model import Array, Operator, Tensor
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel

_Answer = TypeVar("_Answer")


def built(backend: Backend, pattern: Pattern, match: Match) -> KernelCall | str:
    """The call for a match, or why the backend has none."""
    if not backend.origin:
        return pattern.build(match)
    where = _where(backend, match.operators, match.graph.tensors)
    call = asked(backend, f"build for {where}", lambda: pattern.build(match))
    if isinstance(call, str):
        return call or "the backend gives no reason"
    if not isinstance(call, KernelCall) or not isinstance(call.kernel, LibraryKernel):
        raise PluginError(
            f"{backend.origin}: build for {where} returned an object of type "
            f"{type(call).__name__}; return what utvm_deploy.backends.call() gives, or a text that "
            "says why there is no call"
        )
    if not backend.has(call.kernel.function):
        raise PluginError(
            f"{backend.origin}: build for {where} calls {call.kernel.function}, which the library "
            f"of {backend.name} does not define; correct the name, or build the library again"
        )
    text = backend.code.text if isinstance(backend.code, CText) else ""
    has_state = bool(backend.initialize)
    kernel = replace(call.kernel, text=text, is_guarded=True, has_state=has_state)
    return replace(call, kernel=kernel)


def computed(
    backend: Backend, pattern: Pattern, match: Match, inputs: Sequence[Array | None]
) -> tuple[Array, ...]:
    """What a custom operator makes of these inputs, by the plug-in's NumPy reference."""
    assert pattern.reference is not None
    reference, tensors = pattern.reference, match.graph.tensors
    where = _where(backend, match.operators, tensors)
    made = asked(backend, f"reference for {where}", lambda: reference(match, inputs))
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
    infer, where = pattern.infer, pattern.operators[0]
    made = asked(backend, f"infer for {where}", lambda: infer(inputs, options))
    if isinstance(made, TensorType):
        made = (made,)
    if not isinstance(made, Sequence) or not all(isinstance(one, TensorType) for one in made):
        raise PluginError(
            f"{backend.origin}: infer for {where} did not return a list of TensorType; return one "
            "for each output of the operator"
        )
    return tuple(made)


def asked(backend: Backend, what: str, work: Callable[[], _Answer]) -> _Answer:
    """What ``work`` gives; PluginError with file and line if it raises an exception."""
    try:
        return work()
    except PluginError as error:
        raise PluginError(f"{backend.origin}: {what}: {error}") from error
    except UtvmError:
        raise
    except (Exception, SystemExit) as error:  # anything may be wrong in somebody else's code
        raise PluginError(
            f"{backend.origin}: {what} raised {said_of(error)}; correct the plug-in"
        ) from error


def _where(backend: Backend, operators: Sequence[Operator], tensors: Sequence[Tensor]) -> str:
    kinds = "+".join(operator.kind for operator in operators)
    return f"{kinds} {tensors[operators[-1].outputs[0]].name!r}"
