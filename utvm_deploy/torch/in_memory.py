"""Graphs of PyTorch objects in memory, without a file between."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from utvm_deploy.base.errors import ModelError, UsageError, UtvmError
from utvm_deploy.frontend.files.odd_weights import warn_of_weights
from utvm_deploy.frontend.relax.facts import RelaxModel
from utvm_deploy.frontend.relax.from_torch import relax_of_program
from utvm_deploy.frontend.relax.road import relax_graph
from utvm_deploy.frontend.tflite import load_bytes
from utvm_deploy.frontend.torch.batch import batch_notes, with_batch_of_one
from utvm_deploy.frontend.torch.export import (
    is_quantized,
    load_torch,
    program_to_tflite,
    stateful_tflite,
)
from utvm_deploy.frontend.torch.modules import check_module, export_error, quiet_torch
from utvm_deploy.graph.model import Graph
from utvm_deploy.quality.quantizing.facts import QuantizedModel

_log = logging.getLogger(__name__)


def is_module(value: Any) -> bool:
    """Whether a value is an ``nn.Module``; it does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_program(value: Any) -> bool:
    """Whether a value is a ``torch.export.ExportedProgram``; it does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.export.ExportedProgram)


def is_quantized_model(value: Any) -> bool:
    """Whether a value is what ``utvm_deploy.quantize`` made."""
    return isinstance(value, QuantizedModel)


def check_object(value: Any) -> None:
    """UsageError for an object that is of no kind that can be compiled."""
    kind = type(value)
    is_tvms = kind.__module__.partition(".")[0] == "tvm"
    if is_tvms or is_quantized_model(value) or is_module(value) or is_program(value):
        return
    what = (
        f"the class {value.__name__}"
        if isinstance(value, type)
        else f"an object of type {kind.__name__}"
    )
    raise UsageError(
        f"{what} cannot be compiled; give the path of a model file, an nn.Module, an "
        "ExportedProgram, a tvm.IRModule, or what quantize() gave"
    )


def check_module_and_example(module: Any, example: Any) -> None:
    """UsageError for what is not a module, or is given without an example of its inputs."""
    if not is_module(module):
        raise UsageError(
            f"an object of type {type(module).__name__} is not an nn.Module; give a module"
        )
    if example is None:
        raise UsageError(
            "a module does not say the shapes of its inputs; give an example, too, such as "
            "torch.zeros(1, 3, 32, 32)"
        )


def exported(module: Any, inputs: Any) -> Any:
    """The ``ExportedProgram`` of a module in evaluation.

    ``inputs`` maps the names of the arguments of ``forward`` to shapes or to example arrays, or it
    is a tuple of examples. Raises ModelError if it does not fit.
    """
    import torch

    if not inputs:
        raise ModelError(
            "a module says no shapes; give inputs=(example,) or inputs={'x': (1, 3, 32, 32)}, or "
            "export it by torch.export.export"
        )
    was_training = module.training
    try:
        if was_training:
            module.eval()
        named = {}
        if isinstance(inputs, Mapping):
            arguments: tuple[Any, ...] = ()
            named = {name: _example(given) for name, given in inputs.items()}
        else:
            several = inputs if isinstance(inputs, tuple | list) else (inputs,)
            arguments = tuple(_example(given) for given in several)
        check_module(torch, module, arguments, named)
        with torch.no_grad(), quiet_torch():
            return torch.export.export(module, arguments, named)
    except UtvmError:
        raise
    except Exception as exc:  # of many classes
        raise ModelError(f"PyTorch cannot export the module: {export_error(exc)}") from exc
    finally:
        if was_training:
            module.train()


def _example(given: Any) -> Any:
    import torch

    if isinstance(given, tuple | list) and all(isinstance(n, int) for n in given):
        return torch.zeros(tuple(given))
    return torch.as_tensor(given)


def relax_of_torch(model: Any, inputs: Any) -> tuple[RelaxModel, dict[bytes, list[str]]]:
    """The Relax module of a float32 ``nn.Module`` or ``ExportedProgram``.

    Also the names of layers by the bytes of their weights, as they are and transposed. Raises as
    ``graph_of_torch`` does, and for a quantized program.
    """
    program = _with_known_batch(model, inputs, "model")
    if is_quantized(program):
        raise ModelError("a quantized program cannot train; give the float32 one")
    names: dict[bytes, list[str]] = {}
    # A weight of two layers has one name, so these are known to share it.
    apart = {tensor.data_ptr(): (key, tensor) for key, tensor in program.state_dict.items()}
    for key, tensor in apart.values():
        array = tensor.detach().numpy()
        for raw in {array.tobytes(), array.T.tobytes()}:
            names.setdefault(raw, []).append(key.rpartition(".")[0])
    return relax_of_program(program), names


def _with_known_batch(model: Any, inputs: Any, name: str) -> Any:
    program = exported(model, inputs) if is_module(model) else model
    for note in batch_notes(program):
        _log.warning("%s: %s", name, note)
    return with_batch_of_one(load_torch(), program)


def graph_of_torch(model: Any, inputs: Any, name: str) -> Graph:
    """The graph of an ``nn.Module`` or an ``ExportedProgram``.

    What PT2E quantized is computed in integers, as the .tflite file of it is; anything else in
    float32, by way of Relax. Raises ModelError, and UnsupportedOperator for what has no kernel.
    """
    program = _with_known_batch(model, inputs, name)
    made = stateful_tflite(program, name, "made from a PyTorch program")
    if made is not None:
        return load_bytes(made, name)
    if is_quantized(program):
        return load_bytes(program_to_tflite(program, name, "made from a PyTorch program"), name)
    graph = relax_graph(relax_of_program(program), name)
    warn_of_weights(graph, name)
    return graph
