"""One range for what a recurrent layer of an ONNX file computes in each of its steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from utvm_deploy.base.repeats import joined, repeats
from utvm_deploy.quality.quantizing.facts import Range
from utvm_deploy.quality.quantizing.onnx.file import bytes_of, inputs_of, loaded

_WEIGHTED = frozenset(("Gemm", "MatMul", "Conv"))


def with_shared_ranges(data: bytes, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges, of which those of equal steps are equal: as wide as all of them together.

    Steps are equal if they have the same operators and weights.
    """
    made = dict(ranges)
    for names in joined(_pairs(loaded(data))):
        known = [ranges[name] for name in names if name in ranges]
        if known:
            whole = Range(min(one.low for one in known), max(one.high for one in known))
            made |= {name: whole for name in names if name in ranges}
    return made


def _pairs(model: Any) -> Iterator[tuple[str, str]]:
    """Tensors that are the same in two steps."""
    constants = {one.name: one for one in model.graph.initializer}
    apart = {one.name for one in inputs_of(model)} | constants.keys()

    def key(node: Any) -> tuple[str, ...]:
        numbers = [one.SerializeToString().hex() for one in node.attribute]
        weights = [
            hashlib.sha256(bytes_of(constants[name])).hexdigest()
            for name in (node.input if node.op_type in _WEIGHTED else ())
            if name in constants
        ]
        return (node.op_type, *numbers, *weights)

    nodes = list(model.graph.node)
    for one in repeats([key(node) for node in nodes]):
        step = nodes[one.first : one.first + one.period]
        if not any(
            node.op_type in _WEIGHTED and any(name in constants for name in node.input)
            for node in step
        ):
            continue
        for position in range(one.first, one.end - one.period):
            node, later = nodes[position], nodes[position + one.period]
            for own, other in ((node.input, later.input), (node.output, later.output)):
                pairs = zip(own, other, strict=False)
                yield from ((a, b) for a, b in pairs if a not in apart and b not in apart)
