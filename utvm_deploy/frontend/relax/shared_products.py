"""One product over all steps, instead of one product for each step with the same weights.

An unrolled recurrent layer takes one row after another from its input and multiplies each by the
same weights. All rows are known at once, so one product can read the weights once. Each sum keeps
its order, so the values keep all bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax, tirx

from utvm_deploy.frontend.relax.operators import operator_name, readers_of, shape_of, with_bindings


@dataclass(frozen=True, eq=False)
class _Row:
    """One row of a tensor, as part of a product."""

    tensor: Any
    rows: int
    row: int
    weights: Any
    bias: Any  # None: nothing is added
    result: Any  # the variable that the product, or the sum with the bias, becomes

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for rows that one product can compute."""
        bias = None if self.bias is None else _values(self.bias)
        return self.tensor, _values(self.weights), bias


def with_shared_products(module: Any, main: str) -> Any:
    """The module with one product for all rows of a tensor, wherever each row has its own."""
    function = module[main]
    if len(function.body.blocks) != 1:
        return module
    bindings = function.body.blocks[0].bindings
    groups: dict[tuple[Any, ...], list[_Row]] = defaultdict(list)
    for row in _rows(bindings, function.body.body):
        groups[row.key].append(row)
    shared = [group for group in groups.values() if _is_complete(group)]
    if not shared:
        return module
    group_of = {row.result: (group[0], row) for group in shared for row in group}
    products: dict[Any, Any] = {}
    made: list[Any] = []

    def emit(value: Any, name: str) -> Any:
        normal = relax.BlockBuilder().normalize(value)
        variable = relax.DataflowVar(name, normal.ty)
        made.append(relax.VarBinding(variable, normal))
        return variable

    for binding in bindings:
        found = group_of.get(binding.var)
        if found is None:
            made.append(binding)
            continue
        first, row = found
        if first not in products:
            wide = (first.rows, first.weights.ty.shape.values[0])
            product = emit(relax.op.reshape(first.tensor, wide), "rows")
            product = emit(relax.op.matmul(product, first.weights), "product")
            if first.bias is not None:
                product = emit(relax.op.add(product, first.bias), "sum")
            products[first] = product
        part = relax.op.strided_slice(products[first], [0], [row.row], [row.row + 1])
        value = relax.BlockBuilder().normalize(part)
        if list(value.ty.shape) != list(binding.var.ty.shape):
            value = relax.op.reshape(emit(part, "row"), binding.var.ty.shape)
        made.append(relax.VarBinding(binding.var, relax.BlockBuilder().normalize(value)))
    return relax.transform.DeadCodeElimination([main])(with_bindings(module, main, made))


def _is_complete(group: list[_Row]) -> bool:
    """Whether every row is needed: then one product does no more work than the rows did."""
    return len(group) > 1 and {one.row for one in group} == set(range(group[0].rows))


def _rows(bindings: Any, result: Any) -> Iterator[_Row]:
    values = {binding.var: binding.value for binding in bindings}
    readers = readers_of(bindings, result)
    for binding in bindings:
        if operator_name(binding.value) != "relax.matmul":
            continue
        taken, weights = binding.value.args
        if not isinstance(weights, ir.GenericConst) or len(weights.ty.shape) != 2:
            continue
        if taken.ty.dtype != binding.var.ty.dtype:
            continue  # sums of another type than the factors
        source: Any = values.get(taken)
        if operator_name(source) == "relax.reshape":
            source = values.get(source.args[0])
        place = _row_of(source, int(weights.ty.shape.values[0]))
        if place is None or int(taken.ty.shape.values[-1]) != int(weights.ty.shape.values[0]):
            continue
        after = readers[binding.var]
        bias = _bias(after[0], binding.var) if len(after) == 1 else None
        end = binding.var if bias is None else after[0].var
        yield _Row(*place, weights, bias, end)


def _row_of(value: Any, width: int) -> tuple[Any, int, int] | None:
    """The tensor, its number of rows, and which row this slice of it is; None if it is none."""
    if operator_name(value) != "relax.strided_slice":
        return None
    tensor, *lists = value.args
    if not isinstance(tensor, relax.Var) or not all(isinstance(x, relax.Tuple) for x in lists):
        return None
    if not all(isinstance(x, tirx.IntImm) for one in lists for x in one.fields):
        return None
    numbers = [[int(x) for x in one.fields] for one in lists]
    shape = shape_of(tensor)
    if any(len(one) != 1 for one in numbers) or shape[-1] != width:
        return None
    (axis,), (begin,) = numbers[:2]
    axis = axis % len(shape)
    others = [n for i, n in enumerate(shape[:-1]) if i != axis]
    part = shape_of(value)
    if axis == len(shape) - 1 or any(n != 1 for n in others) or part[axis] != 1:
        return None
    row = begin + shape[axis] if begin < 0 else begin
    return (tensor, shape[axis], row) if 0 <= row < shape[axis] else None


def _bias(binding: Any, product: Any) -> Any:
    """What is added to each row of a product, if it is a constant of one axis; else None."""
    if binding is None or operator_name(binding.value) != "relax.add":
        return None
    left, right = binding.value.args
    other = right if product.same_as(left) else left
    if not isinstance(other, ir.GenericConst) or len(other.ty.shape) != 1:
        return None
    is_whole = int(other.ty.shape.values[0]) == int(product.ty.shape.values[-1])
    return other if is_whole else None


def _values(constant: Any) -> tuple[Any, ...]:
    array = constant.value.numpy()
    return array.shape, str(array.dtype), array.tobytes()
