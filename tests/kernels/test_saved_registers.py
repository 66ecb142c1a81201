"""Assembly routines save every register that their caller may still need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from odd_shapes import (
    write_additions,
    write_convolutions,
    write_dense,
    write_few,
    write_pools,
    write_products,
)
from test_fpu import write_float_layers
from test_int16_convolutions import write_convolutions as write_int16_convolutions
from test_int16_shapes import write_depthwise
from test_int16_shapes import write_pools as write_int16_pools
from test_products import write_int16x8, write_transposed
from test_winograd import write_convolutions as write_winograd

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import with_fused_sums

WRITERS = (
    write_additions,
    write_convolutions,
    write_dense,
    write_depthwise,
    write_few,
    write_float_layers,
    write_int16_convolutions,
    write_int16_pools,
    write_int16x8,
    write_pools,
    write_products,
    write_transposed,
    write_winograd,
)
# What a function leaves as it found it, by the procedure call standard of Arm.
KEPT = {*(f"r{n}" for n in range(4, 12)), "lr", *(f"d{n}" for n in range(8, 16))}
_THROUGH_R4 = ("push {r4, lr}", "mov r4, r8", "push {r4}")
_NAKED = re.compile(r"UTVM_NAKED static void (\w+)\(.*?__asm__\((.*?)\);\n}", re.DOTALL)


def registers(text: str) -> set[str]:
    """Those that a line names, ranges written out, q as two d; ".s16" is the type of an element."""
    found = set()
    for kind, first, last in re.findall(r"(?<![.\w])([rqds])(\d+)(?:-[rqds](\d+))?\b", text):
        for number in range(int(first), int(last or first) + 1):
            if kind == "s":
                found.add(f"d{number // 2}")
            elif kind == "q":
                found |= {f"d{2 * number}", f"d{2 * number + 1}"}
            else:
                found.add(f"{kind}{number}")
    return found | ({"lr"} if re.search(r"\blr\b", text) else set())


def lost(lines: list[str]) -> set[str]:
    """Registers of the caller that a routine changes for good."""
    saved, restored, used = set(), set(), set()
    copied, popped = {}, set()  # PUSH and POP of Armv6-M reach r8 to r11 through r4 to r7
    for line in lines:
        if line.startswith(("push ", "vpush ")):
            saved |= {copied.get(one, one) for one in registers(line)}
        elif line.startswith(("pop ", "vpop ")):
            popped = registers(line)
            restored |= popped | ({"lr"} if "pc" in line else set())
        elif move := re.match(r"mov (r\d+), (r\d+)$", line):
            to, source = move.groups()
            copied[to] = source
            restored |= {to} if source in popped else set()
            used |= registers(line)
        elif line != "bx lr":
            used |= registers(line)
    return used & KEPT - (saved & restored)


@pytest.mark.slow
@pytest.mark.parametrize(
    "core",
    [
        *("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m55"),
        pytest.param("cortex-m7", marks=pytest.mark.slow),
    ],
)
def test_what_the_caller_needs_is_saved(core: str, tmp_path: Path) -> None:
    routines: dict[str, list[str]] = {}
    for write in WRITERS:
        write(tmp_path / "model.tflite")
        graph = load_model(tmp_path / "model.tflite")
        for operator in graph.operators:
            call = lower(graph, operator, core)
            for kernel in {call.kernel, with_fused_sums(call).kernel}:
                if hasattr(kernel, "texts"):
                    for name, body in _NAKED.findall("\n".join(kernel.texts(core))):
                        routines[name] = re.findall(r'"(.*?)\\n"', body)
    assert len(routines) > 5
    assert not {name: sorted(lost(lines)) for name, lines in routines.items() if lost(lines)}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["push {r4, lr}", "mov r4, r0", "pop {r4, pc}"], set()),
        (["push {r4, lr}", "mov r5, r0", "pop {r4, pc}"], {"r5"}),
        (["push {r4-r6, lr}", "mov r5, r0", "pop {r4, pc}"], {"r5"}),
        (["vpush {d8-d9}", "vadd.i32 q4, q0, q1", "vpop {d8-d9}", "bx lr"], set()),
        (["vpush {d8-d9}", "vadd.i32 q5, q0, q1", "vpop {d8-d9}", "bx lr"], {"d10", "d11"}),
        (["dls lr, r0", "bx lr"], {"lr"}),
        ([*_THROUGH_R4, "mov r8, r0", "pop {r4}", "mov r8, r4", "pop {r4, pc}"], set()),
        ([*_THROUGH_R4, "mov r8, r0", "pop {r4}", "pop {r4, pc}"], {"r8"}),
        (["push {r4, lr}", "mov r8, r0", "pop {r4}", "mov r8, r4", "pop {pc}"], {"r8"}),
    ],
)
def test_the_check_sees_what_is_lost(lines: list[str], expected: set[str]) -> None:
    assert lost(lines) == expected
