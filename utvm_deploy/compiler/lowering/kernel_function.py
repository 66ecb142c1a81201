"""A kernel's candidate -> its C function, and the digest of that C which records keep."""

from __future__ import annotations

import hashlib

from utvm_deploy.compiler.arena.overlap import may_share
from utvm_deploy.compiler.lowering.code_digest import code_digest, kernel_code
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.records.candidate import Candidate

_DIGITS = 12


def candidate_function(
    graph: Graph, operator: Operator, core: str, candidate: Candidate
) -> tuple[KernelCall, CFunction]:
    """An operator's call and its C function, computed as ``candidate`` says.

    Raises UnsupportedOperator, or what TVM or a generator raises, where the operator cannot be
    computed so.
    """
    call = lower(graph, operator, core, candidate)
    kernel = call.kernel
    assert not isinstance(kernel, LibraryKernel)
    digest = hashlib.sha256(repr((candidate, kernel)).encode()).hexdigest()[:_DIGITS]
    name, outputs = f"{kernel.name}_{digest}", len(operator.outputs)
    made = lower_kernel(kernel, name, core, outputs=outputs, may_alias=may_share(call))
    return call, made.function


def record_code(function: CFunction) -> str:
    """The digest of a kernel's C, as records keep it."""
    return code_digest(kernel_code(record_parts(function), function.name))


def record_parts(function: CFunction) -> tuple[str, ...]:
    """The pieces of C that ``record_code`` reads.

    ``restrict`` in the signature does not count: it depends on where the model puts the tensors.
    """
    signature = function.signature.replace("restrict ", "")
    text = function.text.replace(function.signature, signature, 1)
    return header(), *function.imports, text
