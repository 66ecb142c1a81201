"""The candidates of an operator on a core, and the identity under which records keep them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from utvm_deploy.graph.attributes import Convolution, FullyConnected, TransposeConvolution
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.shapes import input_tensor
from utvm_deploy.kernels.choose.lowering import candidates_in, families_for, lower
from utvm_deploy.kernels.contract.call import AnyKernel, LibraryKernel, OwnKernel
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.kernels.portable.schedules.template_free import sketches
from utvm_deploy.records import KernelIdentity
from utvm_deploy.records.candidate import GENERIC, SPARSE, Candidate
from utvm_deploy.records.record import USUAL_WEIGHTS


def space(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """Every candidate for ``operator`` on ``core``; those of the default's family come first."""
    layer = Layer(graph, operator, core, lower(graph, operator, candidate=Candidate(GENERIC)))
    found: list[Candidate] = []
    for family in (SPARSE, *families_for(core)):
        # If there is a better family, only the portable kernel's default is compared with it.
        has_better = family == GENERIC and bool(found)
        found += (Candidate(GENERIC),) if has_better else candidates_in(family, layer)
    # A family may have candidates and still leave the default to the portable kernel.
    default = lower(graph, operator, core).family
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.family != default))


def packings(graph: Graph, operator: Operator, core: str) -> tuple[Candidate, ...]:
    """The candidates that leave out zeros; () if all weights are multiplied."""
    portable = lower(graph, operator, candidate=Candidate(GENERIC))
    return candidates_in(SPARSE, Layer(graph, operator, core, portable))


def free_kernel(
    graph: Graph, operator: Operator, candidates: Sequence[Candidate], *, everywhere: bool = False
) -> OwnKernel | None:
    """The kernel whose template-free space is searched, too; None if it is not worth a trial.

    Plain C is far from kernels of SIMD instructions. Instructions for float32 compute one value at
    a time, so there another order of loops may win over another family. ``everywhere`` asks for the
    kernel in both cases.
    """
    source = operator.inputs[0]
    is_float = source is not None and graph.tensors[source].dtype == "float32"
    if not (is_float or everywhere) and any(
        candidate.family != GENERIC for candidate in candidates
    ):
        return None
    kernel = lower(graph, operator).kernel
    assert not isinstance(kernel, LibraryKernel)
    return kernel if sketches(kernel) else None


def identity_of(graph: Graph, operator: Operator, *, dense: bool = False) -> KernelIdentity:
    """The portable kernel's name and shape, and the type of the first input.

    ``dense``: of the kernel that has all weights, also those that are zeros.
    """
    call = lower(graph, operator, candidate=Candidate(GENERIC) if dense else None)
    source = next(position for position in operator.inputs if position is not None)
    types = graph.tensors[source].dtype, weights_type(graph, operator)
    return _identity(call.kernel, types, operator.kind, call.macs)


def weights_type(graph: Graph, operator: Operator) -> str:
    """What identities say of the weights: the element type, but nothing of the usual ones."""
    if not isinstance(operator.attributes, Convolution | FullyConnected | TransposeConvolution):
        return ""
    dtype = input_tensor(graph, operator, 1).dtype
    return "" if dtype in USUAL_WEIGHTS else dtype


@lru_cache(maxsize=4096)
def _identity(kernel: AnyKernel, types: tuple[str, str], kind: str, macs: int) -> KernelIdentity:
    shape = tuple(sorted(_extents(kernel, "")))
    return KernelIdentity(kernel.name, types[0], kind, shape, macs, types[1])


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
