"""The ticks of a whole model that was compiled with certain candidates; and its line in a file.

A kernel alone takes other ticks than between other layers, whose data and code are in the caches.
Only a measurement of the whole model says what the model takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.fields import count, line_of, object_of, schema_of, text
from utvm_deploy.records.record import Measurement, Setting

#: Of a line. Versions before 0.2.0 skip it.
MODEL_SCHEMA = 2


@dataclass(frozen=True)
class ModelRecord:
    """One line: a model, how its kernels were compiled, and what it took."""

    graph: str  # digest of the model's layers, see compiler.decision; weights do not count
    name: str  # of the model, for people
    setting: Setting
    board: str
    scratch: str  # where layers had their scratch: "arena" or "stack"
    # Key of each kernel -> its candidate, sorted by key.
    candidates: tuple[tuple[str, Candidate], ...]
    # Key of each kernel -> digest of its C where that is known, sorted by key.
    codes: tuple[tuple[str, str], ...]
    measurement: Measurement
    # Ticks of each layer within the model, in order.
    layers: tuple[int, ...] = ()
    time: str = field(default="", compare=False)  # ISO 8601, UTC

    def to_line(self) -> str:
        """One JSON object, without line break."""
        return line_of(
            {
                "schema": MODEL_SCHEMA,
                "graph": self.graph,
                "name": self.name,
                **self.setting.to_json(),
                "board": self.board,
                "scratch": self.scratch,
                "candidates": {key: one.to_json() for key, one in self.candidates},
                "codes": dict(self.codes),
                "measurement": self.measurement.to_json(),
                "layers": list(self.layers),
                "time": self.time,
            }
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ModelRecord:
        """Of a line's object; ValueError says what is wrong."""
        if schema_of(value) != MODEL_SCHEMA:
            raise ValueError(f"schema {value['schema']} is not known here")
        candidates = object_of(value.get("candidates"), "candidates")
        codes = object_of(value.get("codes"), "codes")
        layers = value.get("layers", [])
        if not isinstance(layers, list):
            raise ValueError("layers is not a list")
        return cls(
            text(value, "graph"),
            text(value, "name", ""),
            Setting.from_json(value),
            text(value, "board", ""),
            text(value, "scratch"),
            tuple(sorted((key, Candidate.from_json(one)) for key, one in candidates.items())),
            tuple(sorted((key, text(codes, key)) for key in codes)),
            Measurement.from_json(value.get("measurement")),
            tuple(count({"layers": one}, "layers") for one in layers),
            text(value, "time", ""),
        )
