"""TensorIR of intrinsics, written with TVM's IRBuilder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from utvm_deploy.kernels.contract.lazy_tvm import ir_builder, script, tirx

#: Buffers by their names.
Buffers = Mapping[str, Any]


@dataclass(frozen=True)
class Tile:
    """A buffer of an intrinsic. Axes of extent 1 are left out: TVM would not match them."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def kept(self) -> tuple[int, ...]:
        """The extents that are more than 1."""
        return tuple(extent for extent in self.shape if extent > 1)

    def at(self, buffers: Buffers, *index: Any) -> Any:
        """The element at an index, which has all axes."""
        return buffers[self.name][self.index(*index)]

    def index(self, *index: Any) -> tuple[Any, ...]:
        """The index without axes of extent 1."""
        return tuple(one for one, extent in zip(index, self.shape, strict=True) if extent > 1)

    def start(self, buffers: Buffers) -> Any:
        """The address of its first element."""
        return script.address_of(buffers[self.name][(0,) * len(self.kept)])

    def pitch(self, buffers: Buffers, axis: int) -> Any:
        """Elements from one index of an axis to the next; 0 if the axis has one index."""
        if self.shape[axis] == 1:
            return tirx.const(0, "int32")
        kept = sum(extent > 1 for extent in self.shape[:axis])
        return buffers[self.name].strides[kept]


def description_of(
    reads: Sequence[Tile],
    output: Tile,
    axes: Sequence[tuple[str, int, str]],
    term: Callable[..., Any],
    target: Callable[..., tuple[Any, ...]],
) -> Any:
    """The PrimFunc ``output[target(axes)] += term(buffers, axes)``.

    Of each axis the name, the extent, and S (spatial) or R (reduced).
    """
    kept = [axis for axis in axes if axis[1] > 1]

    def body(buffers: Buffers) -> None:
        with script.grid(*(extent for _, extent, _ in kept)) as loops:
            loops = [loops] if len(kept) == 1 else list(loops)
            for (name, _, _), loop in zip(kept, loops, strict=True):
                ir_builder.IRBuilder.name(name, loop)
            with script.sblock("sum"):
                made = script.axis.remap("".join(kind for _, _, kind in kept), loops)
                made = iter([made] if len(kept) == 1 else list(made))
                zero = tirx.const(0, "int32")
                values = [next(made) if extent > 1 else zero for _, extent, _ in axes]
                place = output.index(*target(*values))
                buffer = buffers[output.name]
                script.buffer_store(buffer, buffer[place] + term(buffers, *values), list(place))

    return _function(reads, output, body, is_strided=False)


def implementation_of(
    reads: Sequence[Tile], output: Tile, call: Callable[[Buffers], Any], text: str
) -> Any:
    """The PrimFunc that makes a call; ``text`` is the C that it needs."""

    def body(buffers: Buffers) -> None:
        with script.attr(tirx.const(0, "int32"), "pragma_import_c", text):
            script.evaluate(call(buffers))

    return _function(reads, output, body, is_strided=True)


def _function(
    reads: Sequence[Tile], output: Tile, body: Callable[[Buffers], None], *, is_strided: bool
) -> Any:
    tiles = [*reads, output]
    with ir_builder.IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("intrinsic")
        handles = [script.arg(f"p_{one.name}", script.handle()) for one in tiles]
        buffers: dict[str, Any] = {}
        for one, handle in zip(tiles, handles, strict=True):
            outer = len(one.kept) - 1
            strides = [tirx.Var(f"{one.name}_s{n}", "int32") for n in range(outer)]
            buffer = script.match_buffer(
                handle,
                one.kept,
                one.dtype,
                offset_factor=1,
                strides=[*strides, 1] if is_strided and outer else None,
            )
            ir_builder.IRBuilder.name(one.name, buffer)
            buffers[one.name] = buffer

        def region(one: Tile) -> Any:
            return buffers[one.name][tuple(slice(0, extent) for extent in one.kept)]

        with script.sblock("root"):
            script.reads(region(output), *(region(one) for one in reads))
            script.writes(region(output))
            body(buffers)
    return builder.get()
