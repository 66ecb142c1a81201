"""A .tflite file in LiteRT's interpreter; only child processes load this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.micro_svdf import Quantized
from utvm_deploy.oracle.truths import REFERENCE_KERNELS, Node, truth_of

#: Operators whose state ``Interpreter.reset_all_variables`` leaves as it is.
_KEEPING = frozenset({"VAR_HANDLE", "CALL_ONCE"})

#: Of one sample, the tensors by their numbers.
Tensors: TypeAlias = Mapping[int, Array]


def is_first(position: int, apart: int) -> bool:
    """Whether a sample follows no other one, in sequences of ``apart`` samples; 0: in a single one.

    The first one never follows earlier runs.
    """
    return position % apart == 0 if apart else position == 0


class Program:
    """A model in an interpreter; it keeps ``only`` these tensors of a run, or the outputs.

    ``keeps_all`` keeps what its operators make for each other, too.
    """

    def __init__(
        self,
        data: bytes,
        resolver: str = REFERENCE_KERNELS,
        *,
        keeps_all: bool = True,
        only: Sequence[int] | None = None,
    ) -> None:
        self._data, self._resolver, self._keeps_all = data, resolver, keeps_all
        self._interpreter, self._has_run = self._built(), False
        self.inputs = [int(one["index"]) for one in self._interpreter.get_input_details()]
        self.outputs = [int(one["index"]) for one in self._interpreter.get_output_details()]
        self.nodes = self._prepared_nodes()
        made = [number for node in self.nodes for number in node.outputs if number >= 0]
        if only is None:
            only = [*self.inputs, *made, *self.outputs] if keeps_all else self.outputs
        self.computed = frozenset([*self.inputs, *made])
        # A variable's handle has no bytes, and LiteRT crashes when it is asked for them.
        self._kept = [n for n in dict.fromkeys(only) if self._details(n)["dtype"] is not np.object_]

    def _prepared_nodes(self) -> list[Node]:
        """The operators that LiteRT will run, or those of a file with one that it refuses."""

        def nodes() -> list[Node]:
            # Private, but the version is pinned; nothing else lists the operators.
            return [self._node(one) for one in self._interpreter._get_ops_details()]

        try:
            self._interpreter.allocate_tensors()
        except RuntimeError:
            truths = [truth_of(node) for node in nodes()]
            # Others compute such an operator, and LiteRT runs the model without it.
            if not any(truth is not None and truth.is_refused for truth in truths):
                raise
        return nodes()

    def run(self, samples: Sequence[Sequence[Array]], *, apart: int) -> list[Tensors]:
        """The tensors that are kept, of each sample; ``apart`` is as for ``is_first``."""
        return [
            self.one(sample, is_first=is_first(position, apart))
            for position, sample in enumerate(samples)
        ]

    def one(self, sample: Sequence[Array], *, is_first: bool = False) -> Tensors:
        """The tensors of one more sample, or of the first one after a start."""
        if len(sample) != len(self.inputs):
            raise ValueError(f"it has {len(self.inputs)} inputs, but {len(sample)} were given")
        if is_first and self._has_run:
            self._restart()
        self._has_run = True
        for number, array in zip(self.inputs, sample, strict=True):
            self._interpreter.set_tensor(number, array)
        self._interpreter.invoke()
        return {number: self._interpreter.get_tensor(number) for number in self._kept}

    @property
    def forms(self) -> list[tuple[tuple[int, ...], Any]]:
        """The shape and the type of each input."""
        details = self._interpreter.get_input_details()
        return [(tuple(int(n) for n in one["shape"]), one["dtype"]) for one in details]

    def empty(self, number: int) -> Array:
        """Zeros in the form of a tensor."""
        details = self._details(number)
        return np.zeros(details["shape"], details["dtype"])

    def constant(self, number: int) -> Quantized:
        """A constant's quantization and its value."""
        return replace(self.quantized(number), data=self.value(number))

    def quantized(self, number: int) -> Quantized:
        """A tensor's quantization, with zeros for its value."""
        found = self._details(number)["quantization_parameters"]
        scale, zero_point = float(found["scales"][0]), int(found["zero_points"][0])
        return Quantized(scale, zero_point, self.empty(number))

    def value(self, number: int) -> Array:
        """What a tensor holds, such as a constant."""
        array: Array = self._interpreter.get_tensor(number)
        return array

    def _restart(self) -> None:
        if any(node.kind in _KEEPING for node in self.nodes):
            self._interpreter = self._built()
            self._interpreter.allocate_tensors()
        self._interpreter.reset_all_variables()

    def _built(self) -> Any:
        return built(self._data, self._resolver, keeps_all=self._keeps_all)

    def _node(self, details: Mapping[str, Any]) -> Node:
        inputs, outputs = (tuple(int(n) for n in details[key]) for key in ("inputs", "outputs"))
        tensors = [self._details(n) if n >= 0 else None for n in inputs]
        return Node(
            int(details["index"]),
            str(details["op_name"]),
            inputs,
            outputs,
            tuple(np.dtype(one["dtype"]).name if one else "" for one in tensors),
            tuple(len(one["quantization_parameters"]["scales"]) if one else 0 for one in tensors),
        )

    def _details(self, number: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._interpreter._get_tensor_details(number, 0)
        return found


def built(data: bytes, resolver: str, *, keeps_all: bool = False) -> Any:
    """The interpreter of a file, by the kernels of a resolver."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    return Interpreter(
        model_content=data,
        experimental_op_resolver_type=OpResolverType[resolver],
        experimental_preserve_all_tensors=keeps_all,
    )
