"""The PrimFuncs of a module or of a model, each as a task: something to tune and what to run it on.

Each PrimFunc of a task has an attribute with the task's name. Schedules keep it, so a scheduled
PrimFunc says whose candidate it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from utvm_deploy.base.errors import TuneError
from utvm_deploy.graph.attributes import Reshape
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import (
    Argument,
    ConstantArgument,
    LibraryKernel,
    TensorArgument,
)
from utvm_deploy.kernels.portable.schedules.template_free import loops_of
from utvm_deploy.records import KernelIdentity
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.measuring.workload import Work

#: The attribute that names the task.
TASK = "utvm.task"
REFERENCE = Candidate(GENERIC)
_PRIM_FUNC = "PRIM_FUNC"


@dataclass(frozen=True, eq=False)
class Task:
    """A PrimFunc to tune."""

    name: str
    func: Any
    arguments: tuple[Argument, ...]
    work: Work
    times: int = 1  # how often the model calls it

    @property
    def outputs(self) -> int:
        """How many of the last parameters are written."""
        return len(self.work.operator.outputs)

    @property
    def signature(self) -> tuple[str, ...]:
        """The types of the parameters."""
        return signature_of(self.func)


def signature_of(func: Any) -> tuple[str, ...]:
    """The types of a PrimFunc's parameters, such as ``int8[4, 16]``."""
    return tuple(
        f"{parameter.dtype}{list(_extents(parameter) or ())}"
        if hasattr(parameter, "shape")
        else str(parameter.ty)
        for parameter in func.params
    )


def name_of(func: Any) -> str:
    """A name for a PrimFunc's C function."""
    digest = hashlib.sha256(str(func.script()).encode()).hexdigest()[:12]
    return f"prim_func_{digest}"


def _marked(func: Any, name: str, macs: int) -> Any:
    """The PrimFunc with its task's name, and the number of operations if TVM cannot count them.

    TVM's scheduler of tasks asks for it. TVM counts none in a PrimFunc with ``let``.
    """
    func = func.with_attr(TASK, name)
    try:
        tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": func}))
    except RuntimeError:  # TVM's own
        return func.with_attr("estimated_flops", max(2 * macs, 1))
    return func


def tasks_of_module(mod: Any) -> tuple[Task, ...]:
    """The tasks of a PrimFunc, or of all PrimFuncs of a module.

    What Relax functions of the module pass as constants are tables. Any other parameter gets random
    values. The last parameter is the output; Relax calls say if there are more.
    """
    if isinstance(mod, tirx.PrimFunc):
        return (_task("main", mod, None, {}),)
    functions = {
        gvar.name_hint: func
        for gvar, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }
    if not functions:
        raise TuneError("the module has no PrimFunc to tune; lower its Relax functions first")
    calls: dict[str, list[_Call]] = {}
    for call in _calls(mod):
        calls.setdefault(call.callee, []).append(call)
    unused = [name for name in functions if calls and name not in calls]
    found = []
    for name in sorted(functions.keys() - set(unused)):
        of_name = calls.get(name, [])
        first = of_name[0] if of_name else _Call(name, {}, 1)
        found.append(_task(name, functions[name], first.outputs, first.constants, len(of_name)))
    return tuple(found)


def tasks_of_works(works: Sequence[Work]) -> tuple[Task, ...]:
    """The tasks of a model's kernels, as far as they are PrimFuncs that have only buffers."""
    found = []
    for work in works:
        call = lower(work.graph, work.operator)
        kernel = call.kernel
        if work.free is None or isinstance(kernel, LibraryKernel):
            continue
        func = loops_of(kernel)
        if all(_extents(parameter) is not None for parameter in func.params):
            name = kernel.name
            marked = _marked(func, name, call.macs)
            found.append(Task(name, marked, call.arguments, work, work.layers))
    if not found:
        raise TuneError(
            "the model has no kernel that TVM's rules can schedule; tune it with `utvm tune`"
        )
    return tuple(found)


def marked_module(mod: Any, tasks: Sequence[Task]) -> Any:
    """The module with each task's function marked; a module of these alone if ``mod`` is None."""
    marked = {task.name: task.func for task in tasks}
    if not isinstance(mod, tvm.IRModule):
        return tvm.IRModule(
            {name: func.with_attr("global_symbol", name) for name, func in marked.items()}
        )
    return tvm.IRModule(
        {gvar: marked.get(gvar.name_hint, func) for gvar, func in mod.functions_items()}
    )


@dataclass(frozen=True)
class _Call:
    """A call of a PrimFunc by a Relax function."""

    callee: str
    constants: Mapping[int, Array]  # by the number of the parameter
    outputs: int


def _calls(mod: Any) -> Iterator[_Call]:
    """All calls of PrimFuncs, in the order of the bindings."""
    for function in mod.functions.values():
        if not isinstance(function, relax.Function):
            continue
        known: dict[Any, Array] = {}
        for block in getattr(function.body, "blocks", ()):
            for binding in block.bindings:
                value = getattr(binding, "value", None)
                if isinstance(value, tvm.ir.GenericConst):
                    known[binding.var] = value.value.numpy()
                if not isinstance(value, relax.Call):
                    continue
                if str(getattr(value.op, "name", "")) != "relax.call_tir":
                    continue
                constants = {}
                for number, argument in enumerate(value.args[1].fields):
                    if isinstance(argument, tvm.ir.GenericConst):
                        constants[number] = argument.value.numpy()
                    elif isinstance(argument, relax.Var) and argument in known:
                        constants[number] = known[argument]
                made = value.ty
                count = len(made.fields) if isinstance(made, relax.TupleType) else 1
                yield _Call(value.args[0].name_hint, constants, count)


def _extents(parameter: Any) -> tuple[int, ...] | None:
    """The shape of a buffer; None for another parameter, or a shape that is not constant."""
    extents = getattr(parameter, "shape", None)
    if extents is None or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def _steps_of_sums(func: Any) -> int:
    """How often something is added to a sum; deadlines depend on it."""
    sch = s_tir.Schedule(func)
    blocks = [sch.get(one) for one in sch.get_child_blocks(sch.get_sblock("root"))]
    return sum(
        prod(int(axis.dom.extent) for axis in block.iter_vars)
        for block in blocks
        if block.init is not None
    )


def _task(
    name: str, func: Any, outputs: int | None, constants: Mapping[int, Array], times: int = 1
) -> Task:
    """Each parameter is a tensor or a table; the last ones are the outputs."""
    tensors = []
    for index, parameter in enumerate(func.params):
        shape = _extents(parameter)
        if shape is None:
            raise TuneError(
                f"parameter {parameter.name} of PrimFunc {name} is not a buffer of a constant "
                f"shape; only such can be given values here"
            )
        tensors.append(Tensor(f"{index} {parameter.name}", shape, str(parameter.dtype)))
    first_output = len(tensors) - (outputs or 1)
    if first_output < 1:
        raise TuneError(f"PrimFunc {name} has no input and no output buffer")
    inputs = tuple(i for i in range(first_output) if i not in constants)
    written = tuple(range(first_output, len(tensors)))
    operator = Operator(_PRIM_FUNC, inputs, written, Reshape(), ())
    graph = Graph(name, tuple(tensors), (operator,), inputs, written, "")
    kernel = KernelIdentity(
        f"{name}_{name_of(func)}", tensors[0].dtype, operator.kind, (), macs=_steps_of_sums(func)
    )
    arguments: tuple[Argument, ...] = tuple(
        ConstantArgument(tensor.name, constants[index])
        if index in constants
        else TensorArgument(index)
        for index, tensor in enumerate(tensors)
    )
    work = Work(kernel, graph, operator, (REFERENCE,), max(times, 1))
    return Task(name, _marked(func, name, 0), arguments, work, max(times, 1))
