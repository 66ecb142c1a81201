"""The reference of Relax models: TVM's own builds for this computer, by LLVM.

    run_reference ──inputs.npz──▶ python -m utvm_deploy.oracle.relax_reference ──results.npz──▶

The outputs are those of the module as it was given, built and run by Relax's virtual machine. So
they know nothing of our import, layouts and foldings. The layers between are the functions of our
graph, each built by LLVM: they show which layer is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.frontend.relax.facts import RelaxModel, loaded
from utvm_deploy.frontend.relax.road import relax_graph
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.signals.attributes import Signal
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    ScalarArgument,
    is_native,
)
from utvm_deploy.oracle.interpreter import Interpreted
from utvm_deploy.oracle.signals.formulas import computed

#: Computes an operator: its PrimFunc, and the arrays of all parameters.
_Compute: TypeAlias = Callable[[Operator, Any, Sequence[Array]], None]
#: The name of this reference for reports.
REFERENCE = "TVM 0.27 for this computer (LLVM)"


def interpret(model: Path, samples: Sequence[Sequence[Array]]) -> Interpreted:
    """Run all samples.

    Outputs come from the module as it was given; all other tensors from the graph.
    """
    relax_model = loaded(model.read_bytes())
    graph = relax_graph(relax_model, model.stem)
    # A model in a number format has no given form: its graph says which numbers weights are.
    whole = whole_module(relax_model) if relax_model.given else None
    compute = _ByLlvm()
    tensors: list[dict[int, Array]] = []
    for sample in samples:
        if len(sample) != len(graph.inputs):
            raise ValueError(f"it has {len(graph.inputs)} inputs, but {len(sample)} were given")
        values = tensors_of(graph, sample, compute)
        if whole is not None:
            values.update(zip(graph.outputs, whole(*sample), strict=True))
        tensors.append(values)
    return Interpreted(list(graph.outputs), tensors, [])


def layers(graph: Graph, sample: Sequence[Array]) -> dict[int, Array]:
    """Each tensor of a graph for one sample, by its number; LLVM builds each operator."""
    return tensors_of(graph, sample, _ByLlvm())


def whole_module(model: RelaxModel) -> Callable[..., list[Array]]:
    """A function from a sample's arrays to the outputs of the module as it was given."""
    import tvm
    from tvm import relax

    from utvm_deploy.frontend.relax.corrected_kernels import CORRECTED_KERNELS

    # A module may say that it is for training: batch_norm and dropout are meant for inference here.
    module = relax.transform.DecomposeOpsForInference()(tvm.ir.load_json(model.given))
    # As TVM lowers it, with other kernels where those of TVM are wrong.
    module = relax.transform.LegalizeOps(dict(CORRECTED_KERNELS))(module)
    built = tvm.compile(module, target="llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())

    def run(*sample: Array) -> list[Array]:
        made = machine["main"](*(tvm.runtime.tensor(array) for array in sample))
        several = [made] if hasattr(made, "numpy") else list(made)
        return [np.asarray(one.numpy()) for one in several]

    return run


class _ByLlvm:
    """What computes an operator's function; each is built once."""

    def __init__(self) -> None:
        self._built: dict[int, Any] = {}

    def __call__(self, operator: Operator, function: Any, arrays: Sequence[Array]) -> None:
        import tvm

        if id(operator) not in self._built:
            named = function.with_attr("global_symbol", "main")
            self._built[id(operator)] = tvm.compile(named, target="llvm")
        # ascontiguousarray would give a scalar one dimension.
        tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in arrays]
        self._built[id(operator)](*tensors)
        for array, tensor in zip(arrays, tensors, strict=True):
            if array.flags.writeable:
                array[...] = tensor.numpy()


def tensors_of(
    graph: Graph, sample: Sequence[Array], compute: _Compute, *, is_wide: bool = False
) -> dict[int, Array]:
    """Each tensor of a graph for one sample, by its number; ``compute`` does the portable kernels.

    It gets the operator, its PrimFunc, and an array for each parameter, of which it writes the last
    ones. If ``is_wide``, what it writes as float32 is float64. Layers whose kernel is a C routine
    are left out, with those that need them.
    """
    if graph.number_format is not None and not graph.number_format.computes:
        graph = graph.replaced(number_format=None)  # its weights are floats, too
    values: dict[int, Array] = dict(zip(graph.inputs, sample, strict=True))
    values |= {n: one.data for n, one in enumerate(graph.tensors) if one.data is not None}
    for operator in graph.operators:
        read = [number for number in operator.inputs if number is not None]
        shapes = {number: graph.tensors[number].shape for number in operator.outputs}
        if any(number not in values for number in read):
            continue
        if operator.kind == "RESHAPE":
            values |= {made: values[read[0]].reshape(shape) for made, shape in shapes.items()}
        elif isinstance(operator.attributes, Signal):
            made = computed(operator.kind, operator.attributes, [values[n] for n in read])
            values |= dict(zip(operator.outputs, made, strict=True))
        else:
            call = lower(graph, operator)
            if isinstance(call.kernel, LibraryKernel) or is_native(call.kernel):
                continue
            for number, shape in shapes.items():
                dtype = graph.tensors[number].dtype
                wide = "float64" if is_wide and dtype == "float32" else dtype
                values[number] = np.zeros(shape, wide)
            compute(operator, *_passed(call, values))
    return {number: array for number, array in values.items() if graph.tensors[number].data is None}


def _passed(call: KernelCall, values: Mapping[int, Array]) -> tuple[Any, list[Array]]:
    """The PrimFunc of a call, without scalars, and its arrays."""
    function: Any = call.kernel.prim_func()  # type: ignore[union-attr]
    arrays = []
    for parameter, argument in zip(function.params, call.arguments, strict=True):
        if isinstance(argument, ScalarArgument):
            function = function.specialize({parameter: argument.value})
            continue
        is_table = isinstance(argument, ConstantArgument)
        array = argument.data if is_table else values[argument.tensor]  # type: ignore[union-attr]
        if str(parameter.dtype) == "bool" and array.dtype != np.bool_:
            array = array.astype(np.bool_)  # a constant, which the graph has as bytes
        arrays.append(array.reshape([int(extent) for extent in parameter.shape]))
    return function, arrays
