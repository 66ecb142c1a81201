"""A model that takes its input row by row, as a shared object in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
from host_model import GUARD, HostModel

from utvm_deploy.compiler.compiled.model import InputRows
from utvm_deploy.graph.model import Array


class PushedModel(HostModel):
    """The model with one arena of its own; ``push`` is ``NAME_push_rows``."""

    def prepare(self) -> None:
        """Make the arena, and reset it."""
        self.arena, self._address, self._guards = self._arena(())
        getattr(self._library, f"{self.compiled.name}_reset")(ctypes.c_void_p(self._address))

    def push(self, rows: Array | None, count: int) -> int:
        """The status of a call; None gives a null pointer."""
        address = ctypes.c_void_p(None if rows is None else rows.ctypes.data)
        function = getattr(self._library, f"{self.compiled.name}_push_rows")
        status = function(ctypes.c_void_p(self._address), address, ctypes.c_uint32(count))
        assert (self._guards == GUARD).all(), "wrote outside the arena"
        return int(status)

    def push_image(self, image: Array, most: int) -> list[Array]:
        """The outputs, after ``most`` rows at a time; each call tells how many are missing."""
        missing = facts_of(self).count
        for rows, count in rows_of(image, facts_of(self), most):
            missing -= count
            assert self.push(rows, count) == missing
        return [self._read(self.arena, buffer) for buffer in self.compiled.outputs]


def facts_of(model: HostModel) -> InputRows:
    facts = model.compiled.input_rows
    assert facts is not None
    return facts


def rows_of(image: Array, facts: InputRows, most: int) -> Iterator[tuple[Array, int]]:
    """Copies of the rows in groups, so that a read behind them is one of another object."""
    data = np.ascontiguousarray(image).view(np.uint8).reshape(facts.count, facts.row_bytes)
    for at in range(0, facts.count, most):
        group = data[at : at + most].copy()
        yield group, len(group)
