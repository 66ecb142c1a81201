"""The C drivers of native kernels: loops, places, and names for what is computed twice."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import compile_library

from utvm_deploy.kernels.contract.driver import (
    Driver,
    Index,
    Operand,
    native_function,
    scratch_sizes,
    shared_scratch,
)

SOURCE = Operand("source", (3, 4, 5), "int8")
TARGET = Operand("target", (4, 3, 5), "int8")
SMALL = Operand("small", (64,), "int32")
LARGE = Operand("large", (65,), "int32")
COPY = """\
#include <stdint.h>
static void copy(const int8_t *from, int8_t *to, int32_t count, int32_t first) {
  for (int32_t i = 0; i < count; ++i) to[i] = (int8_t)(from[i] + first);
}
static void fill(int32_t *last) { *last = 7; }
"""


@dataclass(frozen=True)
class Transposed:
    """Swaps the outer axes, row by row; the first row of each plane gets ``one`` added."""

    name = "transposed"
    why = "to be tried"
    parameters = (SOURCE, "one", TARGET)
    scratch = (SMALL, LARGE)

    def texts(self, core: str) -> tuple[str, ...]:
        return COPY, COPY

    def drive(self, c: Driver) -> None:
        with c.loop(3) as plane, c.loop(4) as row, c.loop(1) as nothing:
            source = plane * SOURCE.stride(0) + row * SOURCE.stride(1) + nothing
            target = row * TARGET.stride(0) + plane * TARGET.stride(1)
            c.call("copy", SOURCE.at(source), TARGET.at(target), 5, row.is_zero())
        c.call("fill", SMALL.at(63))
        c.claim(LARGE)


@pytest.mark.tools
@pytest.mark.tools
def test_the_driver_does_what_it_says(tmp_path: Path) -> None:
    function = native_function(Transposed(), "driven", "host", may_alias=False)
    assert function.imports == (COPY,)
    path = tmp_path / "driver.c"
    path.write_text(f"{COPY}\n{function.prototype}\n{function.text}")
    library = compile_library(path)
    source = np.arange(60, dtype=np.int8).reshape(3, 4, 5)
    target = np.zeros((4, 3, 5), dtype=np.int8)
    large = np.ones(65, dtype=np.int32)
    call = library["driven"]
    call.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    call(source.ctypes.data, 1, target.ctypes.data, large.ctypes.data)
    wanted = source.transpose(1, 0, 2).copy()
    wanted[0] += 1
    np.testing.assert_array_equal(target, wanted)
    assert large[-1] == 0 and large[:-1].all()
    assert "large[64] = 0;" in function.text


def test_small_scratch_lies_on_the_stack() -> None:
    function = native_function(Transposed(), "driven", "host")
    assert [one.name for one in function.scratch] == ["large"]
    assert scratch_sizes(Transposed()) == (260,)
    assert "int32_t small_ptr[64];" in function.text
    assert "fill((&(small_ptr[63])));" in function.text
    assert "(void)one;" in function.text
    assert "const int8_t *restrict source" in function.signature
    assert "int8_t *restrict target" in function.signature
    shared = native_function(Transposed(), "driven", "host", may_alias=True)
    assert "restrict" not in shared.signature


def test_scratch_shares_memory_unless_it_is_very_much_smaller() -> None:
    pieces = [Operand(f"piece_{n}", (size,), "int8") for n, size in enumerate((480, 30, 25, 29))]
    shared = shared_scratch(pieces)
    assert [one.name for one in shared] == ["piece_0", "piece_0", "piece_2", "piece_3"]


def test_what_is_computed_twice_gets_a_name_in_the_innermost_block_that_needs_it() -> None:
    c = Driver()
    with c.loop(2) as block:
        with c.loop(3) as row:
            c.call("f", SOURCE.at(block * 24), TARGET.at(row * 7 + block * 24))
        c.call("g", block * 5)
    assert c.lines() == [
        "  for (int32_t v = 0; v < 2; ++v) {",
        "    for (int32_t v_1 = 0; v_1 < 3; ++v_1) {",
        "      int32_t cse_v1 = (v * 24);",
        "      f((&(source[cse_v1])), (&(target[((v_1 * 7) + cse_v1)])));",
        "    }",
        "    g((v * 5));",
        "  }",
    ]


def test_what_is_computed_only_in_larger_expressions_gets_no_name() -> None:
    c = Driver()
    with c.loop(2) as block, c.loop(3) as row:
        place = block * 20 + row * 5
        c.call("f", SOURCE.at(place), row * 3)
        c.call("g", SOURCE.at(place + 1), row * 3)
    assert c.lines()[2:-2] == [
        "      int32_t cse_v1 = (v_1 * 3);",
        "      int32_t cse_v2 = ((v * 20) + (v_1 * 5));",
        "      f((&(source[cse_v2])), cse_v1);",
        "      g((&(source[(cse_v2 + 1)])), cse_v1);",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Index.of(3) * 4 + 1, "13"),
        (Index((("v", 1),)) * 2 + 0, "(v * 2)"),
        (Index((("v", 1),)) * 0, "0"),
        ((Index((("v", 2),)) + 3) % 4, "(((v * 2) + 3) & 3)"),
        (Index((("v", 1),)) % 6, "(v % 6)"),
        (Index((("v", 3),)) + -2, "((v * 3) - 2)"),
        (Index((("v", 3),)) + Index.named("start"), "((v * 3) + start)"),
        (Index.of(7) % 4, "3"),
        (Index((("v", 1),)).is_zero(), "((v == 0) ? 1 : 0)"),
        (Index((("v", 1),)).is_zero(8), "((v == 0) ? 8 : 0)"),
        (Index().is_zero(), "1"),
        (Index(constant=2).is_zero(5), "0"),
    ],
)
def test_numbers(number: Index, text: str) -> None:
    c = Driver()
    c.call("f", number)
    assert c.lines() == [f"  f({text});"]
