"""What is known of a stream: a model that takes some columns over time in each run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from utvm_deploy.base.errors import ModelError

#: The name of the metadata that a file of a stream has.
METADATA = "utvm_stream"
#: The name of the input that says how many of a run's columns are behind the recording's end.
END_INPUT = "columns behind the end"
_MOST = 2**31 - 1


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
    # Columns behind the end of a recording until its last answer; -1 if no input says the end.
    behind: int = -1

    @classmethod
    def of_json(cls, text: str) -> StreamFacts:
        """What ``to_json`` wrote; ModelError for other texts."""
        try:
            found = json.loads(text)
            made = cls(**{name: found[name] for name in cls.__dataclass_fields__ if name in found})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"its metadata {METADATA} is damaged: {error}") from error
        for name, value in vars(made).items():
            least = 1 if name in ("hop", "window", "runs") else -_MOST
            if type(value) is not int or not least <= value <= _MOST:
                raise ModelError(f"its metadata {METADATA} is damaged: {name} is {value!r:.40}")
        return made

    def to_json(self) -> str:
        """As the file holds it."""
        return json.dumps(asdict(self))

    @property
    def ends(self) -> bool:
        """Whether an input says where a recording ends."""
        return self.behind >= 0

    @property
    def manual(self) -> tuple[str, ...]:
        """For the caller of the C, in lines."""
        late = f"late by {_columns(self.delay)}" if self.delay else "not late"
        return (
            f"A stream: each run takes the next {_columns(self.hop)} of the input's",
            f"axis {self.axis}. Answers are {late}; the first whole one is",
            f"that of run {self.runs} after a reset.",
            *self._end,
        )

    @property
    def _end(self) -> tuple[str, ...]:
        """What the caller gives at the end of a recording, in lines."""
        if not self.ends:
            return ()
        return (
            "Input 1 is how many of these columns are behind the end of the recording: 0",
            "before it. Write it before each run. The last answer needs",
            f"{_columns(self.behind)} behind it, of any value.",
        )

    def beside(self, figures: Mapping[str, tuple[int | None, int | None]]) -> str:
        """Figures of a hop and of the whole window, in one line."""
        told = ", ".join(
            f"{hop:,} of {window:,} {what} ({100 * hop / max(window, 1):.1f} %)"
            for what, (hop, window) in figures.items()
            if hop is not None and window is not None
        )
        return f"a hop and the whole window: {told}"

    @property
    def text(self) -> str:
        """One line for the user."""
        delay = f"a delay of {_columns(self.delay)}" if self.delay else "no delay"
        what = "one answer" if self.answers == 1 else f"{self.answers} answers"
        told = (
            f"stream: a run takes {_columns(self.hop)} of {self.window} along axis {self.axis} and "
            f"gives {what}, with {delay}; the first whole one is that of run {self.runs}"
        )
        if self.behind > 0:
            told += f"; {_columns(self.behind)} behind the end of a recording give its last answers"
        return f"{told}; {self.difference}" if self.padded else told

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
