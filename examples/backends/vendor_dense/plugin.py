"""A vendor's dense layer as a backend: a static library, packed weights, device initialization.

    arm-none-eabi-gcc -O2 -mcpu=cortex-m7 -mthumb -mfpu=fpv5-sp-d16 -mfloat-abi=hard \
        -c vendor_dense.c
    arm-none-eabi-ar rcs libvendor_dense.a vendor_dense.o
    utvm verify digits.tflite --board mps2_an500 --plugin plugin.py

docs/guides/backends.md explains it.
"""

import math
from pathlib import Path

import numpy as np

from utvm_deploy.backends import Array, Backend, KernelCall, Match, Pattern, StaticLibrary, call

FOLDER = Path(__file__).resolve().parent
ROWS = 4  # VENDOR_ROWS of the header
SUM_BYTES = 4
STATE_BYTES = 8  # VENDOR_STATE_BYTES


def dense(match: Match) -> KernelCall | str:
    """FULLY_CONNECTED of int8."""
    op = match.first
    if (op.source.dtype, op.result.dtype) != ("int8", "int8"):
        return f"the accelerator does not compute {op.source.dtype}"
    weights = op.constant(1)
    outputs, inputs = weights.shape
    batch = math.prod(op.result.shape) // outputs
    # Our own kernel's arguments: the bias with the input's zero point in it, and the multipliers of
    # the reference kernel. Where all outputs have one multiplier, it is a number.
    tables, numbers = match.our_tables, match.our_numbers
    multiplier = {
        name: tables[f"multiplier_{name}"]
        if f"multiplier_{name}" in tables
        else np.full(outputs, numbers[f"multiplier_{name}"], np.int32)
        for name in ("high", "low", "shift")
    }
    return call(
        match,
        "vendor_dense_s8",
        "return vendor_dense_s8(\n"
        "    input_0, weights, bias, scale_high, scale_low, scale_shift,\n"
        f"    {batch}, {inputs}, {outputs}, zero_point, least, most,\n"
        "    (int32_t *)(void *)scratch, state, output_0);",
        header="vendor_dense.h",
        tables={
            "weights": packed(weights),
            "bias": tables["bias"],
            **{f"scale_{name}": table for name, table in multiplier.items()},
        },
        numbers={
            "zero_point": numbers["output_zero_point"],
            "least": numbers["low"],
            "most": numbers["high"],
        },
        scratch_bytes=ROWS * SUM_BYTES,
    )


def packed(weights: Array) -> Array:
    """[outputs, inputs] -> blocks of ROWS rows, input by input; rows of zeros fill the last one."""
    outputs, inputs = weights.shape
    rows = np.zeros((-(-outputs // ROWS) * ROWS, inputs), np.int8)
    rows[:outputs] = weights
    return np.ascontiguousarray(rows.reshape(-1, ROWS, inputs).transpose(0, 2, 1))


backend = Backend(
    name="Vendor dense",
    patterns=(Pattern(("FULLY_CONNECTED",), dense),),
    code=StaticLibrary(FOLDER / "libvendor_dense.a", (FOLDER,)),
    initialize="vendor_init",
    state_bytes=STATE_BYTES,
)
