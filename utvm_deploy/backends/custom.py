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
    """The custom operators that backends know, as the importer and the oracle ask for them.

    Of several backends that know an operator, the first one computes it.
    """

    def __init__(self, *backends: Backend) -> None:
        self._known: Mapping[str, tuple[Backend, Pattern]] = {
            custom_kind(pattern.custom.removeprefix(CUSTOM_PREFIX)): (backend, pattern)
            for backend in reversed(backends)
            for pattern in reversed(backend.patterns)
            if pattern.custom
        }
        having = (one for one in backends if any(pattern.custom for pattern in one.patterns))
        names = (f"{one.name}'s NumPy reference ({one.origin})" for one in having)
        self.reference = ", and ".join(names)

    def knows(self, kind: str) -> bool:
        """Whether the backend has an operator; ``kind`` is as in a ``SourceOperator``."""
        return kind in self._known

    def imported(self, op: SourceOperator) -> Operator:
        """The graph's operator; ModelError if the file's outputs are not what it makes."""
        backend, pattern = self._known[op.kind]
        build = pattern.build or backend.build
        assert build is not None, "it was checked"
        inputs = [None if number is None else op.tensors[number] for number in op.inputs]
        types = inferred(backend, pattern, inputs, op.custom_options)
        outputs = [op.tensors[number] for number in op.outputs]
        if len(types) != len(outputs):
            raise op.damaged(
                f"{backend.name} says that it makes {len(types)} tensors, and the file lists "
                f"{len(outputs)}"
            )
        for made, tensor in zip(types, outputs, strict=True):
            if (tuple(made.shape), made.dtype) != (tensor.shape, tensor.dtype):
                raise op.damaged(
                    f"{backend.name} says that it makes {made.dtype} {list(made.shape)}, and "
                    f"the file says {tensor.dtype} {list(tensor.shape)}"
                )

        def lower(graph: Graph, operator: Operator, core: str) -> KernelCall:
            call: KernelCall | str = why_not_on(backend, core) or built(
                backend, build, Match(graph, (operator,), core)
            )
            if isinstance(call, str):
                raise CompileError(f"no kernel for {operator.kind}: {call}")
            return call

        attributes = External(lower, op.custom_options)
        return Operator(pattern.custom, op.inputs, op.outputs, attributes, (op.index,))

    def computed(
        self, graph: Graph, operator: Operator, inputs: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        """What an imported operator makes of these inputs."""
        backend, pattern = self._known[custom_kind(operator.kind.removeprefix(CUSTOM_PREFIX))]
        return computed(backend, pattern, Match(graph, (operator,), "generic"), inputs)
