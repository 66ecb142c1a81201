"""Tensor intrinsics on random tiles: what the description computes, and what the routine does.

A tile is a part of a larger buffer. What lies around it are guard bytes, which must not change. The
PrimFunc around the tile is written here once more, so a wrong description does not match it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from utvm_deploy.device import Device
from utvm_deploy.graph.model import Array
from utvm_deploy.intrinsics import Dot, Intrinsic, Taps

#: Elements before each axis of a tile, and behind it. So each buffer has another pitch.
BEFORE = 3
BEHIND = {"a": 5, "b": 7, "c": 5}


def dots(family: str) -> list[Intrinsic]:
    """Tiles of one row and of several, with depths that are and are not multiples of 4."""
    sizes = (1, 2, 16), (2, 4, 5), (3, 2, 67), (4, 2, 96)
    return [Dot(family, *size) for size in sizes]


def taps(family: str) -> list[Intrinsic]:
    """Windows of both axes and of one."""
    return [Taps(family, *size) for size in ((3, 3, 8), (1, 4, 4))]


def carrier_of(intrinsic: Intrinsic) -> Any:
    """A PrimFunc that computes the tile within larger buffers."""
    return _dot_carrier(intrinsic) if isinstance(intrinsic, Dot) else _taps_carrier(intrinsic)


def _dot_carrier(one: Dot) -> Any:
    rows, columns, depth = one.rows, one.columns, one.depth
    a_shape, b_shape = (rows + 8, depth + 8), (columns + 10, depth + 10)
    c_shape = (rows + 8, columns + 8)

    @T.prim_func(s_tir=True)
    def carrier(
        a: T.Buffer(a_shape, "int8"), b: T.Buffer(b_shape, "int8"), c: T.Buffer(c_shape, "int32")
    ) -> None:
        for m, n, k in T.grid(rows, columns, depth):
            with T.sblock("sum"):
                v_m, v_n, v_k = T.axis.remap("SSR", [m, n, k])
                c[v_m + 3, v_n + 3] = c[v_m + 3, v_n + 3] + T.cast(
                    a[v_m + 3, v_k + 3], "int32"
                ) * T.cast(b[v_n + 3, v_k + 3], "int32")

    return carrier


def _taps_carrier(one: Taps) -> Any:
    height, width, channels = one.height, one.width, one.channels
    a_shape, b_shape = (tuple(n + more for n in (height, width, channels)) for more in (8, 10))
    c_shape = (channels + 8,)

    @T.prim_func(s_tir=True)
    def carrier(
        a: T.Buffer(a_shape, "int8"), b: T.Buffer(b_shape, "int8"), c: T.Buffer(c_shape, "int32")
    ) -> None:
        for n, y, x in T.grid(channels, height, width):
            with T.sblock("sum"):
                v_n, v_y, v_x = T.axis.remap("SRR", [n, y, x])
                c[v_n + 3] = c[v_n + 3] + T.cast(a[v_y + 3, v_x + 3, v_n + 3], "int32") * T.cast(
                    b[v_y + 3, v_x + 3, v_n + 3], "int32"
                )

    return carrier


def random_buffers(intrinsic: Intrinsic, seed: int) -> list[Array]:
    """a, b and c with guard bytes; every second tile has the extremes of int8."""
    rng = np.random.default_rng(seed)
    found = []
    for tile in intrinsic.tiles:
        shape = [extent + BEFORE + BEHIND[tile.name] for extent in tile.shape]
        shape = shape[-1:] if tile.name == "c" and isinstance(intrinsic, Taps) else shape
        if tile.dtype == "int32":
            found.append(rng.integers(-(2**20), 2**20, shape, dtype=np.int32))
        elif seed % 2:
            found.append(rng.choice(np.array([-128, 127], dtype=np.int8), shape))
        else:
            found.append(rng.integers(-128, 128, shape, dtype=np.int8))
    return found


def run_described(intrinsic: Intrinsic, description: Any) -> Callable[[list[Array]], Array]:
    """A function that gives c after what the description says; TVM's LLVM runs it on the tiles."""
    run = _llvm(tvm.ir.save_json(description))

    def described(buffers: list[Array]) -> Array:
        c = buffers[2].copy()
        regions = [
            tuple(slice(BEFORE, size - BEHIND[tile.name]) for size in buffer.shape)
            for buffer, tile in zip(buffers, intrinsic.tiles, strict=True)
        ]
        passed = [
            tvm.runtime.tensor(np.ascontiguousarray(buffer[region]).reshape(tile.kept))
            for buffer, region, tile in zip(buffers, regions, intrinsic.tiles, strict=True)
        ]
        run(*passed)
        c[regions[2]] = passed[2].numpy().reshape(c[regions[2]].shape)
        return c

    return described


@cache
def _llvm(description: str) -> Any:
    named = tvm.ir.load_json(description).with_attr("global_symbol", "described")
    return tvm.compile(tvm.IRModule({"described": named}), target="llvm")["described"]


def tensorized(intrinsic: Intrinsic, description: Any, implementation: Any, name: str) -> Any:
    """The carrier, computed by an implementation; TVM refuses it if the description differs."""
    TensorIntrin.register(name, description, implementation, override=True)
    sch = s_tir.Schedule(carrier_of(intrinsic))
    block = sch.get_sblock("sum")
    loops = sch.get_loops(block)
    units = [loop for loop in loops if int(sch.get(loop).extent) == 1]
    others = [loop for loop in loops if int(sch.get(loop).extent) > 1]
    sch.reorder(*units, *others)
    sch.tensorize(others[0], name)
    return sch.mod["main"]


def computed(
    device: Device, functions: dict[str, Any], inputs: dict[str, list[Array]]
) -> dict[str, Array]:
    """c after each function."""
    found = {}
    with device.load_kernels(functions) as module:
        for name, buffers in inputs.items():
            passed = [device.tensor(buffer) for buffer in buffers]
            module[name](*passed)
            found[name] = passed[2].numpy()
            for one in passed:
                one.free()
    return found
