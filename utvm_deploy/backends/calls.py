"""Makes the call for a match: C statements, and what they work on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np

from utvm_deploy.backends.interface import MOST_BYTES, Match
from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.python_file import shown
from utvm_deploy.base.readable import is_c_text
from utvm_deploy.graph.element_type import ELEMENT_TYPES
from utvm_deploy.graph.macs import macs
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    ScalarArgument,
    TensorArgument,
)

_C_TYPES = {one.name: one.c_type for one in ELEMENT_TYPES.values() if one.c_type}
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}", re.ASCII)
# What the body knows besides its tables and numbers, and the keywords of C99.
_TAKEN = re.compile(
    "(?:input|output)_[0-9]+|scratch|state|auto|break|case|char|const|continue|default|do|double|"
    "else|enum|extern|float|for|goto|if|inline|int|long|register|restrict|return|short|signed|"
    "sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while"
)
_DIGITS = 8
_LEAST_INT32, _MOST_INT32 = -(2**31), 2**31 - 1


def call(
    match: Match,
    function: str,
    body: str,
    *,
    header: str = "",
    tables: Mapping[str, Array] | None = None,
    numbers: Mapping[str, int] | None = None,
    scratch_bytes: int = 0,
    in_place: bool = False,
) -> KernelCall:
    """The call of ``function`` for a match.

    ``body`` is C99: statements that end with the return of a status, an int32_t from -100 to 100. 0
    is success. The statements know these names:

    - input_0, input_1, ...: pointers to ``match.inputs``. What operators of a region make for each
      other is not among them.
    - the names of ``tables``: pointers to constants in flash, such as weights. The layout is the
      array's, in C order.
    - the names of ``numbers``: values of type int32_t.
    - output_0, ...: pointers to ``match.outputs``, in the layout of the file (NHWC).
    - scratch: int8_t *, aligned to 8 bytes, if ``scratch_bytes`` is not 0. A write beyond these
      bytes is found when the layer has run.

    - state: void *, the bytes that ``Backend.initialize`` prepared.

    ``header`` is the library's header that declares the function; C text needs none. Layers whose
    bodies and types are equal share a C function. ``in_place`` says that input_0 is read element by
    element, each before output_0 has its element written, so both may be at the same address.
    """
    given = {"function": function, "body": body, "header": header}
    for name, value in given.items():
        if not isinstance(value, str):
            raise PluginError(f"call(): {name} is not a text but of type {type(value).__name__}")
        if not is_c_text(value) or (name == "header" and not re.fullmatch(r'[^"\\\n]*', value)):
            raise PluginError(f"call(): {name} has a character that C cannot have there; remove it")
    tables, numbers = tables or {}, numbers or {}
    _check(function, tables, numbers, scratch_bytes)
    graph = match.graph
    inputs, outputs = match.inputs, match.outputs
    parameters = [
        f"const {_c_type(graph.tensors[number].dtype)} *input_{index}"
        for index, number in enumerate(inputs)
    ]
    parameters += [f"const {_c_type(data.dtype.name)} *{name}" for name, data in tables.items()]
    parameters += [f"int32_t {name}" for name in numbers]
    parameters += [
        f"{_c_type(graph.tensors[number].dtype)} *output_{index}"
        for index, number in enumerate(outputs)
    ]
    arguments: list[Argument] = [TensorArgument(number) for number in inputs]
    arguments += [ConstantArgument(name, _kept(data)) for name, data in tables.items()]
    arguments += [ScalarArgument(name, int(value)) for name, value in numbers.items()]
    arguments += [TensorArgument(number) for number in outputs]
    text = "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").splitlines())
    digest = hashlib.sha256("\0".join((text, header, *parameters)).encode()).hexdigest()
    first = next(iter(inputs), None)
    kernel = LibraryKernel(
        name=f"{function}_{digest[:_DIGITS]}",
        function=function,
        include=header,
        parameters=tuple(parameters),
        body=text,
        scratch_bytes=int(scratch_bytes),
        wanted="",
    )
    total = sum(macs(graph, operator) for operator in match.operators)
    may = tuple((left, found) for found, left in match.states)
    may += ((outputs[0], first),) if in_place and first is not None else ()
    return KernelCall(kernel, tuple(arguments), may, total)


def _kept(data: Array) -> Array:
    """A copy of what a plug-in may change afterwards."""
    return np.array(data) if data.flags.writeable else data


def _check(
    function: str, tables: Mapping[str, Array], numbers: Mapping[str, int], scratch_bytes: int
) -> None:
    for name in (function, *tables, *numbers):
        if not isinstance(name, str) or not _C_NAME.fullmatch(name):
            raise PluginError(f"call(): {name!r} is not a name in C; use letters, digits and _")
        if _TAKEN.fullmatch(name):
            raise PluginError(f"call(): the name {name!r} has a meaning already; choose another")
    if twice := sorted(tables.keys() & numbers.keys()):
        raise PluginError(f"call(): {twice[0]} is both a table and a number; rename one")
    for name, data in tables.items():
        if not isinstance(data, np.ndarray) or data.dtype.name not in _C_TYPES or not data.size:
            raise PluginError(
                f"call(): the table {name} is not an array of integers or float32 with elements"
            )
        if data.nbytes > MOST_BYTES:
            raise PluginError(f"call(): the table {name} has {data.nbytes:,} bytes; no board has")
    for name, value in numbers.items():
        is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_integer or not _LEAST_INT32 <= value <= _MOST_INT32:
            raise PluginError(
                f"call(): the number {name} is {shown(value)}, which is not an int32; fractions go "
                "into a table of float32"
            )
    is_size = isinstance(scratch_bytes, int | np.integer) and not isinstance(scratch_bytes, bool)
    if not is_size or not 0 <= scratch_bytes <= MOST_BYTES:
        raise PluginError(
            f"call(): scratch_bytes is {shown(scratch_bytes)}; give 0 to {MOST_BYTES:,} bytes"
        )


def _c_type(dtype: str) -> str:
    if dtype not in _C_TYPES:
        raise PluginError(f"call(): C has no type for elements of {dtype}")
    return _C_TYPES[dtype]
