"""Options that a job may have: each becomes arguments of ``utvm``, or says how the job is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.facts import TIMINGS
from utvm_deploy.frontend.training.recipe import LOSSES, OPTIMIZERS
from utvm_deploy.service.server.store.facts import DATA_ENDING

#: The file of a tune job's records, and the one that other jobs compile by.
RECORDS, EARLIER_RECORDS = "records.jsonl", "earlier-records.jsonl"
#: The files of a train job: the weights after its last whole epoch, and its curves.
WEIGHTS, CURVES = "file.weights", "curve.html"
#: The name of a job's file that holds the verb's JSON object.
RESULT = "result.json"
#: Minutes after which a job is ended, if it does not say how many. A job that tunes for some time
#: has an hour more than that, in which it measures whole models.
DEFAULT_TIME_LIMIT = 6 * 60
_AFTER_TUNING = 60

#: The option of the command line that no job has: a plug-in is code.
PLUGIN = "plugin"
NO_PLUGIN = (
    "a server's job takes no plug-in, because a plug-in is code that would run with the server's "
    "rights; run the verb on your computer instead"
)

_DATA = f"a file of arrays ({DATA_ENDING}), or the SHA-256 of one that the server has"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_JOB_KEY = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Option:
    """An option that a job may have.

    It is one of several kinds: a flag, a choice, a file, a text that matches a pattern, or an
    integer in a range.
    """

    name: str  # "trials" becomes --trials
    help: str
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 0
    is_flag: bool = False
    #: A text must match this regular expression as a whole.
    pattern: str = ""
    #: The file has this name in the folder of the job. The value is the SHA-256 of a stored file.
    file: str = ""
    #: The value may also be the key of an earlier job, which made this file.
    member: str = ""
    #: Whether ``utvm`` has an option of this name. The others say how the job is run.
    is_argument: bool = True

    @property
    def kind(self) -> str:
        """``flag``, ``choice``, ``file``, ``text`` or ``integer``."""
        if self.is_flag:
            return "flag"
        if self.choices:
            return "choice"
        if self.file:
            return "file"
        return "text" if self.pattern else "integer"

    @property
    def takes_data(self) -> bool:
        """Whether the file may be one of data that somebody uploaded."""
        return self.file.endswith(DATA_ENDING)

    def check(self, value: object) -> None:
        """Raise UsageError, with what would be right, if this option cannot have this value."""
        if (problem := self._problem(value)) is not None:
            raise UsageError(f"{self.name}: {_shown(value)} is not {problem}")

    def arguments(self, value: object) -> list[str]:
        """Of the command line. Raises UsageError, with what would be right."""
        self.check(value)
        if not self.is_argument:
            return []
        if self.is_flag:
            return [f"--{self.name}"] if value else []
        # In one word, so that a value with a hyphen at the start is not taken for an option.
        return [f"--{self.name}={self.file or value}"]

    def _problem(self, value: object) -> str | None:
        """What the value should be, but is not."""
        match self.kind:
            case "flag":
                return None if isinstance(value, bool) else "true or false"
            case "choice":
                is_good = isinstance(value, str) and value in self.choices
                return None if is_good else f"one of {', '.join(self.choices)}"
            case "file":
                or_job = f", or the key of a job that made {self.member}" if self.member else ""
                is_good = names_a_file(value) or (bool(self.member) and names_a_job(value))
                return None if is_good else f"the SHA-256 of a stored file{or_job}"
            case "text":
                is_good = isinstance(value, str) and re.fullmatch(self.pattern, value) is not None
                return None if is_good else f"a text of the form {self.pattern}"
        if isinstance(value, bool) or not isinstance(value, int):
            return "an integer"
        is_good = self.least <= value <= self.most
        return None if is_good else f"from {self.least} to {self.most}"


def names_a_job(value: object) -> bool:
    """Whether a file option's value is the key of a job, and not a digest."""
    return isinstance(value, str) and _JOB_KEY.fullmatch(value) is not None


def names_a_file(value: object) -> bool:
    """Whether a file option's value is the digest of a stored file."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def time_limit_s(options: Mapping[str, Any]) -> float:
    """Seconds after which a job with these options is ended."""
    tuning = options.get(MINUTES.name, 0) + _AFTER_TUNING
    return 60.0 * float(options.get(TIME_LIMIT.name, max(DEFAULT_TIME_LIMIT, tuning)))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


OPTIMIZE = Option("optimize", "what to compile for", ("time", "balanced", "size", "ram"))
KERNELS = Option("kernels", "whose kernels", ("best", "generic", "cmsis-nn"))
TUNED_KERNELS = Option("kernels", "whose kernels are candidates", ("best", "cmsis-nn"))
SCRATCH = Option("scratch", "where layers keep their scratch", ("auto", "arena", "stack"))
RAM_BUDGET = Option(
    *("ram-budget", "the fastest plan whose arena has at most that many bytes"), least=1, most=2**32
)
FLASH_BUDGET = Option(
    *("flash-budget", "the fastest level with at most that many bytes of code and weights"),
    least=1,
    most=2**32,
)
CYCLE_BUDGET = Option(
    *("cycle-budget", "the smallest arena within that many cycles"), least=1, most=2**40
)
FLASH_RATE = Option(
    "flash-rate", "the cycles of a run that each byte of flash has to save", most=100_000
)
FLOAT_MATH = Option("float-math", "how float32 is rounded", ("exact", "fast"))
SHAPE = Option(
    *("shape", "the shape of the input, or of input X: X=1,64"),
    pattern=r"([A-Za-z_][\w./:-]{0,200}=)?\d{1,9}(,\d{1,9}){0,7}",
)
SIGNATURE = Option("signature", "which signature of the file", pattern=r"[A-Za-z_][\w.-]{0,200}")
INPUT = Option("input", "the image that the caller gives", pattern=r"[a-z0-9 .,=-]{1,200}")
STREAM = Option("stream", "a run takes some columns over time", is_flag=True)
HOP = Option("hop", "columns that a run of a stream takes", least=1, most=2**31 - 1)
TIME_AXIS = Option("time-axis", "the axis of the input that is time", least=1, most=7)
END_INPUT = Option("end-input", "a stream's input says where a recording ends", is_flag=True)
TRAINED = Option(
    *("weights", "a train job, or the SHA-256 of its weights: begin with what it learned"),
    file="earlier.weights",
    member=WEIGHTS,
)
NAME = Option("name", "prefix of every C symbol", pattern="[A-Za-z][A-Za-z0-9_]{0,62}")
EARLIER = Option(
    *("records", "a tune job, or the SHA-256 of its records: compile by what it measured"),
    file=EARLIER_RECORDS,
    member=RECORDS,
)
START_RECORDS = Option(
    *("records", "a tune job, or the SHA-256 of its records: continue from there"),
    file=RECORDS,
    member=RECORDS,
    is_argument=False,
)
SAMPLES = Option("samples", "random samples", least=1, most=1000)
GOLDEN = Option("golden", f"samples with recorded outputs: {_DATA}", file="golden.npz")
DATA = Option("data", f"labelled samples: {_DATA}", file="data.npz")
HELD_OUT = Option("held-out", f"samples that judge each epoch: {_DATA}", file="held-out.npz")
LAYERS = Option(
    *("layers", "what trains: last, all, or positions and names"), pattern=r"[\w./:;,-]{1,200}"
)
LOSS = Option("loss", "of labels, or of targets", LOSSES)
OPTIMIZER = Option("optimizer", "as PyTorch has them", OPTIMIZERS)
RATE = Option("rate", "the learning rate", pattern=r"\d{1,9}(\.\d{0,20})?(e[+-]?\d{1,2})?")
EPOCHS = Option("epochs", "how often all samples are taken", least=1, most=10_000)
TEMPLATE = Option(
    *("template", "what the image is made from"), choices=("host", "baremetal", "zephyr", "esp-idf")
)
LINK = Option("link", "how the board is reached", ("monitor", "debug", "monitor+debug"))
TRIALS = Option("trials", "candidates in all", least=1, most=1_000_000)
MINUTES = Option("minutes", "stop after this time", least=1, most=10_000)
SEED = Option("seed", "of the search, or of the order of samples", least=0, most=2**31 - 1)
HOT = Option("hot", "list this many of the hottest blocks of code", least=1, most=1000)
BASELINE = Option(
    *("baseline", "an earlier job, or the SHA-256 of its result: fail where this one is slower"),
    file="baseline.json",
    member=RESULT,
)
FAIL_OVER = Option("fail-over", "percent that a layer may grow", least=0, most=1000)
MAX_RAM = Option("max-ram", "fail if the model takes more bytes of RAM", least=1, most=2**32)
MAX_FLASH = Option("max-flash", "fail if its image takes more bytes of flash", least=1, most=2**32)
TIMING = Option("timing", "what an emulated board with a cycle model counts", TIMINGS)
FORMAT = Option(
    *("format", "of the bundle"),
    (
        *("cmake", "arduino", "cmsis-pack", "esp-idf", "mlperf-tiny", "platformio", "rust", "wasm"),
        "zephyr",
    ),
)
BENCHMARK = Option(
    *("benchmark", "of MLPerf Tiny, for a bundle of that format"),
    ("ad01", "ic01", "kws01", "vww01"),
)
NO_LATENCY = Option("no-latency", "leave the latency report out", is_flag=True)
TIME_LIMIT = Option(
    *("time-limit", f"minutes after which the job is ended; default {DEFAULT_TIME_LIMIT}"),
    least=1,
    most=7 * 24 * 60,
    is_argument=False,
)
