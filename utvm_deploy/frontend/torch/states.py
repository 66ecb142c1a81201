"""Buffers that a PyTorch program writes into, such as a cache of attention: states of the model.

    before:  token ──▶ program, which writes into its buffer ──▶ logits
    after:   token, buffer ──▶ program ──▶ logits, what is left in the buffer

The .tflite file that this becomes keeps such pairs as its variables (``tflite_states.py``).
"""

from __future__ import annotations

from typing import Any

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.files.state import KeptState
from utvm_deploy.frontend.relax.torch_evaluation import check_evaluation, written_buffers
from utvm_deploy.frontend.torch.modules import quiet_torch


def with_states_outside(torch: Any, program: Any) -> tuple[Any, tuple[KeptState, ...]]:
    """The program with each buffer that it writes as an input and an output, and these states.

    They follow the program's own inputs and outputs. The same object if it writes into none. Raises
    ModelError for programs that train, for a buffer that is neither float32 nor an integer, and if
    PyTorch cannot export the program again.
    """
    check_evaluation(program)
    buffers = list(dict.fromkeys(written_buffers(program)))
    if not buffers:
        return program, ()
    stored = {**program.state_dict, **program.constants}
    names = [str(one) for one in program.graph_signature.user_inputs]
    states = {buffer: f"state_{buffer.replace('.', '_')}" for buffer in buffers}
    values = {str(n.name): n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    given = {one: torch.zeros(values[one].shape, dtype=values[one].dtype) for one in names}
    given |= {states[buffer]: stored[buffer].detach().clone() for buffer in buffers}
    try:
        with torch.no_grad(), quiet_torch():
            module = _stepping(torch, program, states, names)
            made = torch.export.export(module, (), given).run_decompositions({})
    except Exception as exc:  # of many classes
        raise ModelError(
            f"its buffer '{buffers[0]}' cannot become a state ({last_words(exc)}); make it an "
            "input and an output of the module"
        ) from exc
    lefts = made.graph_signature.user_outputs[-len(buffers) :]
    return made, tuple(
        KeptState(states[buffer], str(left), given[states[buffer]].numpy())
        for buffer, left in zip(buffers, lefts, strict=True)
    )


def _stepping(torch: Any, program: Any, states: dict[str, str], names: list[str]) -> Any:
    """A module that takes the program's inputs and its states, by their names."""
    inner = program.module(check_guards=False)
    tree = torch.utils._pytree

    class Stepping(torch.nn.Module):  # type: ignore[misc]
        """One step, which changes copies of the states."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, **given: Any) -> Any:
            flat = [given[name] for name in names]
            arguments, named = tree.tree_unflatten(flat, program.call_spec.in_spec)
            left = {buffer: given[name].clone() for buffer, name in states.items()}
            made = torch.func.functional_call(self.inner, left, arguments, named)
            return (*tree.tree_leaves(made), *left.values())

    return Stepping()
