"""What the rest of the package asks of Relax: a module's lowered form, and its graph.

TVM takes seconds to load, so it is loaded by the first call.
"""

from __future__ import annotations

import hashlib
from typing import Any

from utvm_deploy.graph.model import Graph
from utvm_deploy.relax.facts import RelaxModel


def relax_model(module: Any) -> RelaxModel:
    """An IRModule, lowered; raises ModelError or UnsupportedOperator if it cannot be."""
    import tvm

    from utvm_deploy.relax.passes import lowered_module

    lowered = lowered_module(module)
    return RelaxModel(str(tvm.ir.save_json(module)), str(tvm.ir.save_json(lowered)))


def relax_graph(model: RelaxModel, name: str) -> Graph:
    """The graph of a model; its digest is that of the module as it was given."""
    import tvm

    from utvm_deploy.relax.to_graph import graph_of

    digest = hashlib.sha256(model.given.encode()).hexdigest()
    return graph_of(tvm.ir.load_json(model.lowered), name, digest)
