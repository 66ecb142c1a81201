"""Which attribute values were met, operator by operator, in models whose bytes were all equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from tflite_serializer import TensorSpec
from tflite_writer import ModelWriter

from random_models.recipe import CONSTANT, INPUT, Attribute, Recipe

# More different values than these are told as a range.
_SHOWN = 12


class Coverage:
    """Counts of (operator, attribute, value)."""

    def __init__(self) -> None:
        self.models: Counter[str] = Counter()
        self.counts: dict[tuple[str, str], Counter[Attribute]] = {}

    def add(self, recipe: Recipe, model: ModelWriter) -> None:
        """Count a model's steps, and what its tensors are."""
        self.models.update(set(recipe.kinds))
        for step in recipe.steps:
            if step.kind not in (INPUT, CONSTANT):
                for name, value in step.attributes.items():
                    self._count(step.kind, name, value)
                consts = sum(recipe.steps[s].kind == CONSTANT for s, _ in step.inputs)
                if len(step.inputs) > 1:
                    self._count(step.kind, "constant operands", consts)
        for operator in model.operators:
            first = next((model.tensors[i] for i in operator.inputs if i >= 0), None)
            if operator.kind == "SPLIT":
                first = model.tensors[operator.inputs[1]]
            if first is not None:
                self._count_tensor(operator.kind, "input", first)
            if operator.outputs:
                self._count_tensor(operator.kind, "output", model.tensors[operator.outputs[0]])

    def merge(self, other: Coverage) -> None:
        """Add another's counts."""
        self.models.update(other.models)
        for key, counter in other.counts.items():
            self.counts.setdefault(key, Counter()).update(counter)

    def _count(self, kind: str, name: str, value: Attribute) -> None:
        if isinstance(value, float):
            value = f"1e{math.floor(math.log10(value))}" if value > 0 else "0"
        if isinstance(value, tuple) and len(value) > 2:
            value = len(value)
            name = f"numbers in {name}"
        self.counts.setdefault((kind, name), Counter())[value] += 1

    def _count_tensor(self, kind: str, side: str, spec: TensorSpec) -> None:
        self._count(kind, f"{side} rank", len(spec.shape))
        self._count(kind, f"{side} type", spec.dtype)
        if spec.shape:
            self._count(kind, f"{side} channels", spec.shape[-1])
        if spec.scales:
            self._count(kind, f"{side} scale", spec.scales[0])
            self._count(kind, f"{side} zero point", spec.zero_points[0])

    def markdown(self, title: str) -> str:
        """The table."""
        lines = [f"# {title}", "", "| operator | models | attribute | values met (times) |"]
        lines.append("|---|---|---|---|")
        for (kind, name), counter in sorted(self.counts.items()):
            models = self.models.get(kind, 0)
            lines.append(f"| {kind} | {models} | {name} | {_told(counter)} |")
        return "\n".join(lines) + "\n"


def _told(counter: Counter[Attribute]) -> str:
    values = sorted(counter, key=_order)
    if len(values) <= _SHOWN:
        return ", ".join(f"{_word(v)} ({counter[v]})" for v in values)
    if all(isinstance(v, int) for v in values):
        common = ", ".join(f"{v} ({n})" for v, n in counter.most_common(4))
        return f"{len(values)} values from {values[0]} to {values[-1]}; most often {common}"
    common = ", ".join(f"{_word(v)} ({n})" for v, n in counter.most_common(_SHOWN))
    return f"{len(values)} values; most often {common}"


def _order(value: Attribute) -> tuple[int, object]:
    if isinstance(value, str) and value.startswith("1e"):
        return (0, float(value))
    if isinstance(value, bool | int):
        return (0, float(value))
    return (1, str(value)) if isinstance(value, str) else (2, value)


def _word(value: Attribute) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def total(coverages: Iterable[Coverage]) -> Coverage:
    """All of them together."""
    whole = Coverage()
    for coverage in coverages:
        whole.merge(coverage)
    return whole
