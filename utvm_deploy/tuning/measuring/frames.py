"""Frames between a process that measures and the one that started it, over its pipes.

Requests are (number, message) and answers are (number, kind, message). A message of kind ``FAILED``
is a sentence, all others are what ``messages.packed`` made.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import IO

#: The number of the first request and of its answer; batches have larger numbers.
OPEN = 0
DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class Opening:
    """The first request: what to measure, and where."""

    session: bytes
    jobs: int  # compilers at the same time
    serial: str | None = None  # which of several boards
    models: bytes = b""  # if not empty, the only thing to do


def write_frame(stream: IO[bytes], *content: object) -> None:
    """Write one frame; the caller sees to it that no other thread writes."""
    pickle.dump(content, stream)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[object, ...]:
    """The next frame; EOFError at the end of the stream."""
    try:
        frame: tuple[object, ...] = pickle.load(stream)
    except (pickle.UnpicklingError, OSError, ValueError) as error:
        raise EOFError("the stream was cut") from error
    return frame
