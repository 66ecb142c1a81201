"""Custom operators of a .tflite file: their import, and what the reference makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.backends.asking import built, computed, inferred
from utvm_deploy.backends.interface import CUSTOM_PREFIX, Backend, Match, Pattern, why_not_on
from utvm_deploy.base.errors import CompileError
from utvm_deploy.frontend.files.source import SourceOperator, custom_kind
from utvm_deploy.graph.attributes import External
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.call import KernelCall


class CustomOperators:
    """The custom operators that a backend knows, as the importer and the oracle ask for them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._patterns: Mapping[str, Pattern] = {
            custom_kind(one.operators[0].removeprefix(CUSTOM_PREFIX)): one
            for one in backend.patterns
            if one.is_custom
        }
        self.reference = f"{backend.name}'s NumPy reference ({backend.origin})"

    def knows(self, kind: str) -> bool:
        """Whether the backend has an operator; ``kind`` is as in a ``SourceOperator``."""
        return kind in self._patterns

    def imported(self, op: SourceOperator) -> Operator:
        """The graph's operator; ModelError if the file's outputs are not what it makes."""
        pattern = self._patterns[op.kind]
        inputs = [None if number is None else op.tensors[number] for number in op.inputs]
        types = inferred(self._backend, pattern, inputs, op.custom_options)
        outputs = [op.tensors[number] for number in op.outputs]
        if len(types) != len(outputs):
            raise op.damaged(
                f"{self._backend.name} says that it makes {len(types)} tensors, and the file lists "
                f"{len(outputs)}"
            )
        for made, tensor in zip(types, outputs, strict=True):
            if (tuple(made.shape), made.dtype) != (tensor.shape, tensor.dtype):
                raise op.damaged(
                    f"{self._backend.name} says that it makes {made.dtype} {list(made.shape)}, and "
                    f"the file says {tensor.dtype} {list(tensor.shape)}"
                )
        backend = self._backend

        def lower(graph: Graph, operator: Operator, core: str) -> KernelCall:
            call: KernelCall | str = why_not_on(backend, core) or built(
                backend, pattern, Match(graph, (operator,), core)
            )
            if isinstance(call, str):
                raise CompileError(f"no kernel for {operator.kind}: {call}")
            return call

        attributes = External(lower, op.custom_options)
        return Operator(pattern.operators[0], op.inputs, op.outputs, attributes, (op.index,))

    def computed(
        self, graph: Graph, operator: Operator, inputs: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        """What an imported operator makes of these inputs."""
        pattern = self._backend.pattern(operator.kind)
        assert pattern is not None
        return computed(self._backend, pattern, Match(graph, (operator,), "generic"), inputs)
