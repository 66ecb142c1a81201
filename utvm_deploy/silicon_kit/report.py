"""The file that a volunteer sends: what is in it, and its strict reader.

A report comes from somebody else's computer, so every field is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_regular, write_text
from utvm_deploy.silicon_kit.checked_json import NotAsDeclared, decode

SCHEMA = "utvm.silicon/1"

#: A report of a hundred models has some megabytes.
MOST_FILE_BYTES = 64 * 1024 * 1024

#: States of a model.
EQUAL, DIFFERS, FAILED = "equal", "differs", "failed"


@dataclass(frozen=True)
class Versions:
    """What made the report."""

    utvm: str
    tvm: str
    litert: str  # the reference that outputs are compared with
    compiler: str
    system: str
    python: str


@dataclass(frozen=True)
class BoardUsed:
    """What was measured; no serial number of it."""

    name: str
    core: str
    clock_hz: int
    facts_sha256: str  # over the checked board file: equal facts, equal digest
    template: str
    is_silicon: bool  # false: an emulated board, or this computer
    probe: str
    usb: tuple[str, ...]  # vendor:product of what is plugged in and fits
    link: str


@dataclass(frozen=True)
class Modelling:
    """Where modelled cycles come from.

    ``why`` says why there are none (``board`` is None), or what a twin has of the board.
    """

    board: str | None
    cycle_model: str  # its digest
    emulator: str
    why: str = ""


@dataclass(frozen=True)
class Timing:
    """What a tick is, as the board said."""

    unit: str
    per_second: int
    source: str


@dataclass(frozen=True)
class Setup:
    """All that must be equal for a later run to add to a report."""

    versions: Versions
    board: BoardUsed
    modelling: Modelling


@dataclass(frozen=True)
class LayerResult:
    """One layer."""

    index: int
    operator: str
    name: str
    engine: str
    macs: int
    is_compared: bool  # false where the model file has no such tensor
    differs: bool
    ticks: int | None = None
    modelled: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelResult:
    """One model; of one that failed, what was found until then."""

    file: str
    sha256: str
    state: str  # EQUAL, DIFFERS or FAILED
    error: str = ""
    macs: int = 0
    samples: int = 0
    output_bytes: int = 0  # compared, over all samples
    layer_bytes: int = 0
    runs: int = 0
    ticks: int | None = None  # the whole model, the fastest run
    ticks_median: float | None = None
    modelled: Mapping[str, int] = field(default_factory=dict)
    modelled_why: str = ""  # why there are no modelled cycles, if there are none
    layers: tuple[LayerResult, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """One micro-benchmark: cycles for one repetition of its sequence."""

    name: str
    sequence: str
    setup: str
    figure: str  # of the cycle model
    ticks: float | None
    modelled: float | None
    published: float
    source: str
    error: str = ""


@dataclass(frozen=True)
class Report:
    """The whole file."""

    setup: Setup
    timing: Timing | None = None
    models: tuple[ModelResult, ...] = ()
    micro_benchmarks: tuple[CaseResult, ...] = ()
    # Empty if all that was asked for was done; else why not.
    unfinished: str = ""

    @property
    def is_good(self) -> bool:
        """Whether all was done and every output is equal to the reference's."""
        return (
            not self.unfinished
            and all(model.state == EQUAL for model in self.models)
            and not any(case.error for case in self.micro_benchmarks)
        )

    def as_json(self) -> dict[str, Any]:
        """For the file, without its schema."""
        return asdict(self)


def write_report(path: Path, report: Report) -> None:
    """Replace the file as a whole."""
    write_text(path, json.dumps({"schema": SCHEMA, **report.as_json()}, indent=1) + "\n")


def read_report(path: Path) -> Report:
    """Read and check a report; UtvmError with what is wrong."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise UtvmError(
            f"cannot read {path}: {error.strerror or error}; give a file that utvm silicon wrote"
        ) from error
    if len(data) > MOST_FILE_BYTES:
        raise UtvmError(
            f"{path} has more than {MOST_FILE_BYTES:,} bytes; no report of utvm silicon is so large"
        )
    try:
        raw = json.loads(data)
        schema = raw.pop("schema", None) if isinstance(raw, dict) else None
        if schema != SCHEMA:
            raise NotAsDeclared(f"its schema is {str(schema)[:40]!r}, not {SCHEMA!r}")
        return decode(raw, Report, "")
    except (ValueError, RecursionError) as error:  # NotAsDeclared is a ValueError
        raise UtvmError(
            f"{path} is not a report of utvm silicon of this version: {error}; make it again with "
            "utvm silicon"
        ) from error
