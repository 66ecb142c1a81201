"""Columns of a tensor over time, as a stream makes them, and what is said of a whole stream.

Column ``j`` of run ``r`` is position ``r * columns + j - delay`` of the network that runs once over
the whole recording. Running numbers below ``first`` come before the recording: there, that network
has padding or nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from utvm_deploy.base.errors import ModelError

#: The name of the metadata that a file of a stream has.
METADATA = "utvm_stream"


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
        """The running number of the first column that is no padding."""
        return self.delay + self.pads

    @property
    def extent(self) -> int:
        """Of the axis, in a run."""
        return self.columns * self.unit


@dataclass(frozen=True)
class StreamFacts:
    """What the user has to know of a stream. Columns are those of the input."""

    hop: int  # columns that a run takes
    axis: int  # of the input
    window: int  # columns of the input in the file
    delay: int  # columns that it waits for, where a window is padded at its end
    # Run r gives positions of the network over the whole recording from r * hop - shift on.
    shift: int
    runs: int  # the first whole answer is that of this run
    answers: int  # of a run: 1 behind a pool over time
    padded: int  # operators that pad each window along time
    states: int  # bytes

    @classmethod
    def of_json(cls, text: str) -> StreamFacts:
        """What ``to_json`` wrote; ModelError for other texts."""
        try:
            found = json.loads(text)
            return cls(**{name: int(found[name]) for name in cls.__dataclass_fields__})
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"its metadata {METADATA} is damaged: {error}") from error

    def to_json(self) -> str:
        """As the file holds it."""
        return json.dumps(asdict(self))

    @property
    def text(self) -> str:
        """One line for the user."""
        delay = f"a delay of {_columns(self.delay)}" if self.delay else "no delay"
        what = "one answer" if self.answers == 1 else f"{self.answers} answers"
        return (
            f"stream: a run takes {_columns(self.hop)} of {self.window} along axis {self.axis} and "
            f"gives {what}, with {delay}; the first whole one is that of run {self.runs}; "
            f"{self.states:,} bytes of state"
        )

    @property
    def difference(self) -> str:
        """How it differs from separate windows; empty if it does not."""
        if not self.padded:
            return ""
        layers = "1 operator pads" if self.padded == 1 else f"{self.padded} operators pad"
        return (
            f"{layers} each window along time, where a stream reads the recording itself: its "
            "answers differ from those of separate windows; utvm eval shows the accuracy of both"
        )


def _columns(count: int) -> str:
    return f"{count} column" if count == 1 else f"{count} columns"
