"""The reference of Relax models: TVM's own builds for this computer, by LLVM.

    run_reference ──inputs.npz──▶ python -m utvm_deploy.oracle.relax_reference ──results.npz──▶

The outputs are those of the module as it was given, built and run by Relax's virtual machine. So
they know nothing of our import, layouts and foldings. The layers between are the functions of our
graph, each built by LLVM: they show which layer is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
    ScalarArgument,
    TensorArgument,
    is_native,
)
from utvm_deploy.oracle.interpreter import Interpreted
from utvm_deploy.oracle.signals.formulas import computed

#: From the tensors so far to the outputs of an operator.
_Function: TypeAlias = Callable[[Mapping[int, Array]], dict[int, Array]]
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
    functions = [_function(graph, operator) for operator in graph.operators]
    tensors: list[dict[int, Array]] = []
    for sample in samples:
        if len(sample) != len(graph.inputs):
            raise ValueError(f"it has {len(graph.inputs)} inputs, but {len(sample)} were given")
        values = _computed(graph, functions, sample)
        if whole is not None:
            values.update(zip(graph.outputs, whole(*sample), strict=True))
        tensors.append(values)
    return Interpreted(list(graph.outputs), tensors, [])


def layers(graph: Graph, sample: Sequence[Array]) -> dict[int, Array]:
    """Each tensor of a graph for one sample, by its number; LLVM builds each operator."""
    return _computed(graph, [_function(graph, operator) for operator in graph.operators], sample)


def whole_module(model: RelaxModel) -> Callable[..., list[Array]]:
    """A function from a sample's arrays to the outputs of the module as it was given."""
    import tvm
    from tvm import relax

    # A module may say that it is for training: batch_norm and dropout are meant for inference here.
    module = relax.transform.DecomposeOpsForInference()(tvm.ir.load_json(model.given))
    built = tvm.compile(module, target="llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())

    def run(*sample: Array) -> list[Array]:
        made = machine["main"](*(tvm.runtime.tensor(array) for array in sample))
        several = [made] if hasattr(made, "numpy") else list(made)
        return [np.asarray(one.numpy()) for one in several]

    return run


def _computed(
    graph: Graph, functions: Sequence[_Function], sample: Sequence[Array]
) -> dict[int, Array]:
    values: dict[int, Array] = dict(zip(graph.inputs, sample, strict=True))
    for function in functions:
        values.update(function(values))
    return values


def _function(graph: Graph, operator: Operator) -> _Function:
    """What computes an operator: a function from the tensors so far to its outputs."""
    if operator.kind == "RESHAPE":
        source, (output,) = operator.inputs[0], operator.outputs
        assert source is not None
        return lambda values: {
            output: _value(graph, values, source).reshape(graph.tensors[output].shape)
        }
    if isinstance(operator.attributes, Signal):
        return partial(_of_signals, graph, operator, operator.attributes)
    import tvm

    call = lower(graph, operator)
    assert not is_native(call.kernel)
    function = call.kernel.prim_func()  # type: ignore[union-attr]
    built = tvm.compile(function.with_attr("global_symbol", "main"), target="llvm")
    buffers = (one for one in function.params if hasattr(one, "shape"))
    shapes = [tuple(int(extent) for extent in one.shape) for one in buffers]

    def run(values: Mapping[int, Array]) -> dict[int, Array]:
        arguments: list[Any] = []
        made: dict[int, Any] = {}
        places = iter(shapes)
        for argument in call.arguments:
            if isinstance(argument, ScalarArgument):
                arguments.append(argument.value)
                continue
            shape = next(places)
            if isinstance(argument, ConstantArgument):
                array = argument.data
            elif argument.tensor in operator.outputs:
                array = np.zeros(shape, graph.tensors[argument.tensor].dtype)
            else:
                array = _value(graph, values, argument.tensor)
            tensor = tvm.runtime.tensor(np.ascontiguousarray(array).reshape(shape))
            if isinstance(argument, TensorArgument) and argument.tensor in operator.outputs:
                made[argument.tensor] = tensor
            arguments.append(tensor)
        built(*arguments)
        return {
            number: np.asarray(tensor.numpy()).reshape(graph.tensors[number].shape)
            for number, tensor in made.items()
        }

    return run


def _of_signals(
    graph: Graph, operator: Operator, attributes: Signal, values: Mapping[int, Array]
) -> dict[int, Array]:
    read = [_value(graph, values, number) for number in operator.inputs if number is not None]
    return dict(zip(operator.outputs, computed(operator.kind, attributes, read), strict=True))


def _value(graph: Graph, values: Mapping[int, Array], number: int) -> Array:
    data = graph.tensors[number].data
    return values[number] if data is None else data
