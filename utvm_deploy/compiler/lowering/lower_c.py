"""One TensorIR PrimFunc -> one plain C99 function.

The text needs only ``<stdint.h>`` (``<stdbool.h>`` where the IR holds booleans) and the
kernel's own imported helpers: no TVM header, no runtime, no packed arguments. Buffers become typed
pointers; allocations become scratch parameters after them, so that the planner places them in the
arena. The text is the same on every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PointerType, PrimType, TensorLoad
from tvm.tirx import stmt as tir

from utvm_deploy.base.errors import CompileError, last_words
from utvm_deploy.compiler.lowering.float_literals import with_marks, without_marks
from utvm_deploy.compiler.lowering.math_calls import register_lowerings, with_own_functions
from utvm_deploy.compiler.lowering.numbers import buffer_of_numbers, with_numbers_in
from utvm_deploy.kernels.contract.c_function import (
    CFunction,
    Parameter,
    exact_float_texts,
    signature_and_text,
)
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.format_kernel import FormatKernel
from utvm_deploy.kernels.contract.math_functions import math_texts
from utvm_deploy.targets.table import CORES, target_of

# CodeGenC puts this in front of every declaration and definition.
_DECLARATION = '#ifdef __cplusplus\nextern "C"\n#endif\nTVM_DLL '
_IMPORT_KEY = "pragma_import_c"
# What a name in C may not have.
_NO_NAME = re.compile(r"^(?=[0-9])|[^A-Za-z0-9_]|^restrict$")
#: Types of buffers that C has, or that <stdint.h> and <stdbool.h> give it.
_TYPES = re.compile(r"u?int(8|16|32|64)|float(32|64)|bool")


def lower_to_c(
    func: Any,
    name: str,
    core: str,
    *,
    outputs: int = 1,
    may_alias: bool = False,
    numbers: FormatKernel | None = None,
) -> CFunction:
    """The C function ``name`` that does what ``func`` (a scheduled PrimFunc) does.

    The last ``outputs`` buffer parameters are written; the others become const. ``may_alias``
    says that an output may lie exactly on an input, which forbids ``restrict``. ``numbers`` says
    which parameters are numbers of a format, where ``func`` has float32.
    """
    module = tvm.IRModule({name: func.with_attr("global_symbol", name)})
    flat = _by_tvm(name, lambda: _lowering_passes(core)(module))[name]
    buffers = [p for p in flat.params if _is_buffer(p)]
    extracted = _Extractor(buffers[: len(buffers) - outputs])
    body = with_own_functions(flat.body, name)
    stored: dict[Any, Any] = {}
    if numbers is not None:
        own = numbers.number_format
        stored = {p: buffer_of_numbers(p, own) for p in (flat.params[n] for n in numbers.numbers)}
        body = with_numbers_in(body, stored, own)
    body = extracted.visit(body)
    _check_casts(name, body)
    parameters: list[Any] = []
    declarations: list[Any] = []
    writable: list[bool] = []
    written = buffers[len(buffers) - outputs :] + extracted.lifted
    written += [stored[one] for one in written if one in stored]
    for given in [*flat.params, *extracted.lifted]:
        parameter = stored.get(given, given)
        if not _is_buffer(parameter):
            parameters.append(parameter)
            writable.append(True)
            continue
        # Buffers of a Relax module have the names of its variables, which may be any text.
        pointer = tirx.Var(
            _NO_NAME.sub("_", parameter.name), PointerType(PrimType(parameter.dtype))
        )
        parameters.append(pointer)
        declarations.append(tir.DeclBuffer(parameter, data=pointer))
        writable.append(any(parameter.same_as(w) for w in written))
        _check_type(name, f"buffer {parameter.name}", parameter.dtype)
    plain = tirx.PrimFunc(
        parameters, tir.SeqStmt([*declarations, with_marks(body)]), flat.ret_type, flat.attrs
    )
    text = _by_tvm(name, lambda: _generate(tvm.IRModule({name: plain}), name))
    signature, text = _finish(text, name, writable, may_alias)
    texts = []
    if numbers is not None:
        texts = [numbers.number_format.c_text(), *numbers.number_format.by_float_texts(text)]
    functions = math_texts("".join([*texts, *extracted.imports, text]), needs_bits=bool(texts))
    imports = (*exact_float_texts(text), *functions, *texts, *extracted.imports)
    return CFunction(name, imports, signature, text, tuple(extracted.scratch))


def _by_tvm(name: str, step: Callable[[], Any]) -> Any:
    """What a step of TVM makes; CompileError if TVM fails on the function."""
    try:
        return step()
    except tvm.error.InternalError as exc:
        raise CompileError(f"TVM cannot make C of the function {name}: {last_words(exc)}") from exc


@lru_cache(maxsize=8)
def _lowering_passes(core: str) -> Any:
    """TVM's lowering without the steps that make packed functions (see the module's docstring)."""
    register_lowerings()
    host = tvm.target.Target("c")
    is_plain = core not in CORES or target_of(core).templates.are_processes
    kind = {"kind": "c"} if is_plain else {"kind": "c", "mcpu": core}
    target = tvm.target.Target(kind).with_host(host)
    return tvm.transform.Sequential(
        [
            tirx.transform.BindTarget(target),
            s_tir.transform.CanonicalizeLoop(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.StmtSimplify(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.NarrowDataType(32),
            s_tir.transform.LoopPartition(),
            tirx.transform.VectorizeLoop(False),
            tirx.transform.StorageRewrite(),
            s_tir.transform.HoistIfThenElse(),
            tirx.transform.UnrollLoop(),
            s_tir.transform.RenormalizeSplitPattern(),
            tirx.transform.StmtSimplify(),
            tirx.transform.RemoveNoOp(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.CommonSubexprElim(),
            tirx.transform.LowerIntrin(),
        ]
    )


def _check_type(name: str, what: str, dtype: Any) -> None:
    if not _TYPES.fullmatch(str(dtype)):
        raise CompileError(
            f"{name}: {what} is of type {dtype}, which C does not have; "
            "convert the model to float32"
        )


def _check_casts(name: str, body: Any) -> None:
    """CompileError for a value of a type that C does not have, such as float16."""
    casts: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.Cast, casts.append))
    for cast in casts:
        what = f"a value that is cast from {cast.value.ty} to {cast.ty}"
        _check_type(name, what, cast.value.ty)
        _check_type(name, what, cast.ty)


def _is_buffer(parameter: Any) -> bool:
    return type(parameter.ty).__name__ == "BufferType"


class _Extractor:
    """Takes allocations and imported C text out of a statement, and keeps loads in their place.

    TVM 0.27 has no statement visitor in Python, and only these few statements hold others.
    ``constant`` are the buffers that the function does not write.
    """

    def __init__(self, constant: Sequence[Any]) -> None:
        self._constant = constant
        self.lifted: list[Any] = []
        self.scratch: list[Operand] = []
        self.imports: list[str] = []

    def visit(self, statement: Any) -> Any:
        if isinstance(statement, tir.SeqStmt):
            kept = [s for s in map(self.visit, statement.seq) if s is not None]
            self._forget_loads(kept)
            return tir.SeqStmt(kept) if len(kept) != 1 else kept[0]
        if isinstance(statement, tir.AllocBuffer):
            return self._allocation(statement)
        if isinstance(statement, tir.AttrStmt):
            return self._attribute(statement)
        if isinstance(statement, tir.For):
            return tir.For(
                statement.loop_var,
                statement.min,
                statement.extent,
                statement.kind,
                self.visit(statement.body),
                statement.thread_binding,
                statement.annotations,
                statement.step,
            )
        if isinstance(statement, tir.IfThenElse):
            other = statement.else_case
            return tir.IfThenElse(
                statement.condition,
                self.visit(statement.then_case),
                None if other is None else self.visit(other),
            )
        if isinstance(statement, tir.While):
            return tir.While(statement.condition, self.visit(statement.body))
        return statement

    def _forget_loads(self, statements: list[Any]) -> None:
        """Give a store a separate scope, if later statements would use values loaded before it.

        TVM's C generator keeps operands of max and min in variables. It takes the same variable
        for the same load later in the scope, even if a store has changed the buffer meanwhile.
        """
        later: set[Any] = set()
        for index in reversed(range(len(statements))):
            statement = statements[index]
            loads = self._kept_loads(statement)
            if isinstance(statement, tir.BufferStore) and loads & later:
                zero, one = tirx.IntImm("int32", 0), tirx.IntImm("int32", 1)
                once = tirx.Var("once", "int32")
                statements[index] = tir.For(once, zero, one, tir.ForKind.SERIAL, statement)
            later |= loads

    def _kept_loads(self, statement: Any) -> set[Any]:
        """The loads in operands of max and min whose buffer may change."""
        found: set[Any] = set()

        def load(node: Any) -> None:
            if not any(node.source.same_as(constant) for constant in self._constant):
                found.add(tvm_ffi.StructuralKey(node))  # type: ignore[call-arg]

        def operands(node: Any) -> None:
            for side in (node.a, node.b):
                tvm_ffi.structural_walk(side, (TensorLoad, load))

        tvm_ffi.structural_walk(statement, ((tirx.Max, tirx.Min), operands))
        return found

    def _allocation(self, statement: Any) -> Any | None:
        buffer = statement.buffer
        for extent in buffer.shape:
            if not isinstance(extent, tirx.IntImm):
                raise CompileError(
                    f"allocation {buffer.name} has the variable extent {extent}; "
                    "kernels need constant shapes"
                )
        operand = Operand(buffer.name, tuple(map(int, buffer.shape)), str(buffer.dtype))
        if operand.is_on_stack:
            return statement
        self.lifted.append(buffer)
        self.scratch.append(operand)
        return None

    def _attribute(self, statement: Any) -> Any:
        if statement.attr_key != _IMPORT_KEY:
            return tir.AttrStmt(
                statement.node, statement.attr_key, statement.value, self.visit(statement.body)
            )
        text = str(statement.value.value)
        if text not in self.imports:
            self.imports.append(text)
        return self.visit(statement.body)


def _generate(module: Any, name: str) -> str:
    generated = tvm.get_global_func("target.build.c")(module, tvm.target.Target("c"))
    # Only the last part is a definition; the ones before repeat it, or declare what is called.
    text = str(generated.inspect_source()).split(_DECLARATION)[-1].rstrip() + "\n"
    if not text.startswith(f"void {name}("):
        raise CompileError(f"TVM's C generator returned no function {name}")
    return without_marks(text)


def _finish(text: str, name: str, writable: Sequence[bool], may_alias: bool) -> tuple[str, str]:
    """Qualify the pointers and silence parameters that the body does not use."""
    head, body = text.split(") {\n", 1)
    declared = head[len(f"void {name}(") :].split(", ")
    if len(declared) != len(writable):
        raise CompileError(f"TVM's C generator changed the parameters of {name}")
    parameters = []
    for declaration, is_written in zip(declared, writable, strict=True):
        base, parameter = declaration.rsplit(" ", 1)
        is_pointer = base.endswith("*")
        ctype = base[:-1] if is_pointer else base
        # Callers hold booleans as bytes, and need no <stdbool.h> for the declaration.
        ctype = "uint8_t" if is_pointer and ctype == "bool" else ctype
        parameters.append(Parameter(parameter, ctype, is_pointer, is_written))
    return signature_and_text(name, parameters, body, may_alias)
