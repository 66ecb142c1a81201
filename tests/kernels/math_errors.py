"""Measures the errors of the mathematical functions of kernels/c/math against float64."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from utvm_deploy.kernels.contract.math_functions import MATH_FUNCTIONS, math_texts

FLAGS = ["-std=gnu99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", "-ffp-contract=off"]
_TIMEOUT_S = 300
#: Functions of two arguments.
BINARY = frozenset({"atan2f", "copysignf", "fmodf", "hypotf", "ldexpf", "nextafterf", "powf"})
#: The float64 form, if it is not C's function without the last letter.
_REFERENCES = {
    "rsqrtf": "1 / sqrt(x)",
    "sigmoidf": "1 / (1 + exp(-x))",
}

_HEAD = """
#include <math.h>

// |got - want| in units in the last place of want as a float32.
static double error_of(float got, double want) {
    const double largest = 0x1p128;
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    }
    if (isinf((float)want) && isinf(got)) {
        return (want > 0) == (got > 0) ? 0 : HUGE_VAL;
    }
    double near = got;
    if (isinf(got)) {
        near = copysign(largest, got);
    }
    if (fabs(want) > largest) {
        want = copysign(largest, want);
    }
    if (got == 0 && want == 0) {
        return !signbit(got) == !signbit(want) ? 0 : HUGE_VAL;
    }
    int exponent;
    frexp(want, &exponent);
    return fabs(near - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}
"""

_UNARY = """
double worst_{name}(uint64_t bits, uint64_t end, uint64_t step, uint32_t *where) {{
    double worst = -1;
    for (; bits < end; bits += step) {{
        const double x = utvm_float_of((uint32_t)bits);
        const double error = error_of(utvm_{name}((float)x), {reference});
        if (error > worst) {{
            worst = error;
            *where = (uint32_t)bits;
        }}
    }}
    return worst;
}}

void checksum_{name}(uint32_t seed, uint32_t count, uint32_t *out) {{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {{
        seed = seed * 1664525u + 1013904223u;
        // Any bits, and sizes between 1/8 and 32.
        const uint32_t common = (seed & 0x83ffffffu) | 0x3e000000u;
        sum = sum * 31u + utvm_bits_of(utvm_{name}(utvm_float_of(seed)));
        sum = sum * 31u + utvm_bits_of(utvm_{name}(utvm_float_of(common)));
    }}
    *out = sum;
}}
"""

_PAIRS = """
double worst_{name}(const float *x, const float *y, int count, int *where) {{
    double worst = -1;
    for (int i = 0; i < count; i++) {{
        const double error = error_of(utvm_{name}(x[i], y[i]), {reference}(x[i], y[i]));
        if (error > worst) {{
            worst = error;
            *where = i;
        }}
    }}
    return worst;
}}

void checksum_{name}(uint32_t seed, uint32_t count, uint32_t *out) {{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {{
        const uint32_t x = seed = seed * 1664525u + 1013904223u;
        const uint32_t y = seed = seed * 1664525u + 1013904223u;
        const uint32_t common = (x & 0x83ffffffu) | 0x3e000000u;
        const uint32_t power = (y & 0x83ffffffu) | 0x3e000000u;
        sum = sum * 31u + utvm_bits_of(utvm_{name}(utvm_float_of(x), utvm_float_of(y)));
        sum = sum * 31u + utvm_bits_of(utvm_{name}(utvm_float_of(common), utvm_float_of(power)));
    }}
    *out = sum;
}}
"""


def all_texts() -> str:
    """The C of all functions."""
    return "\n".join(
        ["#include <stdint.h>", *math_texts("".join(f"utvm_{n}(" for n in MATH_FUNCTIONS))]
    )


def checksum_functions(*names: str) -> str:
    """C functions ``checksum_NAME``, without what a C library is needed for."""
    parts = ["#include <stdint.h>", *math_texts("".join(f"utvm_{name}(" for name in names))]
    for name in names:
        template = _PAIRS if name in BINARY else _UNARY
        whole = template.format(name=name, reference="")
        parts.append("void checksum" + whole.split("void checksum", 1)[1])
    return "\n".join(parts)


def measuring_library(folder: Path, *flags: str) -> ctypes.CDLL:
    """A library with ``worst_NAME`` and ``checksum_NAME`` for each function."""
    parts = ["#define _GNU_SOURCE", all_texts(), _HEAD]
    for name in MATH_FUNCTIONS:
        if name in BINARY:
            parts.append(_PAIRS.format(name=name, reference=name[:-1]))
        else:
            reference = _REFERENCES.get(name, f"{name[:-1]}(x)")
            parts.append(_UNARY.format(name=name, reference=reference))
    source, library = folder / "errors.c", folder / "errors.so"
    source.write_text("\n".join(parts))
    command = ["gcc", *FLAGS, *flags, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    loaded = ctypes.CDLL(str(library))
    for name in MATH_FUNCTIONS:
        function = getattr(loaded, f"worst_{name}")
        function.restype = ctypes.c_double
        if name in BINARY:
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        else:
            function.argtypes = [*[ctypes.c_uint64] * 3, ctypes.c_void_p]
    return loaded
