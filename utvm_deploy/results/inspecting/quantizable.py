"""What `utvm quantize` would make of a float model's operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from utvm_deploy.frontend.onnx.prepare import COMPOSED
from utvm_deploy.frontend.qdq.convert_graph import KNOWN, types_of
from utvm_deploy.graph.check import works_in_float
from utvm_deploy.graph.model import Graph
from utvm_deploy.quality.quantizing.tflite.rules import quantized_types
from utvm_deploy.quality.quantizing.torch.types import torch_types

#: Element types of the activations that models are quantized to.
_TYPES = ("int8", "int16")


@dataclass(frozen=True)
class Quantizable:
    """How many of a float model's operators can be quantized, and which cannot.

    They are those of the file, which are not always those of the table: TVM fuses and splits.
    ``refused`` says why `utvm quantize` does not take the file, if that is known.
    """

    operators: int
    types: dict[str, tuple[str, ...]]  # of each kind: what its activations can become
    int8: int
    int16: int
    float_int8: tuple[str, ...]  # kinds that stay float32 if the others become int8
    float_int16: tuple[str, ...]
    counts: dict[str, int]  # of each kind: how many operators
    is_of_other_format: bool  # the kinds are those of an .onnx or a .pt2 file
    refused: str | None = None

    def plan(self, kind: str) -> str:
        """The types that operators of one kind can get, or why none."""
        types = ", ".join(self.types[kind])
        if types:
            return types
        return "refused" if self.refused and f"({kind})" in self.refused else "stays float32"


def quantizable(graph: Graph, kinds: Sequence[str] = (), form: str = "onnx") -> Quantizable | None:
    """The answer for a float model; None for one with quantized tensors, or without floats.

    ``kinds`` are the operators of the file that the model came from, if it is of the format "onnx"
    or "torch".
    """
    if any(tensor.quantization is not None for tensor in graph.tensors):
        return None
    floats = [one.kind for one in graph.operators if works_in_float(graph, one)]
    if not floats:
        return None
    if kinds:
        types = torch_types if form == "torch" else onnx_types
        return _counted(kinds, types, is_of_other_format=True)
    # Only a division by a constant becomes an operator on integers.
    by_computed = any(
        one.kind == "DIV" and graph.tensors[one.inputs[1] or 0].data is None
        for one in graph.operators
    )
    return _counted(
        floats,
        lambda kind: () if kind == "DIV" and by_computed else quantized_types(kind),
        is_of_other_format=False,
    )


def onnx_types(kind: str) -> tuple[str, ...]:
    """What an operator of a float ONNX file is quantized to; empty if it stays float32."""
    if kind in COMPOSED:  # their steps are quantized
        return _TYPES
    return tuple(dtype for dtype in types_of(kind) if dtype in _TYPES) if kind in KNOWN else ()


def _counted(
    kinds: Sequence[str], types: Callable[[str], tuple[str, ...]], *, is_of_other_format: bool
) -> Quantizable:
    of = {kind: types(kind) for kind in kinds}
    return Quantizable(
        operators=len(kinds),
        types=of,
        int8=sum("int8" in of[kind] for kind in kinds),
        int16=sum("int16" in of[kind] for kind in kinds),
        float_int8=tuple(kind for kind in of if "int8" not in of[kind]),
        float_int16=tuple(kind for kind in of if "int16" not in of[kind]),
        counts=dict(Counter(kinds)),
        is_of_other_format=is_of_other_format,
    )
