"""Lets generated code call our mathematical functions (``kernels/c/math``) instead of C's."""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from utvm_deploy.base.errors import CompileError
from utvm_deploy.kernels.contract.math_functions import MATH_FUNCTIONS, MISSING_FUNCTIONS

#: Intrinsics that TVM's C generator cannot print -> C's name of their float64 form.
_WITHOUT_LOWERING = {
    "tirx.exp10": "exp10",
    "tirx.exp2": "exp2",
    "tirx.fabs": "fabs",
    "tirx.fmod": "fmod",
}
_EXTERN = ("tirx.call_extern", "tirx.call_pure_extern")


@cache
def register_lowerings() -> None:
    """Give intrinsics without a C form the name of C's function. A process may do so once."""
    for intrinsic, name in _WITHOUT_LOWERING.items():
        tirx.op.register_intrin_lowering(intrinsic, target="c", f=_call(name), level=99)


def _call(name: str) -> Any:
    def lowered(call: Any) -> Any:
        suffix = "f" if str(call.ty) == "float32" else ""
        return tirx.call_pure_extern(str(call.ty), name + suffix, *call.args)

    return lowered


def with_own_functions(statement: Any, kernel: str) -> Any:
    """The statement with ``utvm_expf`` in place of ``expf``, and so on.

    CompileError for functions of float64 and float16, which have no equal bytes on all cores.
    """

    # An exception does not pass through TVM unchanged, so it is raised afterwards.
    refused: list[str] = []

    def renamed(call: Any) -> Any:
        if str(getattr(call.op, "name", "")) not in _EXTERN:
            return call
        name = str(call.args[0].value)
        kind = _refused_type(call, name)
        if kind:
            single = name in MATH_FUNCTIONS or name in MISSING_FUNCTIONS
            refused.append(f"{name[:-1] if single else name} of {kind}")
        if name not in MATH_FUNCTIONS:
            return call
        return tirx.call_pure_extern(str(call.ty), f"utvm_{name}", *call.args[1:])

    def remainder(value: Any) -> Any:
        # TVM's C generator prints the remainder of two floats as a call of C's fmod.
        name = {"float32": "fmodf", "float64": "fmod"}.get(str(value.ty))
        if name is None:
            return value
        return renamed(tirx.call_pure_extern(str(value.ty), name, value.a, value.b))

    mapped = tvm_ffi.structural_map(statement, ((ir.Call, renamed), (tirx.Mod, remainder)))
    if refused:
        advice = "" if refused[0].endswith("float32") else "; convert the model to float32"
        raise CompileError(
            f"{kernel} calls {refused[0]}, which boards have no function for" + advice
        )
    return mapped


def _refused_type(call: Any, name: str) -> str:
    """The type for which boards do not have this function of C; empty if they have it."""
    if name in MISSING_FUNCTIONS:
        return "float32"
    if {name, f"{name}f"}.isdisjoint(MATH_FUNCTIONS.keys() | MISSING_FUNCTIONS):
        return ""
    kinds = {str(one.ty) for one in (call, *call.args[1:])}
    return next((kind for kind in ("float64", "float16") if kind in kinds), "")
