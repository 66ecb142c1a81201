"""Relax modules of float16 or bfloat16 as modules of float32.

Each of their numbers is a float32. So weights keep their values, and ``--format`` can compute with
the numbers of the file again.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax

from utvm_deploy.frontend.relax.check import NO_TYPES


def in_float32(module: Any, main: str) -> Any:
    """The module with float32 in the place of shorter floats, if its function ``main`` takes some.

    In another module, a cast to a shorter float is a rounding. It is refused later, as are TVM's
    functions that compute in such a type.
    """
    if not any(_is_short(one.ty) for one in module[main].params):
        return module
    widener = _Widener(module)
    widener.builder_.update_func(module.get_global_var(main), widener.function(module[main]))
    return widener.builder_.get()


@relax.expr_functor.mutator
class _Widener(relax.PyExprMutator):  # type: ignore[misc]
    def function(self, main: Any) -> Any:
        """The function with other parameters; types of what it computes follow from them."""
        parameters = []
        for one in main.params:
            new = one
            if _is_short(one.ty):
                new = relax.Var(one.name, relax.TensorType(one.ty.shape, "float32"))
                self.set_var_remap(one, new)
            parameters.append(new)
        body = self.visit_expr(main.body)
        return relax.Function(parameters, body, None, main.is_pure, main.attrs)

    def visit_generic_const_(self, constant: Any) -> Any:
        if not _is_short(constant.ty):
            return constant
        return relax.const(constant.value.numpy().astype("float32"), "float32")

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, ir.Op) or call.attrs is None:
            return call
        told = text = str(tvm.ir.save_json(call.attrs))
        for one in NO_TYPES:
            text = text.replace(f'"{one}"', '"float32"')
        if text == told:
            return call
        if call.op.name == "relax.astype" and str(call.args[0].ty.dtype) == "float32":
            return call.args[0]
        return relax.Call(call.op, call.args, tvm.ir.load_json(text), call.ty_args)


def _is_short(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType) and str(ty.dtype) in NO_TYPES
