"""Binds the batch of a PyTorch export with dynamic shapes to 1.

An input whose first extent alone is symbolic has a batch of any size. The program is exported again
with a batch of 1, so each size that it computes from the batch becomes a number.
"""

from __future__ import annotations

from typing import Any

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.torch.modules import quiet_torch


def free_batches(program: Any) -> tuple[str, ...]:
    """The names of the inputs of an ``ExportedProgram`` whose batch has no fixed size.

    Raises ModelError for an input with another extent that is not fixed.
    """
    found = []
    for node in _tensors(program):
        for axis, extent in enumerate(node.meta["val"].shape):
            if isinstance(extent, int):
                continue
            if axis > 0 or not str(extent).isidentifier():
                raise ModelError(
                    f"dimension {axis} of input '{node.name}' has no fixed size; only a batch, "
                    "which is dimension 0, may be dynamic: export again with this one fixed"
                )
            found.append(str(node.name))
    return tuple(found)


def batch_notes(program: Any) -> tuple[str, ...]:
    """Messages for the user about the batches that ``with_batch_of_one`` binds.

    Raises as ``free_batches`` does.
    """
    return tuple(f"the batch of input '{name}' is bound to 1" for name in free_batches(program))


def with_batch_of_one(torch: Any, program: Any) -> Any:
    """The ``ExportedProgram`` with a batch of 1; the same object if no batch is free.

    Raises ModelError if another extent is not fixed, or if PyTorch cannot export the program again.
    """
    free = free_batches(program)
    if not free:
        return program
    examples = {
        str(node.name): torch.zeros(
            (1, *node.meta["val"].shape[1:]) if node.name in free else node.meta["val"].shape,
            dtype=node.meta["val"].dtype,
        )
        for node in _tensors(program)
    }
    given = [
        examples.get(name, 0) if isinstance(name, str) else name
        for name in program.graph_signature.user_inputs
    ]
    arguments, named = torch.utils._pytree.tree_unflatten(given, program.call_spec.in_spec)
    try:
        with torch.no_grad(), quiet_torch():
            # The guards of a program that was exported with a larger batch may refuse 1.
            module = program.module(check_guards=False)
            return torch.export.export(module, arguments, named)
    except Exception as exc:  # of many classes
        raise ModelError(
            f"the batch of input '{free[0]}' cannot be bound to 1 ({last_words(exc)}); export "
            "without dynamic shapes"
        ) from exc


def _tensors(program: Any) -> list[Any]:
    """The placeholders of the inputs that are tensors."""
    names = program.graph_signature.user_inputs
    return [
        node
        for node in program.graph.nodes
        if node.op == "placeholder"
        and node.name in names
        and hasattr(node.meta.get("val"), "shape")
    ]
