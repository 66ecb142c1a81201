"""Lowered loops over float32 that read numbers of a format instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import stmt as tir

from utvm_deploy.graph.number_formats import NumberFormat


def buffer_of_numbers(buffer: Any, own: NumberFormat) -> Any:
    """The buffer of numbers in the place of a buffer of float32."""
    return tirx.decl_buffer(buffer.shape, own.dtype, buffer.name)


def with_decoded(body: Any, parameters: Mapping[Any, Any], own: NumberFormat) -> Any:
    """The statement that decodes each number where it read a float.

    ``parameters`` are pairs of a parameter of float32 and the one of numbers that replaces it. Flat
    buffers of the statement stand for them.
    """
    flat: dict[Any, Any] = {}

    def redeclared(declared: Any) -> Any:
        of = getattr(declared.data, "args", (None,))[0]
        if of not in parameters:
            return declared
        flat[declared.buffer] = buffer_of_numbers(declared.buffer, own)
        return tir.DeclBuffer(flat[declared.buffer], data=tirx.buffer_data(parameters[of]))

    def decoded(load: Any) -> Any:
        if load.source not in flat:
            return load
        number = tirx.BufferLoad(flat[load.source], load.indices)
        return tirx.call_pure_extern("float32", own.symbol("decode"), number)

    # Declarations come before the loops that use them.
    declared = tvm_ffi.structural_map(body, (tir.DeclBuffer, redeclared))
    return tvm_ffi.structural_map(declared, (TensorLoad, decoded))
