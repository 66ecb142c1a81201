"""Columns of a tensor over time, as a stream makes them.

Column ``j`` of run ``r`` is position ``r * columns + j - delay`` of the network that runs once over
the whole recording. Running numbers below ``first`` come before the recording: there, that network
has padding or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flow:
    """The time axis of one tensor."""

    axis: int
    unit: int  # elements of the axis that are one column
    columns: int  # of a run
    stride: int  # columns of the input for one of these
    window: int  # columns in the file
    delay: int = 0
    pads: int = 0  # positions from 0 on that PAD put before the columns
    padded: float | None = None  # their value

    @property
    def first(self) -> int:
        """The running number of the first column that is not padding."""
        return self.delay + self.pads

    @property
    def extent(self) -> int:
        """Of the axis, in a run."""
        return self.columns * self.unit
