"""What the rest of the package asks of Relax: a module's lowered form, and its graph.

TVM takes seconds to load, so it is loaded by the first call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.base.without_torch import without_torch
from utvm_deploy.frontend.relax.facts import HALVES_NOTE, RelaxModel
from utvm_deploy.graph.model import Array, Graph

if TYPE_CHECKING:
    from utvm_deploy.frontend.relax.shapes import ShapesFor


def load_tvm() -> Any:
    """Load what the other functions here need."""
    with without_torch():
        from utvm_deploy.frontend.relax import passes, to_graph

    return passes, to_graph


def relax_model(module: Any, shapes_for: ShapesFor = lambda _names: {}) -> RelaxModel:
    """An IRModule, lowered; ``shapes_for`` gives the shapes of inputs, by name.

    Raises ModelError or UnsupportedOperator if it cannot be lowered.
    """
    import tvm

    from utvm_deploy.frontend.relax.check import check_given, check_main
    from utvm_deploy.frontend.relax.halves import in_float32
    from utvm_deploy.frontend.relax.indices import places_of, with_safe_indices
    from utvm_deploy.frontend.relax.passes import MAIN, lowered_module
    from utvm_deploy.frontend.relax.shapes import with_shapes

    check_main(module)
    given, notes = with_shapes(module, shapes_for)
    bound = in_float32(given, MAIN)
    notes = notes if bound is given else (*notes, HALVES_NOTE)
    check_given(bound)
    places = places_of(bound, MAIN)
    bound = with_safe_indices(bound, MAIN)
    try:
        lowered = lowered_module(bound)
    except tvm.error.InternalError as exc:
        raise ModelError(f"TVM cannot lower the module: {last_words(exc)}") from exc
    texts = str(tvm.ir.save_json(bound)), str(tvm.ir.save_json(lowered))
    return RelaxModel(*texts, notes, places=places)


def module_of_text(text: str) -> Any:
    """The module that ``tvm.ir.save_json`` wrote; ModelError if the text is something else."""
    import tvm

    try:
        return tvm.ir.load_json(text)
    except Exception as exc:  # of many classes
        raise ModelError(
            f"the text is not a module that tvm.ir.save_json of this TVM wrote: {last_words(exc)}"
        ) from exc


def with_constants(model: RelaxModel, changed: Callable[[Array], Array]) -> RelaxModel:
    """The lowered model with other values of its constants; it has no given form any more."""
    load_tvm()
    import tvm
    from tvm_ffi.serialization import from_json_graph_str

    module = from_json_graph_str(model.lowered)
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            for constant in _constants(binding.value):
                constant.value.copyfrom(changed(constant.value.numpy()))
    return replace(model, given="", lowered=str(tvm.ir.save_json(module)))


def _constants(expression: Any) -> Iterator[Any]:
    """The constants that a binding holds, or hands to what it calls."""
    from tvm import ir, relax

    if isinstance(expression, ir.GenericConst):
        yield expression
    elif isinstance(expression, ir.Call | relax.Tuple):
        parts = expression.args if isinstance(expression, ir.Call) else expression.fields
        for part in parts:
            yield from _constants(part)


def relax_graph(model: RelaxModel, name: str) -> Graph:
    """The graph of a model; its digest is that of the module as it was given."""
    load_tvm()
    from tvm_ffi.serialization import from_json_graph_str

    from utvm_deploy.frontend.relax.to_graph import graph_of

    digest = hashlib.sha256(model.given.encode()).hexdigest()
    graph = graph_of(from_json_graph_str(model.lowered), name, digest)
    places = dict(zip(graph.inputs, model.places, strict=False))
    names = {}
    if len(model.outputs) == len(graph.outputs):
        names = dict(zip(graph.outputs, model.outputs, strict=True))
    tensors = (
        replace(tensor, name=names.get(number, tensor.name), most=places.get(number))
        for number, tensor in enumerate(graph.tensors)
    )
    return graph.replaced(tensors=tuple(tensors))
