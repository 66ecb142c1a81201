"""CALL_TIR: a PrimFunc that TVM made, such as a fused part of a Relax module."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.graph.attributes import CallTir
from utvm_deploy.kernels.contract.call import Kernel, KernelCall
from utvm_deploy.kernels.contract.format_kernel import FormatKernel
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx, tvm
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.schedules.tir_schedule import schedule_tir

# A kernel's name is a part of a C identifier; TVM's names of fused functions may be very long.
_MOST_NAME = 40


@dataclass(frozen=True)
class TirKernel:
    """A PrimFunc as a kernel; equal texts are equal kernels."""

    label: str = field(compare=False)
    text: str  # by ``tvm.ir.save_json``

    @property
    def name(self) -> str:
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:8]
        return f"{self.label}_{digest}"

    def prim_func(self) -> Any:
        # ``tvm.ir.load_json`` also reads texts of older versions, which takes most of its time.
        from tvm_ffi.serialization import from_json_graph_str

        return from_json_graph_str(self.text)

    def schedule(self, sch: Any, core: str) -> str:
        """Shape TVM's loops for the core's registers; nothing changes the bits."""
        return schedule_tir(sch)


def text_of(function: Any) -> str:
    """A PrimFunc as ``CallTir`` has it."""
    return str(tvm.ir.save_json(function))


def with_fma(function: Any) -> Any:
    """The function with calls of fma for a product and the sum behind it.

    Loops are shaped later, which may put a product of another stage in front of a sum. That product
    was rounded.
    """
    import tvm_ffi

    def fused(node: Any) -> Any:
        for product, added in ((node.b, node.a), (node.a, node.b)):
            if isinstance(product, tirx.Mul) and str(node.ty) == "float32":
                operands = product.a, product.b, added
                return tirx.call_pure_extern("float32", "utvm_fma", *operands)
        return node

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.Add, fused)))


def copy_of_floats(count: int) -> Any:
    """A PrimFunc that copies values of float32."""
    given = te.placeholder((count,), "float32", "input")
    return te.create_prim_func([given, te.compute((count,), lambda i: given[i], "output")])


def lower_call_tir(op: Operation) -> KernelCall:
    """The call of a PrimFunc; all of its inputs are passed."""
    a = op.attributes(CallTir)
    label = re.sub(r"[^A-Za-z0-9_]", "_", a.name)[:_MOST_NAME].strip("_") or "tir"
    kernel: Kernel = TirKernel(label, a.text)
    if a.numbers and op.graph.number_format is not None:
        kernel = FormatKernel(kernel, op.graph.number_format, frozenset(a.numbers))
    return op.call(kernel, inputs=range(len(op.operator.inputs)), macs=a.macs, in_place=a.in_place)


LOWERINGS: Mapping[str, Lowering] = {"CALL_TIR": lower_call_tir}
