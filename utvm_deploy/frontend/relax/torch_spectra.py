"""Complex numbers of a PyTorch program as pairs of real ones, for TVM has no complex numbers.

Fourier transforms become products with their matrices. ``unfold`` and reflections take elements by
constant places. ``spectra.py`` makes fast transforms of what it recognizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.graph.signals.fft_plan import Transform

#: Elements of a matrix that a transform may become; that of a fast one is not on the board.
_MOST, _MOST_FAST = 1 << 20, 1 << 23


def without_complex(program: Any) -> Any:
    """The program in ATen's core operators; real numbers take the place of complex ones."""
    import torch

    table = torch.export.default_decompositions()
    table.pop(torch.ops.aten.reflection_pad1d.default, None)
    core = program.run_decompositions(table)
    _Pairs(core).change()
    return core


class _Pairs:
    """The graph that is changed, and the pairs that complex nodes have become."""

    def __init__(self, program: Any) -> None:
        import torch

        self._torch, self._module = torch, program.graph_module
        self._graph = program.graph
        self._pairs: dict[Any, Any] = {}
        self._node: Any = None  # that is replaced
        aten = torch.ops.aten
        self._aten = aten
        #: Operators that only move elements -> their arguments for pairs.
        self._movers: dict[Any, Callable[[int, Any], tuple[Any, ...]]] = {
            aten.clone.default: lambda rank, args: (),
            aten.expand.default: lambda rank, args: ([*args[0], 2],),
            aten.permute.default: lambda rank, args: ([*(d % rank for d in args[0]), rank],),
            aten.select.int: _first_axis,
            aten.slice.Tensor: _first_axis,
            aten.squeeze.dims: lambda rank, args: ([d % rank for d in args[0]],),
            aten.unsqueeze.default: lambda rank, args: (args[0] % (rank + 1),),
            aten.view.default: lambda rank, args: ([*args[0], 2],),
        }
        self._makers: dict[Any, Callable[[Any], Any]] = {
            aten._fft_r2c.default: self._of_reals,
            aten.view_as_complex.default: lambda node: node.args[0],
            aten.complex.default: lambda node: self._call(aten.stack.default, node.args[:2], -1),
            aten._conj.default: self._conjugate,
            aten.conj_physical.default: self._conjugate,
            aten.mul.Tensor: self._product,
            aten.div.Tensor: self._scaled,
            aten.add.Tensor: self._scaled,
            aten.sub.Tensor: self._scaled,
        }
        self._by_places: dict[Any, Callable[[Any], Any]] = {
            aten.reflection_pad1d.default: self._reflected,
            aten.unfold.default: self._frames,
        }
        self._readers: dict[Any, Callable[[Any], Any]] = {
            aten._fft_c2r.default: self._to_reals,
            aten.abs.default: self._amount,
            aten.view_as_real.default: lambda node: self._pairs[node.args[0]],
        }

    def change(self) -> None:
        for node in list(self._graph.nodes):
            if node.op == "output" and any(one in self._pairs for one in node.all_input_nodes):
                raise ModelError(
                    "an output of the program is complex; end it with torch.view_as_real or abs"
                )
            if node.op != "call_function":
                continue
            self._node = node
            if node.target in self._by_places:
                self._replace(self._by_places[node.target](node))
            elif getattr(node.meta.get("val"), "is_complex", bool)():
                self._pairs[node] = self._complex(node)
            elif any(one in self._pairs for one in node.all_input_nodes):
                if node.target not in self._readers:
                    raise self._unsupported()
                self._replace(self._readers[node.target](node))
        self._graph.eliminate_dead_code()

    def _unsupported(self) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"{self._node.target} of complex numbers, which makes '{self._node.name}', is not "
            "supported; compute with real and imaginary parts"
        )

    def _replace(self, other: Any) -> None:
        self._node.replace_all_uses_with(other)

    def _complex(self, node: Any) -> Any:
        """The pairs of a complex node."""
        if node.target in self._movers:
            return self._moved(node)
        if node.target not in self._makers:
            raise self._unsupported()
        return self._makers[node.target](node)

    def _moved(self, node: Any) -> Any:
        source, *rest = node.args
        given = self._movers[node.target](len(_shape(source)), rest)
        return self._call(node.target, self._pairs[source], *given)

    def _call(self, target: Any, *args: Any) -> Any:
        """A new node in front of the one that is replaced."""
        with self._graph.inserting_before(self._node):
            made = self._graph.call_function(target, args)
        values = self._torch.fx.node.map_arg(args, lambda one: one.meta["val"])
        made.meta = {**self._node.meta, "val": target(*values)}
        return made

    def _constant(self, data: Any, like: Any) -> Any:
        """A node with these values; TVM's importer takes the attribute as it is."""
        from tvm import relax

        name = f"spectra_{len(self._graph.nodes)}"
        setattr(self._module, name, relax.const(data))
        with self._graph.inserting_before(self._node):
            made = self._graph.get_attr(name)
        with like.meta["val"].fake_mode:
            value = self._torch.empty(data.shape, dtype=getattr(self._torch, data.dtype.name))
        made.meta = {"val": value}
        return made

    def _frames(self, node: Any) -> Any:
        x, axis, size, step = node.args
        shape = _shape(x)
        if not shape or axis % len(shape) != len(shape) - 1:
            return node
        count = (shape[-1] - size) // step + 1
        places = np.arange(count)[:, None] * step + np.arange(size)
        taken = self._taken(x, places.reshape(-1))
        return self._call(self._aten.view.default, taken, [*shape[:-1], count, size])

    def _reflected(self, node: Any) -> Any:
        """Samples in front of a signal and behind it, in reverse."""
        x, (before, behind) = node.args
        last = _shape(x)[-1] - 2
        ends = np.arange(before, 0, -1), np.arange(last, last - behind, -1)
        sides = [self._taken(x, places) for places in ends]
        return self._call(self._aten.cat.default, [sides[0], x, sides[1]], len(_shape(x)) - 1)

    def _taken(self, x: Any, places: Any) -> Any:
        """Elements at constant places along the last axis."""
        index = self._constant(places.astype(np.int64), x)
        return self._call(self._aten.index_select.default, x, len(_shape(x)) - 1, index)

    def _times(self, x: Any, transform: Transform) -> Any:
        if math.prod(transform.shape) > (_MOST_FAST if transform.is_fast else _MOST):
            raise UnsupportedOperator(f"'{self._node.name}' transforms too many values; use fewer")
        return self._call(self._aten.matmul.default, x, self._constant(transform.matrix(), x))

    def _turned(self, x: Any, axis: int, place: int) -> Any:
        """The tensor with an axis at another place."""
        order = [one for one in range(len(_shape(x))) if one != axis]
        order.insert(place, axis)
        is_same = order == sorted(order)
        return x if is_same else self._call(self._aten.permute.default, x, order)

    def _axis(self) -> int:
        """The only axis of a transform."""
        x, axes = self._node.args[:2]
        if len(axes) != 1:
            raise self._unsupported()
        return int(axes[0]) % len(_shape(x))

    def _of_reals(self, node: Any) -> Any:
        x, _, norm, is_half = node.args
        axis, last = self._axis(), len(_shape(x)) - 1
        if not is_half:
            raise self._unsupported()
        count = _shape(x)[axis]
        made = self._times(self._turned(x, axis, last), Transform(count, count))
        made = self._call(self._aten.view.default, made, [*_shape(made)[:-1], count // 2 + 1, 2])
        made = self._turned(made, last, axis)
        factor = (1.0, count**-0.5, 1 / count)[norm]
        return made if norm == 0 else self._call(self._aten.mul.Tensor, made, factor)

    def _to_reals(self, node: Any) -> Any:
        z, _, norm, count = node.args
        axis, last = self._axis(), len(_shape(z)) - 1
        half = count // 2 + 1
        if _shape(z)[axis] < half:
            raise self._unsupported()
        pairs = self._turned(self._pairs[z], axis, last)
        if _shape(z)[axis] > half:
            pairs = self._call(self._aten.slice.Tensor, pairs, last, 0, half)
        flat = self._call(self._aten.view.default, pairs, [*_shape(pairs)[:-2], 2 * half])
        made = self._turned(self._times(flat, Transform(count, count, True)), last, axis)
        factor = (float(count), count**0.5, 1.0)[norm]
        return made if norm == 2 else self._call(self._aten.mul.Tensor, made, factor)

    def _amount(self, node: Any) -> Any:
        """The amounts; their squares if nothing else is read."""
        aten = self._aten
        power = self._power(node.args[0])
        squares = [one for one in node.users if _is_square(one, aten)]
        for one in squares:
            one.replace_all_uses_with(power)
        return self._call(aten.sqrt.default, power)

    def _power(self, z: Any) -> Any:
        """The squared amounts, before elements are moved: there the transform can make them."""
        if z.target in self._movers:
            return self._call(z.target, self._power(z.args[0]), *z.args[1:])
        pairs = self._pairs[z]
        squares = self._call(self._aten.mul.Tensor, pairs, pairs)
        return self._call(self._aten.sum.dim_IntList, squares, [-1])

    def _conjugate(self, node: Any) -> Any:
        pairs = self._pairs[node.args[0]]
        signs = self._constant(np.array([1, -1], np.float32), pairs)
        return self._call(self._aten.mul.Tensor, pairs, signs)

    def _wide(self, operand: Any) -> Any:
        """An operand for an operator on pairs: real tensors get an axis of one element."""
        if operand in self._pairs:
            return self._pairs[operand]
        if not hasattr(operand, "meta"):
            return operand
        return self._call(self._aten.unsqueeze.default, operand, -1)

    def _scaled(self, node: Any) -> Any:
        """Sums of complex numbers, or quotients by real ones."""
        is_sum = node.target is not self._aten.div.Tensor
        are_complex = [one in self._pairs for one in node.args[:2]]
        if node.kwargs or are_complex != [True, is_sum]:
            raise self._unsupported()
        return self._call(node.target, *map(self._wide, node.args))

    def _product(self, node: Any) -> Any:
        left, right = map(self._wide, node.args)
        aten = self._aten
        if not all(one in self._pairs for one in node.args):
            return self._call(aten.mul.Tensor, left, right)
        (a, b), (c, d) = (
            [self._call(aten.slice.Tensor, one, -1, k, k + 1) for k in (0, 1)]
            for one in (left, right)
        )

        def times(one: Any, other: Any) -> Any:
            return self._call(aten.mul.Tensor, one, other)

        real = self._call(aten.sub.Tensor, times(a, c), times(b, d))
        imaginary = self._call(aten.add.Tensor, times(a, d), times(b, c))
        return self._call(aten.cat.default, [real, imaginary], -1)


def _first_axis(rank: int, args: Any) -> tuple[Any, ...]:
    axis, *others = args or (0,)
    return (axis % rank, *others)


def _is_square(node: Any, aten: Any) -> bool:
    if node.target is aten.pow.Tensor_Scalar:
        return bool(node.args[1] == 2)
    return node.target is aten.mul.Tensor and node.args[0] is node.args[1]


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in node.meta["val"].shape)
