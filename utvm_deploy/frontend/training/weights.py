"""Which constants of a Relax module train: they become parameters of its function ``main``.

A layer that can train is a product with constant weights (``matmul``, ``conv2d``) with the bias
behind it, or a normalization of layers or groups with its scale and shift.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.relax.operators import (
    constant_of,
    operator_name,
    shape_of,
    variables_of,
    with_bindings,
)
from utvm_deploy.graph.model import Array

#: Operators whose constants train -> the position and the name of each.
_TRAINED: Mapping[str, Mapping[int, str]] = {
    "relax.matmul": {1: "weight"},
    "relax.nn.conv2d": {1: "weight"},
    "relax.nn.group_norm": {1: "scale", 2: "shift"},
    "relax.nn.layer_norm": {1: "scale", 2: "shift"},
}
_PRODUCTS = ("relax.matmul", "relax.nn.conv2d")

#: The values of a weight -> the names of the layers with it, in the source of the module.
Names = Mapping[bytes, Sequence[str]]


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant that trains: the binding and the operand where it is, and its first values."""

    name: str
    binding: int
    operand: int
    values: Array


@dataclass(frozen=True, eq=False)
class TrainableLayer:
    """What trains together."""

    name: str
    kind: str
    weights: tuple[Weight, ...]
    is_named: bool  # by its source, where no other layer has this name

    def __str__(self) -> str:
        shape = "x".join(map(str, self.weights[0].values.shape))
        return f"{self.name} ({self.kind} {shape})"


def trainable_layers(function: Any, names: Names) -> list[TrainableLayer]:
    """The layers of a function that can train, in their order.

    Layers with equal weights have their names in the same order. They have none if some of the
    names are those of other layers, such as batch normalizations.
    """
    bindings = function.body.blocks[0].bindings
    candidates = []
    for position, binding in enumerate(bindings):
        kind = operator_name(binding.value)
        given = {}
        for place in _TRAINED.get(kind, ()):
            array = constant_of(binding.value.args[place])
            if array is not None and kind == "relax.matmul":
                array = _of_one_batch(array)
            if array is not None:
                given[place] = array
        if not given:
            continue
        first = next(iter(given.values()))
        if getattr(binding.value.attrs, "kernel_layout", "") == "OHWI":
            first = np.moveaxis(first, -1, 1)  # as it was given
        candidates.append((position, first.tobytes(), given))
    counts = Counter(key for _, key, _ in candidates)
    named = {key: iter(some) for key, some in names.items() if len(some) == counts[key]}
    found = []
    for position, key, given in candidates:
        binding, kind = bindings[position], operator_name(bindings[position].value)
        layer = next(named[key]) if key in named else str(binding.var.name)
        weights = [
            Weight(f"{layer}.{_TRAINED[kind][place]}", position, place, array)
            for place, array in given.items()
        ]
        if kind in _PRODUCTS:
            weights += _bias(bindings, binding, layer)
        found.append(TrainableLayer(layer, kind.rpartition(".")[2], tuple(weights), key in named))
    return found


def identity_of(module: Any, main: str) -> str:
    """What distinguishes a model from others: the operators of a function, and its float constants.

    They are equal at each batch that a model is compiled for, so its weights fit each.
    """
    told = []

    def visit(expression: Any) -> None:
        array = constant_of(expression)
        if array is not None:
            one = array if array.ndim < 3 else _of_one_batch(array)
            told.append(hashlib.sha256((array if one is None else one).tobytes()).hexdigest())
        told.append(operator_name(expression))

    relax.analysis.post_order_visit(module[main], visit)
    return "\n".join(filter(None, told))


def _of_one_batch(array: Array) -> Array | None:
    """The weights of a dense layer that PyTorch repeats for a batch; None if they differ there."""
    first = array.reshape(-1, *array.shape[-2:])[0]
    return np.ascontiguousarray(first) if (array == first).all() else None


def _bias(bindings: Any, product: Any, layer: str) -> Iterator[Weight]:
    """The constant that is added to a product, one number for each channel."""
    readers = [
        (position, one)
        for position, one in enumerate(bindings)
        if any(var.same_as(product.var) for var in variables_of(one.value))
    ]
    if len(readers) != 1 or operator_name(readers[0][1].value) != "relax.add":
        return
    position, reader = readers[0]
    axis = getattr(product.value.attrs, "out_layout", "").find("C")  # the last one of a matmul
    channels = shape_of(product.var)[axis]
    for place, operand in enumerate(reader.value.args):
        array = constant_of(operand)
        if array is not None and array.size == channels and channels == math.prod(array.shape):
            yield Weight(f"{layer}.bias", position, place, array)


def check_not_shared(layers: Sequence[TrainableLayer], chosen: Sequence[int]) -> None:
    """UnsupportedOperator if weights that train are also those of another layer."""
    weights = [layer.weights[0].values for layer in layers]
    for position in chosen:
        own = weights[position]
        for other, array in enumerate(weights):
            same = any(np.array_equal(own, one) for one in (array, array.T))
            is_apart = layers[position].is_named and layers[other].is_named
            if other != position and same and own.min() < own.max() and not is_apart:
                raise UnsupportedOperator(
                    f"layers {layers[position].name} and {layers[other].name} have the same "
                    "weights, and would not stay equal; train other layers"
                )


def with_parameters(module: Any, main: str, weights: Sequence[Weight]) -> Any:
    """The module in which these weights are the last parameters of its function ``main``.

    What does not depend on them has no gradient. Raises UnsupportedOperator for an operator behind
    a weight for which none is known.
    """
    (block,) = module[main].body.blocks
    parameters = [
        relax.Var(one.name, relax.TensorType(one.values.shape, "float32")) for one in weights
    ]
    places = {
        (one.binding, one.operand): parameter
        for one, parameter in zip(weights, parameters, strict=True)
    }
    moving = {*parameters}
    bindings, missing = [], list[str]()
    for position, binding in enumerate(block.bindings):
        value = binding.value
        if isinstance(value, ir.Call):
            operands = [
                places.get((position, place), operand) for place, operand in enumerate(value.args)
            ]
            is_moving = [any(v in moving for v in variables_of(one)) for one in operands]
            if any(is_moving) and _is_float(binding.var):
                if operator_name(value) == "" or value.op.get_attr("FPrimalGradient") is None:
                    kind = (operator_name(value) or str(value.op)).removeprefix("relax.")
                    missing.append(f"{kind}, which makes '{binding.var.name}'")
                operands = [
                    relax.op.grad.no_grad(one) if isinstance(one, relax.Var) and not moves else one
                    for one, moves in zip(operands, is_moving, strict=True)
                ]
            value = ir.Call(value.op, operands, value.attrs, value.ty_args)
        if any(variable in moving for variable in variables_of(value)) and _is_float(binding.var):
            moving.add(binding.var)
        bindings.append(relax.VarBinding(binding.var, value))
    if missing:
        raise UnsupportedOperator(
            f"no gradient is known for {', '.join(missing)}; train only layers behind it"
        )
    return with_bindings(module, main, bindings, parameters)


def _is_float(variable: Any) -> bool:
    """Whether a change of a weight may change it by a little; a tuple's parts are looked at."""
    return str(getattr(variable.ty, "dtype", "float32")).startswith("float")


def with_constants(module: Any, main: str, given: Mapping[tuple[int, int], Array]) -> Any:
    """The module with other values of constants: a binding and an operand -> values.

    Each gets a separate constant, because several operands may read one.
    """
    bindings = list(module[main].body.blocks[0].bindings)
    for (position, place), array in given.items():
        variable, value = bindings[position].var, bindings[position].value
        operands = list(value.args)
        shape = operands[place].value.shape
        operands[place] = relax.const(np.array(np.broadcast_to(array, shape)))
        value = ir.Call(value.op, operands, value.attrs, value.ty_args)
        bindings[position] = relax.VarBinding(variable, value)
    return with_bindings(module, main, bindings)
