"""The identity of a kernel: the key under which its records are kept, for all candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.records import KernelIdentity


def identity_of(graph: Graph, operator: Operator) -> KernelIdentity:
    """The portable kernel's name and shape, and the type of the first input."""
    call = lower(graph, operator)
    source = next(position for position in operator.inputs if position is not None)
    return KernelIdentity(
        call.kernel.name,
        graph.tensors[source].dtype,
        operator.kind,
        tuple(sorted(_extents(call.kernel, ""))),
        call.macs,
    )


def _extents(value: Any, name: str) -> Iterator[tuple[str, int]]:
    """A kernel's integers and booleans, by dotted names such as ``window.kernel.0``."""
    if is_dataclass(value):
        for field in fields(value):
            path = f"{name}.{field.name}" if name else field.name
            yield from _extents(getattr(value, field.name), path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _extents(item, f"{name}.{index}")
    elif isinstance(value, bool | int):
        yield name, int(value)
