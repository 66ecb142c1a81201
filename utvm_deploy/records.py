"""Records: what was measured, one JSON object a line in a file that only ever grows.

    kernel + setting (core, compiler, version, unit of ticks) + candidate  ->  measurement

``tune`` writes them (``tune/records_file.py``), the compiler reads them. Unknown fields, of later
versions, are ignored. What a candidate means is the matter of ``kernels``.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from utvm_deploy.candidate import Candidate
from utvm_deploy.errors import RecordsError
from utvm_deploy.files import check_regular

log = logging.getLogger(__name__)

#: Of a line; a reader skips lines of a later one.
SCHEMA = 1

#: Why a candidate has no ticks.
ERRORS = ("wrong output", "hung", "crash", "compile error", "no room")

#: Units of ticks, most telling first. Ticks of different units are never compared.
UNITS = ("cycles", "modelled cycles", "nanoseconds", "instructions")

#: Where a compiled layer's candidate came from.
RECORD, NEAREST, DEFAULT = ORIGINS = ("record", "nearest record", "default")

#: Shapes this far apart (the sum of the ratios of their extents, in powers of two) say nothing
#: about each other.
FARTHEST = 8.0
#: So many of the nearest shapes say together what to take, nearer ones with more weight, if it
#: beats their defaults by this share; of each only what is this near to its best. Of 73 tuned
#: kernels of a Cortex-M7, each compiled by the others' records, 18 became faster and none slower
#: (benchmarks/tune/leave_one_out.py).
NEIGHBOURS = 3
DISTANCE_OF_HALF = 0.5
NEIGHBOUR_GAIN = 0.01
NEIGHBOUR_LOSS = 0.03
#: What a candidate may be slower by for the sake of less scratch.
SCRATCH_LOSS = 0.01


@dataclass(frozen=True)
class KernelIdentity:
    """What was tuned: an operator's kernel for one shape, whichever way it is computed."""

    name: str  # the generic kernel's, such as "conv2d_3x3_s1x1_p1x1_32x32_32x32_3x16"
    dtype: str  # of its first input
    operator: str  # TFLite's kind
    # Its extents and properties by name, for finding similar ones.
    shape: tuple[tuple[str, int], ...]
    macs: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """What equal kernels share."""
        return f"{self.name}:{self.dtype}"

    def distance(self, other: KernelIdentity) -> float:
        """How different two shapes are: 0 for equal ones, infinite for different operators."""
        mine, theirs = dict(self.shape), dict(other.shape)
        same_kind = self.operator == other.operator and self.dtype == other.dtype
        if not same_kind or mine.keys() != theirs.keys():
            return math.inf
        return sum(abs(math.log2((abs(mine[name]) + 1) / (abs(theirs[name]) + 1))) for name in mine)


@dataclass(frozen=True)
class Setting:
    """Under which circumstances ticks compare."""

    core: str
    compiler: str  # what it says of itself
    flags: str
    utvm: str  # version
    unit: str

    @property
    def level(self) -> str:
        """How the C compiler optimized: of several flags the last counts."""
        return next((f for f in reversed(self.flags.split()) if f.startswith("-O")), "")


@dataclass(frozen=True)
class Measurement:
    """Ticks, or the error that the candidate met."""

    ticks_min: int = 0
    ticks_median: float = 0.0
    error: str = ""  # one of ERRORS; empty if the ticks count
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether its ticks count."""
        return not self.error

    def to_json(self) -> dict[str, Any]:
        """As a line has it."""
        if self.error:
            return {"error": self.error, "detail": self.detail}
        return {"min": self.ticks_min, "median": self.ticks_median}


@dataclass(frozen=True)
class Record:
    """One line."""

    kernel: KernelIdentity
    setting: Setting
    candidate: Candidate
    measurement: Measurement
    board: str = ""
    # Whether this is what the best family chooses by itself.
    is_default: bool = False
    code: str = ""  # of the family's kernels, see kernels.code_version; empty if nobody knows
    code_bytes: int = 0  # 0 likewise
    scratch_bytes: int = 0
    time: str = field(default="", compare=False)  # ISO 8601, UTC

    def to_line(self) -> str:
        """One JSON object, without line break."""
        value = {
            "schema": SCHEMA,
            "kernel": self.kernel.name,
            "dtype": self.kernel.dtype,
            "operator": self.kernel.operator,
            "shape": dict(self.kernel.shape),
            "macs": self.kernel.macs,
            **{name: getattr(self.setting, name) for name in Setting.__dataclass_fields__},
            "candidate": self.candidate.to_json(),
            "measurement": self.measurement.to_json(),
            "board": self.board,
            "default": self.is_default,
            "code": self.code,
            "code_bytes": self.code_bytes,
            "scratch_bytes": self.scratch_bytes,
            "time": self.time,
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        """What ``to_line`` wrote; ValueError says what is wrong."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            # The decoder's own words guess at encodings that nobody meant.
            raise ValueError("it is no JSON") from None
        if not isinstance(value, dict):
            raise ValueError("a record is no object")
        schema = value.get("schema")
        if type(schema) is not int or schema > SCHEMA:
            raise ValueError(f"schema {schema!r} is not known here")
        shape = _mapping(value, "shape")
        if any(type(extent) is not int for extent in shape.values()):
            raise ValueError("shape has something else than whole numbers")
        kernel = KernelIdentity(
            _text(value, "kernel"),
            _text(value, "dtype"),
            _text(value, "operator"),
            shape=tuple(sorted(shape.items())),
            macs=int(value.get("macs", 0)),
        )
        setting = Setting(*(_text(value, name) for name in Setting.__dataclass_fields__))
        return cls(
            kernel,
            setting,
            Candidate.from_json(value.get("candidate")),
            _measurement(_mapping(value, "measurement")),
            str(value.get("board", "")),
            bool(value.get("default", False)),
            str(value.get("code", "")),
            _count(value, "code_bytes"),
            _count(value, "scratch_bytes"),
            str(value.get("time", "")),
        )


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is no text")
    return found


def _count(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name, 0)
    if type(found) is not int or found < 0:
        raise ValueError(f"{name} is no whole number from 0")
    return found


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no object")
    return found


def _measurement(value: Mapping[str, Any]) -> Measurement:
    if "error" in value:
        return Measurement(error=_text(value, "error"), detail=str(value.get("detail", "")))
    smallest, median = value.get("min"), value.get("median")
    if type(smallest) is not int or type(median) not in (int, float) or smallest < 0:
        raise ValueError("measurement has neither ticks nor an error")
    assert isinstance(median, int | float)
    return Measurement(smallest, float(median))


def now() -> str:
    """The time as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Records:
    """Records in memory, by kernel; what they say about compiling.

    ``codes`` has the code of each family's kernels now: records of another are of older kernels.
    """

    def __init__(
        self, records: Iterable[Record] = (), codes: Mapping[str, str] | None = None
    ) -> None:
        self._codes = codes or {}
        self._all: list[Record] = []
        self._by_kernel: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            self.add(record)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._all)

    def add(self, record: Record) -> None:
        """One more."""
        self._all.append(record)
        key = record.setting.core, record.kernel.key
        self._by_kernel.setdefault(key, []).append(record)

    def of(self, kernel: KernelIdentity, setting: Setting) -> list[Record]:
        """Of just this kernel as it is now, measured under just these circumstances."""
        found = self._by_kernel.get((setting.core, kernel.key), [])
        return [r for r in found if r.setting == setting and self._is_current(r)]

    def choices(
        self,
        kernel: KernelIdentity,
        core: str,
        near: Setting | None = None,
        most_scratch: int | None = None,
    ) -> Iterator[tuple[Candidate, str]]:
        """Candidates to compile ``kernel`` with, best first, each with its origin.

        Records of the kernel itself come first, those of the optimization level, compiler and
        version in ``near`` before others; then what won for the nearest shapes. What older kernels
        of the same shape took counts as near, where none of today's were measured. Of its own
        those with more than ``most_scratch`` bytes of scratch come last.
        """
        ranked, origin = self.ranked(core, kernel.key, near)
        most = math.inf if most_scratch is None else most_scratch
        fitting = [record for record in ranked if record.scratch_bytes <= most]
        others = [record for record in ranked if record.scratch_bytes > most]
        for record in (*frugal(fitting), *others):
            yield record.candidate, origin
        for candidate in self._of_neighbours(kernel, core, near):
            yield candidate, NEAREST

    def _of_neighbours(
        self, kernel: KernelIdentity, core: str, near: Setting | None
    ) -> list[Candidate]:
        """What gains most over the default in the nearest shapes together, best first."""
        others = [
            (kernel.distance(some[0].kernel), key)
            for (other_core, key), some in self._by_kernel.items()
            if other_core == core and key != kernel.key
        ]
        gains: dict[Candidate, float] = {}
        weights: list[float] = []
        for distance, key in sorted(one for one in others if one[0] <= FARTHEST):
            ranked, _ = self.ranked(core, key, near)
            default = next((r.measurement.ticks_min for r in ranked if r.is_default), 0)
            if not default:
                continue
            weights.append(1 / (DISTANCE_OF_HALF + distance))
            # What was not measured there, or not kept, counts as no better than the default.
            most = ranked[0].measurement.ticks_min * (1 + NEIGHBOUR_LOSS)
            for candidate, ticks in {r.candidate: r.measurement.ticks_min for r in ranked}.items():
                gain = math.log(default / max(ticks, 1))
                gain = gain if ticks <= most else min(gain, 0.0)
                gains[candidate] = gains.get(candidate, 0.0) + weights[-1] * gain
            if len(weights) == NEIGHBOURS:
                break
        least = NEIGHBOUR_GAIN * sum(weights)
        found = [(-gain, one.label, one) for one, gain in gains.items() if gain >= least]
        return [candidate for _, _, candidate in sorted(found, key=lambda one: one[:2])]

    def ranked(self, core: str, key: str, near: Setting | None = None) -> tuple[list[Record], str]:
        """A kernel's own of the most telling setting, fastest first, and their origin."""
        groups: dict[tuple[Setting, bool], list[Record]] = {}
        for record in self._by_kernel.get((core, key), ()):
            if record.measurement.is_ok:
                groups.setdefault((record.setting, False), []).append(record)
        for (setting, _), some in list(groups.items()):
            current = [record for record in some if self._is_current(record)]
            # Candidates compare where the default is among them, which is measured first.
            if len(current) == len(some) or any(record.is_default for record in current):
                groups[setting, True] = current
        if not groups:
            return [], RECORD

        def rank(group: tuple[Setting, bool]) -> tuple[bool, bool, bool, bool, int, int]:
            setting, is_current = group
            return (
                not is_current,
                near is None or setting.level != near.level,
                near is None or setting.utvm != near.utvm,
                near is None or setting.compiler != near.compiler,
                UNITS.index(setting.unit) if setting.unit in UNITS else len(UNITS),
                -len(groups[group]),
            )

        best = min(groups, key=rank)
        found = sorted(groups[best], key=lambda r: r.measurement.ticks_min)
        return found, RECORD if best[1] else NEAREST

    def _is_current(self, record: Record) -> bool:
        family = record.candidate.family
        return record.code == self._codes.get(family, record.code)


def frugal(ranked: Sequence[Record]) -> list[Record]:
    """The same, but of those about as fast as the fastest the one with the least scratch first."""
    if not ranked:
        return []
    most = ranked[0].measurement.ticks_min * (1 + SCRATCH_LOSS)
    alike = [record for record in ranked if record.measurement.ticks_min <= most]
    # Sizes are known of what was measured since they are kept.
    if all(record.code_bytes for record in alike):
        alike.sort(key=lambda record: record.scratch_bytes)
    return [*alike, *ranked[len(alike) :]]


def read_records(path: Path) -> Records:
    """Every readable record of a file; a last line that was cut is left out."""
    try:
        check_regular(path)
        data = path.read_bytes()
    except FileNotFoundError:
        raise RecordsError(
            f"there is no records file {path}; `utvm tune MODEL --board B --trials N "
            f"--records {path}` makes it"
        ) from None
    except OSError as error:
        raise RecordsError(
            f"records file {path} cannot be read: {error.strerror}; give the one that `utvm tune` "
            "wrote"
        ) from error
    return Records(parsed(path, data))


def parsed(path: Path, data: bytes) -> Iterator[Record]:
    """Of a file's bytes; RecordsError if they hold something else than records."""
    lines = data.split(b"\n")
    found = skipped = 0
    first_reason = ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = Record.from_line(line)
        except ValueError as error:
            if number == len(lines):
                continue  # cut by the end of the process that wrote it
            skipped += 1
            first_reason = first_reason or f"line {number}: {error}"
            continue
        found += 1
        yield record
    if skipped and not found:
        raise RecordsError(
            f"{path} is no records file ({first_reason}); give the one that `utvm tune` wrote"
        )
    if skipped:
        log.warning("%s: %d lines are skipped, first %s", path, skipped, first_reason)
