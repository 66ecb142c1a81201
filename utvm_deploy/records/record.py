"""One measurement of one kernel, and its line in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

from utvm_deploy.base.results import picked
from utvm_deploy.records import fields
from utvm_deploy.records.candidate import Candidate

#: Of a line; a reader skips lines of other ones.
SCHEMA = 1
#: Of a line that names the type of the weights. Versions before 0.4.0 skip it.
WEIGHTS_SCHEMA = 3

#: Types of weights that no line names: int8 in kernels of integers, float32 in those of float32.
#: Records of version 0.3.0 are of these.
USUAL_WEIGHTS = ("int8", "float32")

#: Why a candidate has no ticks.
ERRORS = ("wrong output", "hung", "crash", "compile error", "no room", "slower in its model")
#: A backend's call takes longer between other layers than what computes them without it.
SLOWER = ERRORS[-1]

#: Units of ticks, most telling first. Ticks of different units are never compared.
UNITS = ("cycles", "modelled cycles", "nanoseconds", "instructions")
_MODELLED = "modelled "

#: What says under which circumstances ticks were measured, all of them text.
SETTING_FIELDS = ("core", "compiler", "flags", "utvm", "unit", "model")


def is_modelled(unit: str) -> bool:
    """Whether ticks of this unit come from a cycle model."""
    return unit.startswith(_MODELLED)


@dataclass(frozen=True)
class KernelIdentity:
    """What was tuned: an operator's kernel for one shape, whichever way it is computed."""

    name: str  # the generic kernel's, such as "conv2d_3x3_s1x1_p1x1_32x32_32x32_3x16"
    dtype: str  # of its first input
    operator: str  # TFLite's kind
    # Its extents and properties by name, for finding similar ones.
    shape: tuple[tuple[str, int], ...]
    macs: int = field(default=0, compare=False)
    weights: str = ""  # their element type, unless it is one of USUAL_WEIGHTS

    @property
    def key(self) -> str:
        """What equal kernels share."""
        return ":".join((self.name, self.dtype, *filter(None, [self.weights])))

    def distance(self, other: KernelIdentity) -> float:
        """How different two shapes are: 0 for equal ones, infinite for different operators.

        Kernels without a shape, such as a PrimFunc of TVM's, are like no other.
        """
        if self.likeness != other.likeness:
            return math.inf
        pairs = zip(self.extents, other.extents, strict=True)
        return sum([abs(math.log2(mine / theirs)) for mine, theirs in pairs])

    @cached_property
    def likeness(self) -> tuple[object, ...]:
        """Kernels for which this is equal have a distance."""
        names = tuple(sorted(name for name, _ in self.shape)) or self.name
        return self.operator, self.dtype, self.weights, names

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """In the order of their names: absolute values plus one, so that each has a logarithm."""
        return tuple(abs(extent) + 1 for _, extent in sorted(self.shape))


@dataclass(frozen=True)
class Scale:
    """Ticks compare with each other where this is equal."""

    unit: str
    model: str
    optimization_flag: str


@dataclass(frozen=True)
class Setting:
    """Under which circumstances ticks were measured."""

    core: str
    compiler: str  # its version text
    flags: str
    utvm: str  # version
    unit: str
    # Digest of the cycle model that made modelled ticks. Empty if ticks are not modelled. Records
    # of versions before 0.2.0 do not name their model, so it is empty there, too.
    model: str = ""

    @property
    def optimization_flag(self) -> str:
        """How the C compiler optimized: of several flags the last counts."""
        return next((f for f in reversed(self.flags.split()) if f.startswith("-O")), "")

    @property
    def scale(self) -> Scale:
        """What its ticks may be compared with."""
        return Scale(self.unit, self.model, self.optimization_flag)

    def to_json(self) -> dict[str, str]:
        """As a line has it."""
        return {name: getattr(self, name) for name in SETTING_FIELDS}

    @classmethod
    def from_json(cls, value: object) -> Setting:
        """What ``to_json`` wrote; ValueError says what is wrong."""
        found = fields.object_of(value, "a setting")
        known = {name: fields.text(found, name) for name in SETTING_FIELDS if name != "model"}
        return cls(**known, model=fields.text(found, "model", ""))


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

    @classmethod
    def from_json(cls, value: object) -> Measurement:
        """What ``to_json`` wrote; ValueError says what is wrong."""
        found = fields.object_of(value, "measurement")
        if "error" in found:
            detail = found.get("detail", "")
            if not isinstance(detail, str):
                raise ValueError("detail is not text")
            # Any text of a compiler can be shown, and written again.
            detail = detail.encode("utf-8", "backslashreplace").decode()
            error = fields.text(found, "error")
            if not error:
                raise ValueError("error is empty")
            return cls(error=error, detail=detail)
        try:
            return cls(fields.count(found, "min"), fields.number(found, "median"))
        except ValueError as error:
            raise ValueError(f"measurement has neither ticks nor an error: {error}") from None


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
    code: str = ""  # digest of the kernel's C, see records.emitted_code; empty if nobody knows
    code_bytes: int = 0  # 0 means the same
    scratch_bytes: int = 0
    time: str = field(default="", compare=False)  # ISO 8601, UTC

    def to_line(self) -> str:
        """One JSON object, without line break."""
        return fields.line_of(
            {
                "schema": WEIGHTS_SCHEMA if self.kernel.weights else SCHEMA,
                "kernel": self.kernel.name,
                "dtype": self.kernel.dtype,
                **({"weights": self.kernel.weights} if self.kernel.weights else {}),
                "operator": self.kernel.operator,
                "shape": dict(self.kernel.shape),
                "macs": self.kernel.macs,
                **self.setting.to_json(),
                "candidate": self.candidate.to_json(),
                "measurement": self.measurement.to_json(),
                "board": self.board,
                "default": self.is_default,
                **picked(self, "code", "code_bytes", "scratch_bytes", "time"),
            }
        )

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        """What ``to_line`` wrote; ValueError says what is wrong."""
        return cls.from_json(fields.object_in(line, "a record"))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Record:
        """The record from a line's object."""
        if fields.schema_of(value) not in (SCHEMA, WEIGHTS_SCHEMA):
            raise ValueError(f"schema {value['schema']} is not known here")
        shape = fields.object_of(value.get("shape"), "shape")
        if not all(
            fields.is_integer(extent) and name.isprintable() for name, extent in shape.items()
        ):
            raise ValueError("shape may only have integers")
        kernel = KernelIdentity(
            fields.text(value, "kernel"),
            fields.text(value, "dtype"),
            fields.text(value, "operator"),
            shape=tuple(sorted(shape.items())),
            macs=fields.count(value, "macs", 0),
            weights=fields.text(value, "weights", ""),
        )
        return cls(
            kernel,
            Setting.from_json(value),
            Candidate.from_json(value.get("candidate")),
            Measurement.from_json(value.get("measurement")),
            fields.text(value, "board", ""),
            fields.truth(value, "default"),
            fields.text(value, "code", ""),
            fields.count(value, "code_bytes", 0),
            fields.count(value, "scratch_bytes", 0),
            fields.text(value, "time", ""),
        )


def now() -> str:
    """The time as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
