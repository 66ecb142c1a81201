"""An ONNX model of float32 as a Relax module, by TVM's importer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.relax.facts import RelaxModel
from utvm_deploy.relax.road import relax_model


def relax_of_onnx(proto: Any, notes: tuple[str, ...] = ()) -> RelaxModel:
    """The model, lowered; ``proto`` is an ``onnx.ModelProto`` whose shapes are fixed.

    ``notes`` are for the user.

    Raises ModelError or UnsupportedOperator for what TVM cannot import or lower.
    """
    from tvm.relax.frontend.onnx import from_onnx

    try:
        module = from_onnx(proto, keep_params_in_input=False)
    except Exception as exc:  # of many classes
        said = " ".join(str(exc).split())[-300:]
        raise ModelError(f"TVM cannot import the model: {said}") from exc
    names = tuple(value.name for value in proto.graph.output)
    return replace(relax_model(module), notes=notes, outputs=names)
