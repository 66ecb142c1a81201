"""CALL_TIR: a PrimFunc that TVM made, such as a fused part of a Relax module."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.graph.attributes import CallTir
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import tvm
from utvm_deploy.kernels.contract.operation import Lowering, Operation

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
        return tvm.ir.load_json(self.text)

    def schedule(self, sch: Any, core: str) -> str:
        """Inline what is computed element by element, so that it needs no buffer."""
        inlined = 0
        for block in sch.get_child_blocks(sch.get_sblock("root")):
            for inline in (sch.compute_inline, sch.reverse_compute_inline):
                try:
                    inline(block)
                except tvm.s_tir.ScheduleError:
                    continue
                inlined += 1
                break
        return f"TVM's loops, {inlined} stages inlined" if inlined else "TVM's loops"


def lower_call_tir(op: Operation) -> KernelCall:
    """The call of a PrimFunc; all of its inputs are passed."""
    a = op.attributes(CallTir)
    label = re.sub(r"\W", "_", a.name)[:_MOST_NAME].strip("_") or "tir"
    return op.call(TirKernel(label, a.text), inputs=range(len(op.operator.inputs)))


LOWERINGS: Mapping[str, Lowering] = {"CALL_TIR": lower_call_tir}
