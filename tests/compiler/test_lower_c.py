"""PrimFunc -> C: plain C99, scratch lifted, equal on every run, and it computes the right thing."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tvm import te
from tvm.script import tirx as T

from utvm_deploy.base.errors import CompileError
from utvm_deploy.compiler.lowering.lower_c import lower_to_c
from utvm_deploy.kernels.contract.c_function import CFunction

COMPILE_TIMEOUT_S = 60
STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]

HELPER = "static inline int32_t increment(int32_t value) {\n  return value + 1;\n}\n"


def dense(width: int = 1024):  # type: ignore[no-untyped-def]
    """A matrix product with one temporary that is too large for the stack and one that is not."""
    x = te.placeholder((4, width), "int8", name="x")
    weights = te.placeholder((8, width), "int8", name="weights")
    zero_point = te.var("zero_point", "int32")
    unused = te.var("unused", "int32")
    shifted = te.compute(
        (4, width), lambda i, j: x[i, j].astype("int32") - zero_point, name="shifted"
    )
    k = te.reduce_axis((0, width), "k")
    total = te.compute(
        (4, 8),
        lambda i, j: te.sum(shifted[i, k] * weights[j, k].astype("int32"), axis=k),
        name="total",
    )
    y = te.compute(
        (4, 8), lambda i, j: te.max(te.min(total[i, j] >> 3, 127), -128).astype("int8"), name="y"
    )
    return te.create_prim_func([x, weights, zero_point, unused, y])


def with_helper():  # type: ignore[no-untyped-def]
    @T.prim_func(s_tir=True)
    def helped(x: T.Buffer((64,), "int8"), y: T.Buffer((64,), "int8")):
        T.func_attr({"tirx.noalias": True})
        for i in range(64):
            with T.sblock("r"):
                v = T.axis.remap("S", [i])
                T.reads(x[v])
                T.writes(y[v])
                T.attr(0, "pragma_import_c", HELPER)
                y[v] = T.Cast(
                    "int8", T.call_pure_extern("int32", "increment", T.Cast("int32", x[v]))
                )

    return helped


def compile_shared(function: CFunction, folder: Path, compiler: str = "gcc") -> ctypes.CDLL:
    source = folder / "kernel.c"
    source.write_text(
        "#include <stdint.h>\n"
        + "".join(function.imports)
        + function.prototype
        + "\n"
        + function.text
    )
    library = folder / f"{compiler}.so"
    subprocess.run(
        [compiler, *STRICT, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)],
        check=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    return ctypes.CDLL(str(library))


@pytest.mark.tools
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_lowered_function_computes_the_same(tmp_path: Path, compiler: str) -> None:
    function = lower_to_c(dense(), "p_dense", "cortex-m7")
    library = compile_shared(function, tmp_path, compiler)
    rng = np.random.default_rng(1)
    x = rng.integers(-128, 128, (4, 1024), dtype=np.int8)
    weights = rng.integers(-128, 128, (8, 1024), dtype=np.int8)
    y = np.zeros((4, 8), np.int8)
    (scratch,) = (np.zeros(s.size_bytes, np.uint8) for s in function.scratch)
    library.p_dense(
        *(ctypes.c_void_p(a.ctypes.data) for a in (x, weights)),
        3,
        0,
        *(ctypes.c_void_p(a.ctypes.data) for a in (y, scratch)),
    )
    expected = ((x.astype(np.int32) - 3) @ weights.astype(np.int32).T) >> 3
    np.testing.assert_array_equal(y, expected.clip(-128, 127).astype(np.int8))


def test_signature_tells_inputs_from_outputs_and_lifts_only_large_allocations() -> None:
    function = lower_to_c(dense(), "p_dense", "cortex-m7")
    assert " ".join(function.signature.split()) == (
        "void p_dense( const int8_t *restrict x, const int8_t *restrict weights, "
        "int32_t zero_point, int32_t unused, int8_t *restrict y, int32_t *restrict shifted)"
    )
    assert max(map(len, function.signature.splitlines())) < 60
    assert [(s.name, s.dtype, s.size_bytes) for s in function.scratch] == [
        ("shifted", "int32", 4 * 1024 * 4)
    ]
    assert "(void)unused;" in function.text
    assert "total_ptr[32]" in function.text  # 128 bytes: below the stack limit


def test_text_is_the_same_on_every_run() -> None:
    first, second = (lower_to_c(dense(), "p_dense", "cortex-m7") for _ in range(2))
    assert first == second


def test_nothing_of_tvm_remains() -> None:
    function = lower_to_c(dense(), "p_dense", "host")
    assert "tvm" not in function.text.lower()
    assert "#" not in function.text


@pytest.mark.tools
def test_imported_helpers_are_kept_apart(tmp_path: Path) -> None:
    function = lower_to_c(with_helper(), "p_helper", "cortex-m4", may_alias=True)
    assert function.imports == (HELPER,)
    assert function.signature == "void p_helper(const int8_t *x, int8_t *y)"
    library = compile_shared(function, tmp_path)
    x = np.arange(64, dtype=np.int8)
    library.p_helper(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(x.ctypes.data))
    np.testing.assert_array_equal(x, np.arange(1, 65, dtype=np.int8))


def test_variable_allocation_is_refused() -> None:
    n = te.var("n", "int32")
    x = te.placeholder((n,), "int8", name="x")
    temporary = te.compute((n,), lambda i: x[i] + x[n - 1 - i], name="temporary")
    y = te.compute((n,), lambda i: temporary[n - 1 - i], name="y")
    with pytest.raises(CompileError, match="temporary has the variable extent"):
        lower_to_c(te.create_prim_func([x, n, y]), "p_variable", "host")
