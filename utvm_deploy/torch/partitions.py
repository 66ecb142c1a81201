"""Which operators of an ATen graph can run on a board, and the partitions that they form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.frontend.relax.from_torch import importable_names
from utvm_deploy.frontend.torch.calls import aten_name
from utvm_deploy.frontend.torch.export import FILLED
from utvm_deploy.frontend.torch.statements import STATEMENTS
from utvm_deploy.quality.quantizing.facts import FLOAT


@dataclass(frozen=True)
class Partition:
    """Operators that are next to each other in a graph, and that can run on a board together."""

    operators: tuple[str, ...]  # ATen's names, in order

    def __str__(self) -> str:
        return kinds_text(self.operators)


@dataclass(frozen=True)
class Explanation:
    """Where the operators of a module run: one partition on the board, the rest in eager."""

    board: Partition | None  # None if no operator can run on a board
    others: tuple[Partition, ...]  # could run there, but a board runs one partition
    eager: tuple[str, ...]  # operators that have no kernel here

    def __str__(self) -> str:
        lines = ["on the board: nothing"]
        if self.board:
            count = len(self.board.operators)
            lines = [f"on the board: {count} operator{'s' * (count > 1)} ({self.board})"]
        for other in self.others:
            lines.append(f"eager, because a board runs one partition: {other}")
        if self.eager:
            lines.append(f"eager, because there is no kernel: {kinds_text(self.eager)}")
        return "\n".join(lines)


def kinds_text(operators: Iterable[str]) -> str:
    """Kinds of operators with their numbers, in the order of their first use."""
    counts: Mapping[str, int] = Counter(operators)
    return ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in counts.items())


class Splitter:
    """The partitions of an ATen ``GraphModule``, the largest first."""

    def __init__(self, module: Any, scheme: str) -> None:
        from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
        from torch.fx.passes.operator_support import OperatorSupport

        known = known_names(scheme)
        answers = dict.fromkeys(known, True)

        class Support(OperatorSupport):  # type: ignore[misc]
            def is_node_supported(self, submodules: Any, node: Any) -> bool:
                if node.op != "call_function" or _is_of_training(node):
                    return False
                if any(map(_is_complex, (node, *node.all_input_nodes))):
                    return False
                name = operator_name(node)
                if name not in answers:
                    answers[name] = _becomes_known(node, known)
                return answers[name]

        self._partitioner = CapabilityBasedPartitioner(
            module, Support(), allows_single_node_partition=True
        )
        found = self._partitioner.propose_partitions()
        self.partitions = sorted(found, key=lambda one: -len(one.nodes))
        inside = {node for one in self.partitions for node in one.nodes}
        calls = (node for node in module.graph.nodes if node.op == "call_function")
        self.eager = tuple(operator_name(node) for node in calls if node not in inside)

    def split(self, number: int) -> tuple[Any, str]:
        """The module with one partition as a submodule, and the submodule's name."""
        made = self._partitioner.fuse_partitions([self.partitions[number]])
        name = next(str(node.target) for node in made.graph.nodes if _is_fused(node))
        return made, name

    def explanation(self) -> Explanation:
        """The partitions in words."""
        partitions = [
            Partition(tuple(operator_name(node) for node in one.nodes)) for one in self.partitions
        ]
        board = partitions[0] if partitions else None
        return Explanation(board, tuple(partitions[1:]), self.eager)


def _is_complex(node: Any) -> bool:
    """Whether a node makes complex numbers, which no board computes with."""
    value = node.meta.get("val")
    return hasattr(value, "is_complex") and bool(value.is_complex())


def _is_fused(node: Any) -> bool:
    return node.op == "call_module" and str(node.target).startswith("fused_")


def operator_name(node: Any) -> str:
    """The name that operators are listed by."""
    target = str(node.target)
    return "getitem" if "getitem" in target else aten_name(node.target)


#: Operators that have another meaning in training -> the position of the argument that says so.
_TRAINING = {
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), 2),
    "batch_norm": 5,
}


def _is_of_training(node: Any) -> bool:
    """Whether an operator drops elements, or computes its own mean and variance."""
    place = _TRAINING.get(operator_name(node))
    return place is not None and len(node.args) > place and bool(node.args[place])


def known_names(scheme: str) -> frozenset[str]:
    """ATen's names of the operators that can run on a board with that scheme."""
    known = importable_names() if scheme == FLOAT else frozenset((*STATEMENTS, *FILLED, "arange"))
    return known | {"getitem"}


def _becomes_known(node: Any, known: frozenset[str]) -> bool:
    """Whether PyTorch takes an operator apart into known ones."""
    import torch

    graph = torch.fx.Graph()
    examples = []

    def placeholder(source: Any) -> Any:
        value = source.meta["val"]
        examples.append(torch.zeros(tuple(value.shape), dtype=value.dtype))
        return graph.placeholder(f"x{len(examples)}")

    try:
        graph.output(graph.node_copy(node, placeholder))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        parts = torch.export.export(module, tuple(examples)).run_decompositions()
    except Exception:  # of many classes
        return False
    calls = [one for one in parts.graph.nodes if one.op == "call_function"]
    return all(operator_name(one) in known for one in calls)


def explanation(module: Any, scheme: str) -> Explanation:
    """The partitions of an ATen ``GraphModule``."""
    return Splitter(module, scheme).explanation()
