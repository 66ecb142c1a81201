"""A model as a sequence: kernel calls, and operators that need no code."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.graph.model import Operator
from utvm_deploy.kernels.contract.call import KernelCall


@dataclass(frozen=True)
class Step:
    """One layer as the planner sees it."""

    operator: Operator
    call: KernelCall
    scratch_bytes: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """An operator that needs no code: its output begins ``offset`` bytes into its input's.

    If it joins several inputs, there is a view for each of them. All but the first have negative
    offsets.
    """

    operator: Operator
    source: int
    result: int
    offset: int = 0
