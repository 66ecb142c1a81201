"""Of what a CONCATENATION consists, so that who takes a part of it reads this part alone.

A loop that fills a list writes the whole list again in every step: the rows before, a new one, and
the rows after it. Unrolled, only one CONCATENATION of all rows is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from utvm_deploy.frontend.flat_model import FlatModel, FlatOperator, frozen, is_empty
from utvm_deploy.graph.attributes import Rearrange
from utvm_deploy.graph.constant_folding import rearranged
from utvm_deploy.graph.model import Tensor

#: Elements of a constant that is moved now, not on every run.
_MOST_ELEMENTS = 1 << 18


@dataclass
class JoinedParts:
    """The parts of each concatenation of a model."""

    model: FlatModel
    _known: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def flattened(self, parts: Sequence[int], axis: int) -> list[int]:
        """What a concatenation of these consists of, without empty ones and other concatenations.

        At least one of them stays.
        """
        found: list[int] = []
        like = self.model.tensor(parts[0]).quantization
        for part in parts:
            inner, known = self._known.get(part, (axis, (part,)))
            is_alike = all(self.model.tensor(one).quantization == like for one in known)
            found += known if inner == axis and is_alike else (part,)
        self.model.spend(*(self.model.tensor(one) for one in found))
        return [one for one in found if not is_empty(self.model.tensor(one))] or list(parts[:1])

    def keep(self, number: int, axis: int, parts: Sequence[int]) -> None:
        """Note of what a tensor consists."""
        self._known[number] = (axis, tuple(parts))

    def taken(self, source: int, a: Rearrange, out: Tensor) -> int | None:
        """The tensor that holds what is taken of another one; None where an operator must take it.

        ``out`` is what the file says of the result.
        """
        tensor = self.model.tensor(source)
        if a.view != tensor.shape or out.quantization != tensor.quantization:
            return None
        if tensor.data is not None:
            if math.prod(a.shape) > _MOST_ELEMENTS:
                return None
            self.model.spend(replace(out, shape=(math.prod(a.shape),)))
            return self.model.like(source, out.name, a.shape, frozen(rearranged(tensor.data, a)))
        if source not in self._known or a.order != tuple(range(len(a.order))):
            return None
        axis, _ = self._known[source]
        if any(
            positions != tuple(range(extent))
            for one, (positions, extent) in enumerate(zip(a.indices, a.view, strict=True))
            if one != axis
        ):
            return None
        pieces = self._pieces(source, a.indices[axis], out.name)
        return None if pieces is None else self._shaped(self.joined(pieces, axis, out), a, out)

    def joined(self, parts: Sequence[int], axis: int, out: Tensor) -> int:
        """A tensor that consists of these."""
        if len(parts) == 1:
            return parts[0]
        shape = list(self.model.tensor(parts[0]).shape)
        shape[axis] = sum(self.model.tensor(part).shape[axis] for part in parts)
        made = self.model.like(parts[0], out.name, shape)
        options = ("ConcatenationOptions", {"Axis": axis})
        self.model.emit(FlatOperator("CONCATENATION", tuple(parts), (made,), options=options))
        self.keep(made, axis, parts)
        return made

    def _pieces(self, source: int, positions: Sequence[int], name: str) -> list[int] | None:
        """The parts that are at these positions; None where one is computed and cut."""
        axis, parts = self._known[source]
        ends = np.cumsum([self.model.tensor(part).shape[axis] for part in parts])
        starts = [0, *ends[:-1].tolist()]
        found: list[int] = []
        at = 0
        while at < len(positions):
            which = int(np.searchsorted(ends, positions[at], side="right"))
            part, first = parts[which], positions[at] - starts[which]
            tensor = self.model.tensor(part)
            run = _run(positions[at:], tensor.shape[axis] - first)
            if (first, run) != (0, tensor.shape[axis]):
                if tensor.data is None:
                    return None
                cut = np.take(tensor.data, range(first, first + run), axis=axis)
                part = self.model.like(part, name, cut.shape, frozen(cut))
            found.append(part)
            at += run
        return found

    def _shaped(self, number: int, a: Rearrange, out: Tensor) -> int:
        if self.model.tensor(number).shape == a.shape:
            return number
        made = self.model.like(number, out.name, a.shape)
        shape = self.model.constant(f"{out.name} (shape)", np.array(a.shape, np.int32))
        self.model.emit(FlatOperator("RESHAPE", (number, shape), (made,)))
        return made


def _run(positions: Sequence[int], most: int) -> int:
    """How many of the first positions follow each other."""
    count = 1
    while count < min(most, len(positions)) and positions[count] == positions[0] + count:
        count += 1
    return count
