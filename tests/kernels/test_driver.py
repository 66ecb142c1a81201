"""The C drivers of native kernels: loops, addresses, and scratch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import compile_library

from utvm_deploy.kernels.contract.c_function import native_function
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand

SOURCE = Operand("source", (3, 4, 5), "int8")
TARGET = Operand("target", (4, 3, 5), "int8")
SMALL = Operand("small", (64,), "int32")
LARGE = Operand("large", (65,), "int32")
COPY = """\
#include <stdint.h>
static void copy(const int8_t *from, int8_t *to, int32_t count, int32_t first) {
  for (int32_t i = 0; i < count; ++i) to[i] = (int8_t)(from[i] + first);
}
static void fill(int32_t *last, int32_t value) { *last = value; }
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
        with c.loop("plane", 3) as plane, c.loop("row", 4) as row, c.loop("once", 1) as once:
            source, target = SOURCE.at(plane, row, once), TARGET.at(row, plane)
            c.call("copy", source, target, 5, row.is_zero())
        c.call("fill", SMALL.at(63), 7)
        c.call("fill", LARGE.at(64), "one")


@pytest.mark.tools
def test_the_driver_does_what_it_says(tmp_path: Path) -> None:
    function = native_function(Transposed(), "driven", "host", may_alias=False)
    assert function.imports == (COPY,)
    path = tmp_path / "driver.c"
    path.write_text(f"{COPY}\n{function.prototype}\n{function.text}")
    library = compile_library(path)
    source = np.arange(60, dtype=np.int8).reshape(3, 4, 5)
    target = np.zeros((4, 3, 5), dtype=np.int8)
    large = np.full(65, 1, dtype=np.int32)
    large[-1] = 0
    call = library["driven"]
    call.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    call(source.ctypes.data, 1, target.ctypes.data, large.ctypes.data)
    wanted = source.transpose(1, 0, 2).copy()
    wanted[0] += 1
    np.testing.assert_array_equal(target, wanted)
    assert large.tolist() == [1] * 65


def test_small_scratch_lies_on_the_stack() -> None:
    function = native_function(Transposed(), "driven", "host")
    assert [(one.name, one.size_bytes) for one in function.scratch] == [("large", 260)]
    assert "int32_t small[64];" in function.text
    assert "fill(small + 63, 7);" in function.text
    assert "fill(large + 64, one);" in function.text
    assert "const int8_t *restrict source" in function.signature
    assert "int8_t *restrict target" in function.signature
    shared = native_function(Transposed(), "driven", "host", may_alias=True)
    assert "restrict" not in shared.signature


def test_loops_have_the_names_of_their_counters() -> None:
    c = Driver()
    with c.loop("block", 2) as block:
        with c.loop("row", 3) as row, c.loop("once", 1) as once:
            c.call("f", SOURCE.at(block, 1, once), TARGET.at(row, 0, block * 2 + 1))
        c.call("g", block * 5, row.is_zero(8))
    c.call("h", SOURCE.at(), "border")
    assert c.lines == [
        "  for (int32_t block = 0; block < 2; ++block) {",
        "    for (int32_t row = 0; row < 3; ++row) {",
        "      f(source + 20 * block + 5, target + 15 * row + 2 * block + 1);",
        "    }",
        "    g(5 * block, row == 0 ? 8 : 0);",
        "  }",
        "  h(source, border);",
    ]


def test_nested_loops_give_the_index_of_an_element() -> None:
    c = Driver()
    with c.loops("axis", (3, 1, 5)) as index:
        c.call("f", Operand("matrix", (3, 1, 5, 7), "int16").at(*index))
    assert c.lines == [
        "  for (int32_t axis_0 = 0; axis_0 < 3; ++axis_0) {",
        "    for (int32_t axis_2 = 0; axis_2 < 5; ++axis_2) {",
        "      f(matrix + 35 * axis_0 + 7 * axis_2);",
        "    }",
        "  }",
    ]


def test_long_calls_are_broken_between_arguments() -> None:
    c = Driver()
    with c.loop("row", 2) as row:
        c.call("f", *[SMALL.at(row * 1000 + 10 + n) for n in range(6)])
    assert c.lines[1:-1] == [
        "    f(small + 1000 * row + 10, small + 1000 * row + 11, small + 1000 * row + 12,",
        "        small + 1000 * row + 13, small + 1000 * row + 14, small + 1000 * row + 15);",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Index.of(3) * 4 + 1, "13"),
        (Index.named("row") * 2 + 0, "2 * row"),
        (Index.named("row") * 0, "0"),
        ((Index.named("row") * 2 + 3) % 4, "((2 * row + 3) % 4)"),
        (Index.named("row") % 6 * 48, "48 * (row % 6)"),
        (Index.named("row") * 3 + -2, "3 * row - 2"),
        (Index.named("row") * -3 + Index.named("start"), "-3 * row + start"),
        (Index.named("start") + Index.named("row") * -3, "start - 3 * row"),
        (Index.named("row") * 5 + Index.named("row") * -5, "0"),
        (Index.of(7) % 4, "3"),
        (Index.named("row") % 1, "0"),
        (Index.named("row").is_zero(), "row == 0"),
        ((Index.named("row") + 1).is_zero(8), "row + 1 == 0 ? 8 : 0"),
        (Index().is_zero(), "1"),
        (Index().is_zero(5), "5"),
        (Index(constant=2).is_zero(5), "0"),
    ],
)
def test_expressions(number: Index | int | str, text: str) -> None:
    c = Driver()
    c.call("f", number)
    assert c.lines == [f"  f({text});"]
