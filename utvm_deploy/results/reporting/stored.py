"""Reading a report again: the JSON file, or the page that holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_regular
from utvm_deploy.results.pages.embedded_json import embedded_json

#: Parts of a report that are made again.
_COMPARED = ("inspect", "profile", "memory", "verify", "bench", "evaluation", "tuning")
#: Texts that are results, too; other texts name files and tools.
_TEXTS = ("kernel", "tick_unit", "cycle_model")
#: Speeds of this computer, also where the board's times are exact.
_SPEEDS = ("samples_per_second",)
#: What holds times. On silicon and on this computer they vary from run to run.
_TIMES = ("seconds", "figures", "ours", "theirs", "end_to_end_ratio")


@dataclass(frozen=True)
class Figure:
    """A figure of two reports."""

    what: str
    then: Any  # None if only the second report has it
    now: Any  # None if only the first report has it
    is_exact: bool  # False for times, which vary from run to run

    @property
    def is_same(self) -> bool:
        """Whether it is equal, or may vary."""
        return not self.is_exact or bool(self.then == self.now)


def compared(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Figure]:
    """Each figure of either report. Raises UtvmError if the first has not the form of a report."""
    try:
        before = dict(_figures(then))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UtvmError(
            "the report is damaged: its figures are not as `utvm report MODEL --board B` writes "
            "them; make it again"
        ) from error
    after = dict(_figures(now))
    return [
        Figure(
            what,
            before.get(what, (None, True))[0],
            after.get(what, (None, True))[0],
            after.get(what, before.get(what, (None, True)))[1],
        )
        for what in dict.fromkeys((*before, *after))
    ]


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, bool]]]:
    """Each number of each part, and each kernel, by a name that says where it is."""
    profile = report["profile"]
    unit = profile["tick_unit"]
    # Counters and models count the same on each run.
    is_exact = profile["is_modelled"] or unit == "instructions"
    _check_form(report)
    for part in _COMPARED:
        for path, value in _leaves(report.get(part)):
            is_ours = not is_exact and any(_is_time(key) for key in path)
            varies = is_ours or path[-1] in _SPEEDS
            yield f"{part}: {', '.join(path)}", (value, not varies)


def _check_form(report: Mapping[str, Any]) -> None:
    """KeyError for a report without the figures that every report has."""
    for key in ("ticks", "arena_bytes", "ram_bytes", "flash_bytes", "weights_bytes", "layers"):
        report["profile"][key]
    report["verify"]["ok"]


def _leaves(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(one, Mapping | list):
                yield from (((str(key), *rest), leaf) for rest, leaf in _leaves(one))
            elif not isinstance(one, str) or key in _TEXTS:
                yield (str(key),), one
    elif isinstance(value, list):
        for index, one in enumerate(value):
            name = _name_of(index, one)
            if isinstance(one, Mapping | list):
                yield from (((name, *rest), leaf) for rest, leaf in _leaves(one))
            elif not isinstance(one, str):
                yield (name,), one


def _name_of(index: int, one: Any) -> str:
    """How an entry of a list is called."""
    operator = one.get("operator") if isinstance(one, Mapping) else None
    return f"{index} {operator}" if isinstance(operator, str) else str(index)


def _is_time(key: str) -> bool:
    return key in _TIMES or key.startswith(("ticks", "ratio"))


SCHEMA = "utvm.report/2"
#: The options that a report may set, with the types of their values. None of them names code, a
#: program, a server or a file to write: a report may come from somebody else.
OPTIONS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("kernels", "scratch", "optimize", "float_math"), (str,)),
    **dict.fromkeys(("signature", "name", "timing"), (str,)),
    **dict.fromkeys(("ram_budget", "flash_budget", "cycle_budget"), (int,)),
    **dict.fromkeys(("allow_float", "input_rows"), (bool,)),
    **dict.fromkeys(("pools", "inputs"), (dict,)),
}
#: Keys of the object, behind which are objects.
_PARTS = (
    *("model", "board", "options", "evaluated", "files", "environment", "profile", "memory"),
    "verify",
)


def read_report(path: Path) -> dict[str, Any]:
    """The object of a report. Raises UtvmError for a file that holds none, or a damaged one."""
    try:
        check_regular(path)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UtvmError(f"cannot read the report {path}: {reason}; {_HINT}") from error
    try:
        result = json.loads(embedded_json(text))
    except (ValueError, RecursionError) as error:
        raise UtvmError(f"{path} holds no report; {_HINT}") from error
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        schema = result.get("schema") if isinstance(result, dict) else None
        told = f"its schema is {schema!r}" if schema else "it is other JSON"
        raise UtvmError(f"{path} holds no report ({told}); {_HINT}")
    _check(path, result)
    return result


_HINT = "give what `utvm report MODEL --board B` wrote, the page or its --json"


def _check(path: Path, result: Mapping[str, Any]) -> None:
    for key in _PARTS:
        if not isinstance(result.get(key), dict):
            raise _damaged(path, key)
    for part, key in (("model", "file"), ("model", "sha256"), ("board", "given")):
        if not isinstance(result[part].get(key), str):
            raise _damaged(path, f"{part}.{key}")
    for name, value in result["options"].items():
        if name not in OPTIONS:
            raise UtvmError(f"{path} is damaged: a report cannot set the option {name!r}; {_HINT}")
        if value is not None and type(value) not in OPTIONS[name]:
            raise _damaged(path, f"options.{name}")
    pools, shapes = result["options"].get("pools"), result["options"].get("inputs")
    if not all(type(limit) is int for limit in (pools or {}).values()):
        raise _damaged(path, "options.pools")
    if not all(_is_shape(shape) for shape in (shapes or {}).values()):
        raise _damaged(path, "options.inputs")
    for what, one in result["files"].items():
        if not isinstance(one, dict) or not isinstance(one.get("file"), str):
            raise _damaged(path, f"files.{what}")
    if not isinstance(result["evaluated"].get("samples"), int | None):
        raise _damaged(path, "evaluated.samples")


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(extent) is int for extent in value)


def _damaged(path: Path, key: str) -> UtvmError:
    return UtvmError(f"{path} is damaged: {key} is missing or of another kind; {_HINT}")
