"""Runs kernels on this computer and compares them with the reference, many at a time.

A test describes any number of operators as one model with parallel branches. All of its distinct
kernels are compiled by one call of the C compiler, and one child process asks the reference.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.compiler.lowering.lower_c import lower_to_c
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.check import works_in_float
from utvm_deploy.graph.float_bounds import EXACT, FLOAT_BOUNDS, outside
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    Kernel,
    KernelCall,
    ScalarArgument,
    TensorArgument,
    is_native,
    with_one_rounding,
)
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records.candidate import GENERIC, Candidate

# The sanitizer stops at the first undefined operation, such as an overflow; a trap, because pytest
# then still says in which test.
# Each library runs once, on few elements: to optimize it took five times as long as to compile it.
_COMPILER = [
    *("gcc", "-std=c99", "-O0", "-shared", "-fPIC"),
    *("-Wall", "-Wextra", "-pedantic", "-Werror"),
    *("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"),
]
_COMPILE_TIMEOUT_S = 120
_GUARD_BYTES = 64
_GUARD = 0xA5


PREAMBLE = "#include <stdbool.h>\n#include <stdint.h>\n" + header()


def compile_library(source: Path) -> ctypes.CDLL:
    """A C file as functions that can be called from here."""
    library = source.with_suffix(".so")
    subprocess.run(
        [*_COMPILER, str(source), "-o", str(library)], check=True, timeout=_COMPILE_TIMEOUT_S
    )
    return ctypes.CDLL(str(library))


@dataclass
class Compiled:
    """Kernels as functions of a shared object."""

    functions: dict[Kernel, CFunction] = field(default_factory=dict)
    library: ctypes.CDLL | None = None

    def build(
        self,
        kernels: Sequence[Kernel],
        directory: Path,
        core: str,
        *,
        scheduled: bool = True,
        outputs: Mapping[Kernel, int] | None = None,
    ) -> None:
        """Compile every distinct kernel, with its default schedule or as it was written.

        ``outputs``: how many a kernel has that has several.
        """
        for kernel in kernels:
            if kernel not in self.functions:
                if scheduled or is_native(kernel):
                    count = (outputs or {}).get(kernel, 1)
                    made = lower_kernel(kernel, kernel.name, core, outputs=count, may_alias=True)
                    assert made.why
                    self.functions[kernel] = made.function
                else:
                    func = kernel.prim_func()
                    self.functions[kernel] = lower_to_c(func, kernel.name, core, may_alias=True)
        names = [kernel.name for kernel in self.functions]
        assert len(set(names)) == len(names), "two kernels share a name"
        source = directory / "kernels.c"
        imports = dict.fromkeys(text for f in self.functions.values() for text in f.imports)
        texts = [f.prototype + "\n" + f.text for f in self.functions.values()]
        source.write_text("\n".join([PREAMBLE, *imports, *texts]))
        self.library = compile_library(source)

    def run(
        self,
        graph: Graph,
        operator: Operator,
        values: dict[int, Array],
        in_place: int | None = None,
        core: str = GENERIC,
        family: str = "",
    ) -> Array:
        """One operator's output, computed from the values of its inputs.

        ``in_place``: the input that lies where the output will be.
        """
        call = call_of(graph, operator, core, family)
        (position,) = operator.outputs
        result = graph.tensors[position]
        count = int(np.prod(result.shape, dtype=np.int64)) * np.dtype(result.dtype).itemsize
        output = _Guarded(count)
        if in_place is not None:
            output.array()[:] = np.ascontiguousarray(values[in_place]).view(np.uint8).reshape(-1)
        arguments: list[object] = []
        keep: list[object] = [output]
        for argument in call.arguments:
            if isinstance(argument, ScalarArgument):
                assert -(2**31) <= argument.value < 2**31, argument
                arguments.append(ctypes.c_int32(argument.value))
            elif isinstance(argument, TensorArgument) and argument.tensor in (position, in_place):
                arguments.append(output.pointer)
            else:
                data = (
                    argument.data
                    if isinstance(argument, ConstantArgument)
                    else values[argument.tensor]
                )
                assert isinstance(argument, TensorArgument | ConstantArgument)
                array = np.ascontiguousarray(data)
                keep.append(array)
                arguments.append(ctypes.c_void_p(array.ctypes.data))
        function = self.functions[call.kernel]
        scratch = [_Guarded(s.size_bytes) for s in function.scratch]
        assert self.library is not None
        self.library[function.name](*arguments, *(s.pointer for s in scratch))
        for guarded in [output, *scratch]:
            guarded.check()
        return output.array().view(result.dtype).reshape(result.shape)


class _Guarded:
    """A buffer in the middle of bytes that must not change."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = np.full(size + 2 * _GUARD_BYTES, _GUARD, dtype=np.uint8)
        self.pointer = ctypes.c_void_p(self._bytes.ctypes.data + _GUARD_BYTES)

    def array(self) -> Array:
        return self._bytes[_GUARD_BYTES : _GUARD_BYTES + self._size]

    def check(self) -> None:
        outside = np.concatenate(
            [self._bytes[:_GUARD_BYTES], self._bytes[_GUARD_BYTES + self._size :]]
        )
        assert (outside == _GUARD).all(), "a kernel wrote outside its buffer"


def call_of(graph: Graph, operator: Operator, core: str, family: str = "") -> KernelCall:
    """The call of a core's default kernel, or of that of a family which has one for the case.

    The family may have choices behind it, as a candidate's label, and a wish for few bytes or for
    one rounding: ``dsp compact=2``, ``dsp once=1``.
    """
    name, *choices = family.split() or [""]
    pairs = (choice.partition("=")[::2] for choice in choices)
    numbers = {name: int(value) if value.isdigit() else value for name, value in pairs}
    compact, once = numbers.pop("compact", 0), numbers.pop("once", 0)
    candidate = Candidate.of(name, **numbers) if family else None
    try:
        call = lower(graph, operator, core, candidate, compact=compact)
        return with_one_rounding(call) if once else call
    except UnsupportedOperator:
        return lower(graph, operator, core)


def comparable(array: Array) -> Array:
    """The bytes of an array; what is not a number has one form, as cores differ in its sign."""
    if array.dtype == np.float32:
        array = np.where(np.isnan(array), np.float32(np.nan), array)
    return array.reshape(-1).view(np.uint8)


def check_model(
    path: Path,
    inputs: Sequence[Sequence[Array]],
    directory: Path,
    core: str = GENERIC,
    *,
    family: str = "",
    scheduled: bool = True,
    simplified: bool = False,
) -> int:
    """Compare every operator of a model with the reference, byte for byte; returns how many.

    Each operator gets the reference's own input values, so that a difference is found where it
    arises.
    """
    graph = load_model(path)
    if simplified:
        graph = simplify(graph)
    compiled = Compiled()
    kernels = [call_of(graph, op, core, family).kernel for op in graph.operators]
    compiled.build(kernels, directory, core, scheduled=scheduled)
    reference = run_reference(path, inputs)
    failures = []
    ours_only: list[dict[int, Array]] = [{} for _ in reference.tensors]
    for index, operator in enumerate(graph.operators):
        for sample, own in zip(reference.tensors, ours_only, strict=True):
            values = own | {
                i: sample[t.source]
                for i, t in enumerate(graph.tensors)
                if t.data is None and t.source in sample
            }
            (position,) = operator.outputs
            source = graph.tensors[position].source
            actual = compiled.run(graph, operator, values, core=core, family=family)
            if source is None:  # inside of an operator of the file: what comes of it is compared
                own[position] = actual
                continue
            expected = sample[source]
            assert actual.dtype == expected.dtype
            bound = (
                FLOAT_BOUNDS.get(operator.kind, EXACT) if works_in_float(graph, operator) else EXACT
            )
            differs = outside(bound, actual, expected.reshape(actual.shape))
            wrong = int(differs.sum())
            if wrong:
                name = call_of(graph, operator, core, family).kernel.name
                pairs = list(
                    zip(
                        actual[differs][:4],
                        expected.reshape(actual.shape)[differs][:4],
                        strict=True,
                    )
                )
                failures.append(f"{index} {name}: {wrong} of {expected.size} elements, {pairs}")
                break
    assert not failures, "\n".join(failures)
    return len(graph.operators)


def check(
    model: ModelWriter,
    directory: Path,
    *,
    samples: int = 3,
    seed: int = 1,
    core: str = GENERIC,
    family: str = "",
    scheduled: bool = True,
    simplified: bool = False,
) -> int:
    """``check_model`` on random inputs, the first sample at both ends of the range."""
    path = model.save(directory / "model.tflite")
    rng = np.random.default_rng(seed)
    inputs = []
    for sample in range(samples):
        arrays = []
        for number in model.inputs:
            tensor = model.tensors[number]
            if tensor.dtype == "float32":
                arrays.append((rng.normal(size=tensor.shape) * 8).astype(np.float32))
            elif sample == 0:
                ends = [np.iinfo(tensor.dtype).min, np.iinfo(tensor.dtype).max]
                arrays.append(rng.choice(np.array(ends, tensor.dtype), tensor.shape))
            else:
                limits = np.iinfo(tensor.dtype)
                drawn = rng.integers(limits.min, limits.max, tensor.shape, endpoint=True)
                arrays.append(drawn.astype(tensor.dtype))
        inputs.append(arrays)
    return check_model(
        path, inputs, directory, core, family=family, scheduled=scheduled, simplified=simplified
    )
