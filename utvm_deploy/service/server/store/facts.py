"""Facts that the server keeps: models, jobs and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QUEUED, RUNNING, DONE, FAILED, CANCELED = STATES = (
    "queued",
    "running",
    "done",
    "failed",
    "canceled",
)
#: What the name of a file of data ends with; all other uploads are models.
DATA_ENDING = ".npz"
#: States in which nothing happens any more.
ENDED = (DONE, FAILED, CANCELED)


@dataclass(frozen=True)
class TensorSummary:
    """An input or output of a model."""

    name: str  # shortened, if it is long
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelFacts:
    """What a model holds, in a few figures."""

    operators: int
    kinds: Mapping[str, int]  # operators of each kind
    macs: int
    weights_bytes: int
    peak_activation_bytes: int
    #: The first of each; files with thousands are possible.
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]


@dataclass(frozen=True)
class Model:
    """A file that somebody uploaded: a model, or data for it."""

    sha256: str
    name: str  # the file's name, such as "kws.tflite"
    size: int  # bytes
    uploaded: float  # seconds since 1970; of the latest upload
    facts: ModelFacts | None = None  # None of data, and if it was uploaded to an earlier version

    @property
    def is_data(self) -> bool:
        """Whether it is arrays, which an option of a job may name."""
        return self.name.endswith(DATA_ENDING)


@dataclass(frozen=True)
class ModelUse:
    """The jobs of a model."""

    jobs: int
    latest: float  # when the newest was created


@dataclass(frozen=True)
class JobFile:
    """A file that a job made, or that was made of a model."""

    name: str
    sha256: str
    size: int  # bytes


@dataclass(frozen=True)
class Progress:
    """What a job does, and how far it is."""

    what: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Job:
    """One verb on one board. Times are seconds since 1970; None before they are known."""

    key: str  # 12 hexadecimal digits
    verb: str
    board: str
    models: tuple[Model, ...]
    options: Mapping[str, Any]
    state: str
    created: float
    started: float | None = None
    finished: float | None = None
    attempt: int = 0  # how often it was started
    exit_code: int | None = None
    reason: str = ""  # one sentence: why it failed, was canceled or was started again
    worker: str = ""
    progress: Progress = field(default_factory=Progress)
    run: str = ""  # the key of its run in the store of runs
    #: Jobs that were started together have the same; a client may choose it. At most 100 signs.
    request: str = ""
    files: tuple[JobFile, ...] = ()

    @property
    def has_ended(self) -> bool:
        """Whether nothing happens any more."""
        return self.state in ENDED

    def file(self, name: str) -> JobFile | None:
        """Its file of that name."""
        return next((file for file in self.files if file.name == name), None)
