"""The gate for CI: what grew since an earlier result, and what is over its limit.

Works on the JSON of ``utvm profile``, ``utvm bench`` and ``utvm report MODEL``: only our figures
are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import BenchError
from utvm_deploy.base.files import check_regular
from utvm_deploy.graph.names import short_name
from utvm_deploy.results.pages.embedded_json import embedded_json
from utvm_deploy.results.pages.report_digest import DIGEST, is_as_written

_PROFILE, _BENCH, _REPORT = "utvm.profile/1", "utvm.bench/1", "utvm.report/2"
_GIVE = (
    "give what `utvm profile --json`, `utvm bench --json` or `utvm report MODEL --board B` wrote"
)
#: Larger figures are not bytes or ticks, but damage.
_LARGEST = 1 << 63


@dataclass(frozen=True)
class Growth:
    """A figure that grew by more than was allowed."""

    model: str
    what: str  # "layer 3 (CONV_2D conv_3)", "whole model"
    figure: str  # its unit
    before: int
    now: int

    @property
    def percent(self) -> float:
        """By how much."""
        return 100 * (self.now / self.before - 1) if self.before else float("inf")

    def __str__(self) -> str:
        return (
            f"{self.model}, {self.what}: {self.before:,} to {self.now:,} {self.figure} "
            f"({self.percent:+.1f} %)"
        )


@dataclass(frozen=True)
class Excess:
    """A model that takes more memory than it may."""

    model: str
    memory: str  # RAM or flash
    used_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.model} takes {self.used_bytes:,} bytes of {self.memory}, "
            f"{self.used_bytes - self.limit_bytes:,} over the limit of {self.limit_bytes:,}"
        )


@dataclass(frozen=True)
class Ours:
    """One model's own figures, as both schemas have them."""

    name: str
    board: str
    unit: str  # of the figure to judge by
    total: int
    # (index, label) -> figure; the label holds operator and output name.
    layers: Mapping[tuple[int, str], int]
    ram_bytes: int
    flash_bytes: int
    # Digest; empty if the figure is not modelled, None if the file does not have it (0.1.0).
    cycle_model: str | None = ""
    # Of a report with data: "accuracy (device)" -> its value, None if it has none.
    metrics: Mapping[str, float | None] = field(default_factory=dict)


def ours_of(result: Mapping[str, Any], schema: str) -> tuple[Ours, ...]:
    """The models of a result of ``utvm profile``, ``utvm bench`` or ``utvm report MODEL``."""
    if schema == _REPORT:
        (profiled,) = ours_of(result["profile"], _PROFILE)
        return (replace(profiled, metrics=_metrics_of(result["evaluation"])),)
    if schema == _PROFILE:
        name, unit = str(result["model"]), str(result["tick_unit"])
        return (_ours(result, result, name, unit, result),)
    return tuple(
        _ours(result, model, str(model["name"]), unit, model["size"]["ours"])
        for model in result["models"]
        # The figure that everything is judged by comes first.
        for unit in list(model["ours"])[:1]
    )


def _ours(
    result: Mapping[str, Any], model: Mapping[str, Any], name: str, unit: str, size: Any
) -> Ours:
    """One model of a result of ``utvm profile``, which is the result itself, or ``utvm bench``."""

    def figure(one: Mapping[str, Any]) -> int:
        return _count(one["ticks"] if "ticks" in one else one["ours"][unit])

    return Ours(
        name,
        str(result["board"]),
        unit,
        figure(model),
        {(int(layer["index"]), _label(layer)): figure(layer) for layer in model["layers"]},
        _count(size["ram_bytes"]),
        _count(size["flash_bytes"]),
        _cycle_model_of(result, bool(model.get("is_modelled"))),
    )


def _count(value: Any) -> int:
    """A figure of a file that may be damaged."""
    found = int(value)
    if not 0 <= found < _LARGEST:
        raise ValueError(f"the figure {value!r}")
    return found


def _metrics_of(evaluation: Mapping[str, Any] | None) -> dict[str, float | None]:
    return {
        f"{name} ({run['engine']})": None if value is None else float(value)
        for run in (() if evaluation is None else evaluation["runs"])
        for name, value in run["metrics"].items()
    }


def _cycle_model_of(result: Mapping[str, Any], is_modelled: bool) -> str | None:
    if not is_modelled:
        return ""
    digest = result.get("cycle_model")
    return None if digest is None else str(digest)


def read_baseline(path: Path) -> tuple[Ours, ...]:
    """An earlier result; BenchError if the file is none."""
    try:
        check_regular(path)
        text = path.read_bytes()
    except OSError as exc:
        raise BenchError(
            f"cannot read the baseline {path}: {exc.strerror or exc}; {_GIVE}"
        ) from exc
    return baseline_of(text, str(path))


def baseline_of(text: bytes, name: str) -> tuple[Ours, ...]:
    """The models of what ``--json`` printed, or of a report's page.

    Raises BenchError, with ``name``, if it is something else.
    """
    try:
        result = json.loads(embedded_json(text.decode()))
        schema = result["schema"]
        if schema not in (_PROFILE, _BENCH, _REPORT):
            raise ValueError(f"schema {schema!r}")
        _check_digest(result, name)
        return ours_of(result, schema)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as exc:
        raise BenchError(f"{name} is not a baseline; {_GIVE}") from exc


def _check_digest(result: Mapping[str, Any], name: str) -> None:
    """BenchError for a report that was edited; those of other verbs have no digest."""
    if DIGEST in result and not is_as_written(result):
        raise BenchError(
            f"{name} was edited after it was made: its digest is not that of what it holds; make "
            "the report again"
        )


def check_covered(path: Path, names: Sequence[str], board: str) -> None:
    """BenchError if the baseline lacks one of the models, or has it for another board."""
    earlier = {model.name: model for model in read_baseline(path)}
    for name in names:
        _check_covers(earlier, name, board)


def _check_covers(earlier: Mapping[str, Ours], name: str, board: str) -> None:
    if name not in earlier:
        listed = ", ".join(sorted(earlier)) or "nothing"
        raise BenchError(f"the baseline holds no model {name!r} (it has {listed}); make a new one")
    old = earlier[name]
    if old.board != board:
        raise BenchError(
            f"the baseline of {name} is of {old.board}, and this run of {board}; "
            "make one for each board"
        )


def growths(
    before: tuple[Ours, ...], now: tuple[Ours, ...], allowed_percent: float
) -> list[Growth]:
    """What grew by more than allowed: a layer, the whole model, its RAM or its flash.

    Raises BenchError where the two cannot be compared.
    """
    earlier = {model.name: model for model in before}
    found: list[Growth] = []
    for model in now:
        _check_covers(earlier, model.name, model.board)
        old = earlier[model.name]
        if old.cycle_model != model.cycle_model and old.unit == model.unit:
            raise BenchError(
                f"the baseline of {model.name} was not counted by today's cycle model, so its "
                f"{model.unit} cannot be compared; make a new baseline with this version"
            )
        found += _growths(old, model, allowed_percent)
    return found


def excesses(
    now: tuple[Ours, ...], max_ram_bytes: int | None, max_flash_bytes: int | None
) -> list[Excess]:
    """Models over a limit."""
    limits = (("RAM", "ram_bytes", max_ram_bytes), ("flash", "flash_bytes", max_flash_bytes))
    return [
        Excess(model.name, memory, getattr(model, field), limit)
        for model in now
        for memory, field, limit in limits
        if limit is not None and getattr(model, field) > limit
    ]


def _growths(old: Ours, new: Ours, allowed_percent: float) -> Iterator[Growth]:
    if old.unit != new.unit:
        raise BenchError(
            f"the baseline of {new.name} counts {old.unit}, and this run {new.unit}; "
            "make a new baseline"
        )
    # A model whose layers changed is another program: then only its sum means something.
    if set(old.layers) == set(new.layers):
        pairs = [
            (layer_text(*key), new.unit, old.layers[key], now) for key, now in new.layers.items()
        ]
    else:
        pairs = []
    pairs.append(("whole model", new.unit, old.total, new.total))
    pairs.append(("RAM", "bytes", old.ram_bytes, new.ram_bytes))
    pairs.append(("flash", "bytes", old.flash_bytes, new.flash_bytes))
    for what, unit, before, now in pairs:
        if now * 100 > before * (100 + allowed_percent):
            yield Growth(new.name, what, unit, before, now)


def layer_text(index: int, label: str) -> str:
    """A layer by its number, operator and output; frameworks make names of hundreds of letters."""
    operator, _, name = label.partition(" ")
    return f"layer {index} ({operator} {short_name(name)})"


def _label(layer: Mapping[str, Any]) -> str:
    return f"{layer['operator']} {layer['name']}"
