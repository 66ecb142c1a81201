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
    after: int = 0  # positions that PAD put behind the columns; known where a stream ends
    padded: float | None = None  # their value
    # Of a recording with N columns of the input, position p is one of a column, not of the padding,
    # if p * stride < N - lost.
    lost: int = 0

    @property
    def first(self) -> int:
        """The running number of the first column that is not padding."""
        return self.delay + self.pads

    @property
    def behind(self) -> int:
        """Columns of the input, behind a recording's end, until the last one is there."""
        return self.delay * self.stride - self.own

    @property
    def own(self) -> int:
        """Like ``lost``, where the positions that PAD made count."""
        return self.lost - (self.pads + self.after) * self.stride

    @property
    def extent(self) -> int:
        """Of the axis, in a run."""
        return self.columns * self.unit
