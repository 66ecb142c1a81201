"""The multiply-accumulate operations of a PrimFunc, for reports."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

_REDUCED = 2  # TVM's number for a block's dimension that is summed up


def macs_of(function: Any) -> int:
    """Products that are summed up: each step of a reduction that adds a product."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, blocks.append))
    return sum(map(_macs, blocks))


def _macs(block: Any) -> int:
    if not any(int(one.iter_type) == _REDUCED for one in block.iter_vars):
        return 0
    stores: list[Any] = []
    tvm_ffi.structural_walk(block.body, (tirx.stmt.BufferStore, stores.append))
    sums = (store.value for store in stores if isinstance(store.value, tirx.Add))
    if not any(isinstance(side, tirx.Mul) for value in sums for side in (value.a, value.b)):
        return 0
    return math.prod(int(one.dom.extent) for one in block.iter_vars)
