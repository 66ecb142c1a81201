"""Which bound each layer of a model has, and the check of layers where some bounds are not 0.

Each inexact layer is compared within its bound, and then the reference's result takes its place. So
the next layer has the reference's inputs, and its own bound holds. No error adds up.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from utvm_deploy.compiler.compiled.model import CompiledModel, Layer
from utvm_deploy.compiler.options import FAST
from utvm_deploy.device import DeviceModel
from utvm_deploy.graph.float_bounds import EXACT, FLOAT_BOUNDS, OF_MODELS, Bound
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.oracle import number_reference, relax_reference

#: The tensors of one sample: file position -> the reference's array.
Tensors = Mapping[int, Array]


def bounds_of(compiled: CompiledModel, reference: str) -> dict[int, Bound]:
    """Of each layer, by its index, the bound that holds if it gets the reference's inputs."""
    if reference.startswith(number_reference.REFERENCE):
        return {layer.index: EXACT for layer in compiled.layers}
    by_llvm = reference == relax_reference.REFERENCE
    outputs = {buffer.source for buffer in compiled.outputs} if by_llvm else set()
    bounds = {layer.index: _bound_of(layer, outputs) for layer in compiled.layers}
    if compiled.float_math == FAST:
        return {one.index: OF_MODELS if _is_float(one) else EXACT for one in compiled.layers}
    if compiled.states and any(not bound.is_exact for bound in bounds.values()):
        # What a run leaves for the next one is our own result, not the reference's.
        return {
            layer.index: OF_MODELS if _is_float(layer) else bounds[layer.index]
            for layer in compiled.layers
        }
    return bounds


def _bound_of(layer: Layer, whole: set[int | None]) -> Bound:
    """``whole``: the outputs that the reference computes by another order of operations.

    A backend's code may have another order, too.
    """
    if not _is_float(layer):
        return EXACT
    if layer.is_external or any(buffer.source in whole for buffer in layer.outputs):
        return OF_MODELS
    return FLOAT_BOUNDS.get(layer.kind, EXACT)


def _is_float(layer: Layer) -> bool:
    return all(buffer.dtype == "float32" for buffer in layer.outputs)


def whole_bound(bounds: Mapping[int, Bound]) -> Bound:
    """The bound of a whole model's float32 outputs."""
    return EXACT if all(bound.is_exact for bound in bounds.values()) else OF_MODELS


def integers_behind(
    compiled: CompiledModel, graph: Graph, bounds: Mapping[int, Bound]
) -> tuple[int, ...]:
    """The positions of the outputs of integers that depend on an inexact layer.

    ``graph`` is that of the model's file.
    """
    inexact = {
        position
        for layer in compiled.layers
        if not bounds[layer.index].is_exact
        for position in layer.operators
    }
    reached: set[int | None] = set()
    before = -1
    # What a state brings to the next run is found in a further round.
    while before != len(reached):
        before = len(reached)
        for operator in graph.operators:
            if not reached.isdisjoint(operator.inputs) or not inexact.isdisjoint(operator.sources):
                reached.update(operator.outputs)
        reached.update(found for found, left in graph.states if left in reached)
    return tuple(
        index
        for index, number in enumerate(graph.outputs)
        if number in reached and graph.tensors[number].dtype != "float32"
    )


def corrected_run(
    model: DeviceModel, inputs: Sequence[Array], bounds: Mapping[int, Bound], tensors: Tensors
) -> tuple[bool, dict[int, tuple[Array, ...]]]:
    """Whether the checksums of the exact layers are right, and what the inexact layers made."""
    inexact = {
        layer.index
        for layer in model.compiled.layers
        if not bounds[layer.index].is_exact and all(b.source in tensors for b in layer.outputs)
    }
    sums, fetched = model.run_corrected(inputs, inexact, tensors)
    right = all(
        checksum == checksum_of(buffer.of_file(tensors[buffer.source]))
        for layer, ours in zip(model.compiled.layers, sums, strict=True)
        for buffer, checksum in zip(layer.outputs, ours, strict=True)
        if layer.index not in inexact and buffer.source is not None
    )
    return right, fetched


def checksum_of(array: Array) -> int:
    """The CRC-32 of an array's bytes, as the device computes it."""
    return zlib.crc32(np.ascontiguousarray(array).tobytes())
