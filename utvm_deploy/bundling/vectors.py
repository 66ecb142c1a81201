"""Golden vectors as a C header for the self-test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from utvm_deploy.base.errors import BundleError
from utvm_deploy.compiler.c_text import float_literal
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array

_BYTES_PER_LINE = 24


def vectors_header(
    compiled: CompiledModel,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    tolerance: float = 0.0,
) -> str:
    """``inputs[sample][i]`` and ``expected[sample][i]`` as the bytes that belong into the arena.

    With a ``tolerance`` also how far each output may be from what is expected: that part of its
    largest magnitude.
    """
    if not inputs or len(inputs) != len(expected):
        raise BundleError(
            f"a bundle needs golden vectors, but there are {len(inputs)} inputs and "
            f"{len(expected)} expected outputs; give at least one sample"
        )
    return "".join(_parts(compiled, inputs, expected, tolerance))


def _parts(
    compiled: CompiledModel,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    tolerance: float,
) -> Iterator[str]:
    upper = compiled.name.upper()
    yield f"// Golden vectors of {compiled.name}, as little-endian bytes, for its self-test.\n\n"
    yield f"#ifndef {upper}_VECTORS_H\n#define {upper}_VECTORS_H\n\n#include <stdint.h>\n\n"
    yield f"#define SAMPLE_COUNT {len(inputs)}u\n\n"
    yield "struct tensor {\n    uint32_t offset;\n    uint32_t bytes;\n"
    yield "    uint32_t element_bytes;\n};\n"
    for direction, buffers, samples in (
        ("input", compiled.taken, inputs),
        ("output", compiled.outputs, expected),
    ):
        count = f"{upper}_{direction.upper()}_COUNT"
        if direction == "output" or compiled.input_rows is None:  # else it has no place
            yield f"\nstatic const struct tensor {direction}_tensors[{count}] = {{\n"
            for buffer in buffers:
                item = element_type(buffer.dtype).unit_bytes
                yield f"    {{{buffer.offset}u, {buffer.size_bytes}u, {item}u}},\n"
            yield "};\n"
        rows = []
        for number, sample in enumerate(samples):
            if len(sample) != len(buffers):
                raise BundleError(
                    f"sample {number} has {len(sample)} {direction}(s), the model {len(buffers)}"
                )
            names = []
            for index, (buffer, array) in enumerate(zip(buffers, sample, strict=True)):
                name = f"sample_{number}_{direction}_{index}"
                yield f"\nstatic const uint8_t {name}[{buffer.size_bytes}] = {{\n"
                yield golden_bytes(buffer, array, f"{direction} {index} of sample {number}")
                yield "};\n"
                names.append(name)
            rows.append(f"    {{{', '.join(names)}}},\n")
        yield f"\nstatic const uint8_t *const sample_{direction}s[SAMPLE_COUNT][{count}] = {{\n"
        yield f"{''.join(rows)}}};\n"
    if tolerance:
        count = f"{upper}_OUTPUT_COUNT"
        yield f"\nstatic const float sample_tolerances[SAMPLE_COUNT][{count}] = {{\n"
        for sample in expected:
            values = ", ".join(
                float_literal(allowed_difference(array, tolerance)) for array in sample
            )
            yield f"    {{{values}}},\n"
        yield "};\n"
    yield "\n#endif\n"


def allowed_difference(array: Array, tolerance: float) -> float:
    """How far an output may be from what is expected; -1 asks for equal bytes."""
    if array.dtype != np.float32:
        return -1.0
    finite = np.abs(array[np.isfinite(array)])
    return tolerance * float(finite.max(initial=0.0))


def golden_bytes(buffer: Buffer, array: Array, what: str) -> str:
    dtype = np.dtype(buffer.dtype)
    if array.dtype != dtype or array.size * dtype.itemsize != buffer.size_bytes:
        raise BundleError(
            f"{what} is {array.dtype} {list(array.shape)}, but the model's {buffer.name} is "
            f"{buffer.dtype} {list(buffer.shape)}"
        )
    data = np.ascontiguousarray(array).astype(dtype.newbyteorder("<")).tobytes()
    values = [str(value) for value in data]
    return "".join(
        f"    {','.join(values[start : start + _BYTES_PER_LINE])},\n"
        for start in range(0, len(values), _BYTES_PER_LINE)
    )
