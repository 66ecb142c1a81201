"""What a Relax module must be before it is lowered, and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from utvm_deploy.base.errors import ModelError, UnsupportedOperator

#: Element types that tensors may have.
TYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
# Operators whose outputs TVM declares as large as they can be, although values decide.
_BY_VALUES = ("relax.vision.all_class_non_max_suppression",)
#: Types that TVM has, but C has not.
NO_TYPES = ("float16", "bfloat16")
#: Operators that a message names.
MAX_TOLD = 10


def check_main(module: Any) -> None:
    """Raise ModelError unless this is a module with a Relax function ``main`` that has inputs."""
    if not isinstance(module, ir.IRModule):
        raise ModelError(
            f"this is an object of type {type(module).__name__}, not a module (tvm.IRModule)"
        )
    functions = {
        str(name.name_hint): func
        for name, func in module.functions_items()
        if isinstance(func, relax.Function)
    }
    if "main" not in functions:
        known = ", ".join(sorted(functions)) or "none"
        raise ModelError(f"the module has no Relax function 'main'; its Relax functions: {known}")
    if not functions["main"].params:
        raise ModelError("the function 'main' has no inputs")


def check_given(module: Any) -> None:
    """Raise ModelError if an input is not a tensor of a known shape, or there is control flow."""
    main = module["main"]
    for parameter in main.params:
        check_tensor(parameter.name, parameter.ty)
    _check_control_flow(main)


def check_tensor(name: str, ty: Any) -> None:
    """Raise ModelError if a type is not that of a tensor with a known shape."""
    if not isinstance(ty, relax.TensorType):
        raise ModelError(
            f"'{name}' is {type(ty).__name__}, not a tensor; only tensors are supported"
        )
    if ty.shape is None or not isinstance(ty.shape, relax.ShapeExpr):
        raise ModelError(f"'{name}' has no known shape; give it one with --shape {name}=1,...")
    for extent in ty.shape.values:
        if not isinstance(extent, tirx.IntImm):
            shape = shown_shape(ty.shape.values)
            raise ModelError(
                f"'{name}' has the symbolic shape ({shape}); give it one with --shape {name}=..."
            )
    if str(ty.dtype) not in TYPES:
        raise ModelError(
            f"'{name}' is {ty.dtype}; only {', '.join(TYPES)} are supported: convert the model to "
            "float32"
        )


def shown_shape(extents: Sequence[Any]) -> str:
    """A shape for messages; symbols have their names."""
    numbers = (int(one) if isinstance(one, tirx.IntImm) else one for one in extents)
    return ", ".join(map(str, numbers))


def _check_control_flow(main: Any) -> None:
    if not main.is_pure:
        raise UnsupportedOperator(
            "the function 'main' is not pure; remove what has side effects, such as print and "
            "assert_op"
        )
    for block in main.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                raise UnsupportedOperator(
                    f"'{binding.var.name}' is the result of an if; only modules without control "
                    "flow are supported: export one branch, or select by where"
                )
            if isinstance(getattr(binding.value, "op", None), ir.GlobalVar):
                raise UnsupportedOperator(
                    f"'{binding.var.name}' is the result of a call of "
                    f"'{binding.value.op.name_hint}'; only a function 'main' that calls no other "
                    "Relax function is supported: inline it with "
                    "Function.inline_functions"
                )


def check_computed(module: Any) -> None:
    """Raise UnsupportedOperator with all operators whose results no kernel can hold.

    These are results whose shape depends on the values of a tensor, such as those of nonzero, and
    results of a type that C does not have.
    """
    problems: list[str] = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if not isinstance(binding.value, ir.Call):
                continue  # another name of what a call makes
            types = _types(binding.var.ty)
            what = f"{_name(binding.value)}, which makes '{binding.var.name}'"
            by_values = _name(binding.value) in _BY_VALUES
            if by_values or any(not _has_known_shape(ty) for ty in types):
                problems.append(f"{what}, has an output whose shape depends on values")
            elif half := [str(ty.dtype) for ty in types if str(ty.dtype) in NO_TYPES]:
                problems.append(f"{what}, computes in {half[0]}: convert the model to float32")
    if problems:
        raise UnsupportedOperator(f"these operators are not supported: {_told(problems)}")


def _types(ty: Any) -> list[Any]:
    if isinstance(ty, relax.TupleType):
        return [one for field in ty.fields for one in _types(field)]
    return [ty] if isinstance(ty, relax.TensorType) else []


def _has_known_shape(ty: Any) -> bool:
    extents = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else (None,)
    return all(isinstance(extent, tirx.IntImm) for extent in extents)


def _name(value: Any) -> str:
    """What messages call a call: the operator, or the packed function."""
    if not isinstance(value.op, ir.Op):
        return str(value.op)
    if value.op.name in ("relax.call_pure_packed", "relax.call_tir"):
        callee = value.args[0]
        return str(getattr(callee, "global_symbol", None) or callee.name_hint)
    return str(value.op.name)


def _packed(function: Any) -> str:
    """The packed function that a PrimFunc calls; empty if it calls none."""
    found: list[str] = []

    def visit(call: Any) -> None:
        if str(getattr(call.op, "name", "")) in ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked"):
            found.append(str(call.args[0].value))

    tvm_ffi.structural_walk(function.body, (ir.Call, visit))
    return found[0] if found else ""


def _told(problems: Sequence[str]) -> str:
    told = "; ".join(problems[:MAX_TOLD])
    more = len(problems) - MAX_TOLD
    return f"{told}; and {more} more" if more > 0 else told


def check_lowered(module: Any) -> None:
    """Raise UnsupportedOperator with all operators that TVM could not lower to PrimFuncs."""
    problems: list[str] = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if problem := _problem(module, binding):
                problems.append(f"{problem}, which makes '{binding.var.name}'")
    if problems:
        raise UnsupportedOperator(f"TVM cannot lower these operators to kernels: {_told(problems)}")


def _problem(module: Any, binding: Any) -> str:
    value = binding.value
    if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return ""
    if value.op.name == "relax.call_tir" and (called := _packed(module[value.args[0]])):
        return f"{_name(value)} (it calls {called}, which only TVM's runtime has)"
    if value.op.name in ("relax.call_tir", "relax.call_pure_packed", "relax.reshape"):
        return ""
    return str(value.op.name)
