"""What TVM's C generator gets wrong, and lower_c mends (docs/internals/tvm.md)."""

from __future__ import annotations

import ctypes
import math
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax, s_tir, te, tirx

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.lowering.lower_c import lower_to_c
from utvm_deploy.kernels.contract.c_function import CFunction

_SIDE = 8
_TIMEOUT_S = 120


def reduction(kind: str) -> Any:
    """The largest or smallest of each row, or where the largest is."""
    given = te.placeholder((_SIDE, _SIDE), "int32", name="given")
    axis = te.reduce_axis((0, _SIDE), name="axis")
    if kind == "argmax":
        largest = te.comm_reducer(
            lambda x, y: (
                tirx.Select(x[1] >= y[1], x[0], y[0]),
                tirx.Select(x[1] >= y[1], x[1], y[1]),
            ),
            lambda index, value: (tirx.const(-1, index), tirx.min_value(value)),
        )
        places, values = te.compute(
            (_SIDE,), lambda i: largest((axis, given[i, axis]), axis=axis), name="found"
        )
        return te.create_prim_func([given, places, values])
    reduce = te.max if kind == "max" else te.min
    found = te.compute((_SIDE,), lambda i: reduce(given[i, axis], axis=axis), name="found")
    return te.create_prim_func([given, found])


def scheduled(kind: str, seed: int) -> Any:
    """The reduction with its loops split, reordered and unrolled at random."""
    chance = random.Random(seed)
    schedule = s_tir.Schedule(reduction(kind))
    block = schedule.get_sblock("found")
    row, axis = schedule.get_loops(block)
    loops = [
        *schedule.split(row, [None, chance.choice([1, 2, 4])]),
        *schedule.split(axis, [None, chance.choice([1, 2, 4, 8])]),
    ]
    chance.shuffle(loops)
    schedule.reorder(*loops)
    for loop in loops:
        if chance.random() < 0.5:
            schedule.unroll(loop)
    if kind != "argmax" and chance.random() < 0.5:
        schedule.decompose_reduction(block, loops[0])
    return schedule.mod["main"]


def shared(functions: Sequence[CFunction], folder: Path) -> ctypes.CDLL:
    source, library = folder / "kernels.c", folder / "kernels.so"
    imports = dict.fromkeys(text for function in functions for text in function.imports)
    texts = [f"{function.prototype}\n{function.text}" for function in functions]
    head = "#include <stdbool.h>\n#include <stdint.h>\n"
    source.write_text(head + "".join([*imports, *texts]))
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(source)], check=True, timeout=_TIMEOUT_S)
    return ctypes.CDLL(str(library))


def check_schedules(count: int, folder: Path) -> None:
    kinds = ["max", "min", "argmax"]
    functions = [
        lower_to_c(
            scheduled(kinds[seed % 3], seed),
            f"kernel_{seed}",
            "generic",
            outputs=1 + (seed % 3 == 2),
        )
        for seed in range(count)
    ]
    library = shared(functions, folder)
    for seed in range(count):
        kind = kinds[seed % 3]
        given = np.random.default_rng(seed).integers(-99, 99, (_SIDE, _SIDE), dtype=np.int32)
        results = [np.zeros(_SIDE, np.int32) for _ in range(1 + (kind == "argmax"))]
        kernel = getattr(library, f"kernel_{seed}")
        kernel(*(ctypes.c_void_p(array.ctypes.data) for array in (given, *results)))
        largest = given.min(1) if kind == "min" else given.max(1)
        np.testing.assert_array_equal(results[-1], largest, f"{kind}, seed {seed}")
        if kind == "argmax":
            np.testing.assert_array_equal(given[np.arange(_SIDE), results[0]], largest)


@pytest.mark.tools
def test_max_min_and_argmax_of_random_schedules_are_right(tmp_path: Path) -> None:
    check_schedules(24, tmp_path)


@pytest.mark.soak
@pytest.mark.tools
def test_max_min_and_argmax_of_many_random_schedules_are_right(tmp_path: Path) -> None:
    check_schedules(200, tmp_path)


def elementwise(make: Any, kind: str = "float32") -> CFunction:
    given = te.placeholder((_SIDE,), kind, name="given")
    found = te.compute((_SIDE,), lambda i: make(given[i]), name="found")
    return lower_to_c(te.create_prim_func([given, found]), "kernel", "generic")


#: Values that seven digits do not hold, the limits, and what C has no literal for.
_VALUES = {
    "float32": [1 / 3, -0.1234567891, 3.4028235e38, 1.4e-45, 16777217.0, math.inf, -math.inf],
    "float64": [1 / 3, -0.1234567890123456789, 1.7976931348623157e308, 5e-324, math.inf],
}


@pytest.mark.tools
@pytest.mark.parametrize("kind", sorted(_VALUES))
def test_constants_keep_every_bit(kind: str, tmp_path: Path) -> None:
    for number, value in enumerate(_VALUES[kind]):
        function = elementwise(
            lambda _, v=value: tirx.const(float(np.dtype(kind).type(v)), kind), kind
        )
        folder = tmp_path / str(number)
        folder.mkdir()
        given, found = np.zeros(_SIDE, kind), np.ones(_SIDE, kind)
        shared([function], folder).kernel(
            *(ctypes.c_void_p(array.ctypes.data) for array in (given, found))
        )
        np.testing.assert_array_equal(
            found.view(np.uint8), np.full(_SIDE, value, kind).view(np.uint8)
        )


@pytest.mark.tools
def test_not_a_number_is_a_constant(tmp_path: Path) -> None:
    function = elementwise(lambda _: tirx.const(math.nan, "float32"))
    found = np.zeros(_SIDE, np.float32)
    shared([function], tmp_path).kernel(
        *(ctypes.c_void_p(array.ctypes.data) for array in (found.copy(), found))
    )
    assert np.isnan(found).all()


@pytest.mark.tools
def test_functions_are_our_own_and_need_no_header(tmp_path: Path) -> None:
    """Among them are remainders, and what TVM has no lowering of (abs, exp2, exp10, fmod)."""
    given = np.linspace(0.25, 0.75, _SIDE, dtype=np.float32)
    wanted = {
        "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: 10**x, "log": np.log,
        "sqrt": np.sqrt, "tanh": np.tanh, "floor": np.floor, "round": np.round, "sin": np.sin,
    }  # fmt: skip
    for name, reference in wanted.items():
        function = elementwise(getattr(tirx, name))
        assert "utvm_" in function.text
        (tmp_path / name).mkdir()
        found = np.zeros_like(given)
        shared([function], tmp_path / name).kernel(
            *(ctypes.c_void_p(array.ctypes.data) for array in (given, found))
        )
        np.testing.assert_array_max_ulp(found, reference(given.astype("f8")).astype("f4"), 1)
    for name in ("fmod", "truncmod"):
        function = elementwise(lambda x, n=name: getattr(tirx, n)(x, tirx.const(0.125, "float32")))
        assert "utvm_fmodf" in function.text
        (tmp_path / name).mkdir()
        found = np.zeros_like(given)
        shared([function], tmp_path / name).kernel(
            *(ctypes.c_void_p(array.ctypes.data) for array in (given, found))
        )
        np.testing.assert_array_equal(found, np.fmod(given, np.float32(0.125)))


@pytest.mark.tools
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_compilers_round_each_product_and_each_sum(core: str, tmp_path: Path) -> None:
    """Fused, the last bit differs. Helium (q0 to q7) replaces denormals by 0."""
    function = elementwise(lambda x: x * x + x)
    source, assembly = tmp_path / "kernel.c", tmp_path / "kernel.s"
    source.write_text("#include <stdint.h>\n" + "".join(function.imports) + function.text)
    # A user's firmware may be built with GNU extensions, which fuse by default.
    flags = ["-std=gnu11", "-O3", f"-mcpu={core}", "-mthumb", "-mfloat-abi=hard"]
    fpu = "fpv4-sp-d16" if core == "cortex-m4" else "auto"
    command = ["arm-none-eabi-gcc", *flags, f"-mfpu={fpu}", "-S", "-o", assembly, source]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    text = assembly.read_text()
    assert "vmul.f32" in text
    assert not re.search(r"vfma|\bq[0-7]\b", text)


@pytest.mark.parametrize("name", ["exp", "erf", "abs"])
def test_a_function_of_float64_is_refused_by_name(name: str) -> None:
    shown = "fabs" if name == "abs" else name
    with pytest.raises(CompileError, match=f"kernel calls {shown} of float64, which boards have"):
        elementwise(getattr(tirx, name), "float64")


def test_a_function_that_boards_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match="kernel calls cbrt of float32, which boards have no"):
        elementwise(lambda x: tirx.call_pure_extern("float32", "cbrtf", x))


def test_a_cast_to_half_is_one_sentence() -> None:
    with pytest.raises(CompileError, match="cast from float32 to float16 is of type float16"):
        elementwise(lambda x: (x.astype("float16") * tirx.const(0.5, "float16")).astype("float32"))


@pytest.mark.tools
def test_models_take_and_return_booleans() -> None:
    """Declarations name no type that callers would need <stdbool.h> for."""
    block = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 64), "float32"))
    mask = relax.Var("mask", relax.TensorType((4, 64), "bool"))
    with block.function("main", [x, mask]):
        with block.dataflow():
            zero = relax.const(0.0, "float32")
            either = block.emit(relax.op.logical_or(mask, relax.op.greater(x, zero)))
            differs = block.emit(relax.op.not_equal(mask, either))
            kept = block.emit(relax.op.where(differs, x, zero))
            counted = block.emit(relax.op.astype(either, "int32"))
            outputs = block.emit_output(relax.Tuple([either, differs, kept, counted]))
        block.emit_func_output(outputs)
    compiled = utvm_deploy.compile(block.get(), board="host")
    rng = np.random.default_rng(1)
    given = rng.standard_normal((4, 64)).astype(np.float32)
    masked = rng.random((4, 64)) < 0.5
    with utvm_deploy.connect("host") as device:
        found, _ = device.load(compiled, into="ram").run([given, masked])
    either_wanted = masked | (given > 0)
    differs_wanted = masked != either_wanted
    wanted = [either_wanted, differs_wanted, np.where(differs_wanted, given, 0), either_wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_type_that_c_does_not_have_is_one_sentence() -> None:
    with pytest.raises(CompileError, match="is of type float16, which C does not have"):
        elementwise(lambda x: x * tirx.const(0.5, "float16"), "float16")
