"""Bases of portable kernels: elementwise ones, with one or more inputs, and reductions.

A subclass gives a kernel's name and the formula of one element. For kernels that te cannot express,
``prim_func`` and ``block`` write a PrimFunc block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import around_axis, merge
from utvm_deploy.kernels.contract.lazy_tvm import ir_builder, s_tir, script, te, tvm

Flags: TypeAlias = tuple[bool, ...]
Buffers: TypeAlias = Mapping[str, Any]


class DefaultLoops:
    """A kernel whose loops stay as its PrimFunc has them."""

    why: ClassVar[str] = "generic C, one element at a time"

    def schedule(self, sch: Any, core: str) -> str:
        return self.why


@dataclass(frozen=True)
class Unary(DefaultLoops):
    """``output[i]`` is a function of ``input[i]``, of tables and of int32 parameters."""

    count: int
    source: str = "int16"
    result: str = "int16"

    #: Name -> extent and type of each table, which come before the parameters.
    tables: ClassVar[Mapping[str, tuple[int, str]]] = {}
    parameters: ClassVar[tuple[str, ...]] = ()

    @property
    def what(self) -> str:
        """The name of the loops in TensorIR."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return f"{self.what}_{self.count}_{self.source}"

    def element(self, value: Any, given: Mapping[str, Any]) -> Any:
        """TIR: an element of type ``result``; ``given`` has the tables and the parameters."""
        raise NotImplementedError

    def prim_func(self) -> Any:
        source = te.placeholder((self.count,), self.source, "input")
        tables = {name: te.placeholder((n,), t, name) for name, (n, t) in self.tables.items()}
        given = tables | int32s(self.parameters)
        output = te.compute((self.count,), lambda i: self.element(source[i], given), name=self.what)
        return te.create_prim_func([source, *given.values(), output])


@dataclass(frozen=True)
class BroadcastLoops(DefaultLoops):
    """Inputs that broadcast, in merged dimensions.

    An input follows some of the dimensions. Along the others it has extent 1 and is repeated.
    """

    extents: tuple[int, ...]

    @property
    def what(self) -> str:
        """The name of the loops in TensorIR."""
        raise NotImplementedError

    @property
    def inputs(self) -> Sequence[tuple[str, str, Flags]]:
        """Of each input the name, the type, and which dimensions it follows."""
        raise NotImplementedError

    @property
    def scalars(self) -> tuple[str, ...]:
        """The names of the int32 parameters."""
        return ()

    def element_of(self, values: Sequence[Any], scalars: Mapping[str, Any]) -> Any:
        """TIR: an element of the output from one of each input."""
        raise NotImplementedError

    def prim_func(self) -> Any:
        inputs = [
            te.placeholder(followed_extents(self.extents, follows), dtype, name)
            for name, dtype, follows in self.inputs
        ]
        scalars = int32s(self.scalars)

        def element(*index: Any) -> Any:
            values = [
                one[followed_index(index, follows)]
                for one, (_, _, follows) in zip(inputs, self.inputs, strict=True)
            ]
            return self.element_of(values, scalars)

        output = te.compute(self.extents, element, name=self.what)
        return te.create_prim_func([*inputs, *scalars.values(), output])


@dataclass(frozen=True)
class Reduction:
    """Merged dimensions that are alternately kept and reduced."""

    extents: tuple[int, ...]
    is_reduced: Flags

    @property
    def kept(self) -> tuple[int, ...]:
        """The shape of the output: the extents that are not reduced, at least one."""
        pairs = zip(self.extents, self.is_reduced, strict=True)
        return tuple(extent for extent, reduced in pairs if not reduced) or (1,)

    @property
    def around(self) -> tuple[int, int, int] | None:
        """``around_axis`` of the only reduced dimension; None if several are reduced."""
        if sum(self.is_reduced) != 1:
            return None
        return around_axis(self.extents, self.is_reduced.index(True))

    def reduced(self, name: str, reduce: Any, element: Callable[[tuple[Any, ...]], Any]) -> Any:
        """The stage that applies ``reduce``, such as te.sum, to ``element`` of each index."""
        axes = [
            te.reduce_axis((0, extent), f"k{i}")
            for i, extent in enumerate(self.extents)
            if self.is_reduced[i]
        ]

        def total(*kept: Any) -> Any:
            outer, inner = iter(kept), iter(axes)
            index = tuple(next(inner if reduced else outer) for reduced in self.is_reduced)
            return reduce(element(index), axis=axes)

        return te.compute(self.kept, total, name=name)


def prim_func(parameters: Sequence[Operand], body: Callable[[Buffers], None]) -> Any:
    """The PrimFunc with these parameters; ``body`` writes its blocks, given the buffers by name."""
    with ir_builder.IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("main")
        buffers = {
            one.name: script.arg(one.name, script.Buffer(one.shape, one.dtype))
            for one in parameters
        }
        script.func_attr({"tirx.noalias": True})
        with script.sblock("root"):
            body(buffers)
    made = tvm.IRModule({"main": builder.get()})
    return s_tir.transform.StmtSimplify()(made)["main"]


def block(name: str, axes: Sequence[tuple[str, int, str]], body: Callable[..., None]) -> None:
    """Loops around one block: of each axis the name, the extent, and S(patial) or R(educed).

    There are at least two axes. ``body`` gets the value of each axis.
    """
    names, extents, kinds = zip(*axes, strict=True)
    with script.grid(*extents) as loops:
        for axis, loop in zip(names, loops, strict=True):
            ir_builder.IRBuilder.name(axis, loop)
        with script.sblock(name):
            values = script.axis.remap("".join(kinds), list(loops))
            for axis, value in zip(names, values, strict=True):
                ir_builder.IRBuilder.name(f"v{axis}", value)
            body(*values)


def int32s(names: Iterable[str]) -> dict[str, Any]:
    """TIR variables of int32 by their names."""
    return {name: te.var(name, "int32") for name in names}


def tables_of(extent: int, *names: str, dtype: str = "int32") -> list[Any]:
    """Inputs of one dimension, such as multipliers and shifts by output channel."""
    return [te.placeholder((extent,), dtype, name) for name in names]


def followed_extents(extents: Sequence[int], follows: Flags) -> tuple[int, ...]:
    """The shape of an input that follows some dimensions."""
    return tuple(e if f else 1 for e, f in zip(extents, follows, strict=True))


def followed_index(index: Sequence[Any], follows: Flags) -> tuple[Any, ...]:
    """The index at which such an input is read for an element of the output."""
    return tuple(i if f else 0 for i, f in zip(index, follows, strict=True))


def merged_shapes(
    shapes: Iterable[Sequence[int]], result: Sequence[int]
) -> tuple[tuple[int, ...], tuple[Flags, ...]]:
    """The merged extents of a broadcast result, and the dimensions that each input follows."""
    whole = tuple(result) or (1,)
    aligned = [(1,) * (len(whole) - len(shape)) + tuple(shape) for shape in shapes]
    roles = [tuple(one[axis] == extent for one in aligned) for axis, extent in enumerate(whole)]
    extents, merged = merge(whole, roles)
    return tuple(extents), tuple(zip(*merged, strict=True))


def compute_per_output(sch: Any, loop: Any, *blocks: str) -> None:
    """Compute the stages ``blocks``, the last one first, inside of ``loop``, which uses them."""
    for name in blocks:
        sch.compute_at(sch.get_sblock(name), loop)


def initialize_apart(sch: Any, *blocks: str, loops: int = 1) -> None:
    """Initialize the results of the stages ``blocks`` before their ``loops`` innermost loops."""
    for name in blocks:
        block = sch.get_sblock(name)
        sch.decompose_reduction(block, sch.get_loops(block)[-loops])
