"""Two reports on the same thing: which figures are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UtvmError

#: Parts of a report that are made again.
_PARTS = ("inspect", "profile", "memory", "verify", "bench", "evaluation", "tuning")
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
    for part in _PARTS:
        for path, value in _leaves(report.get(part)):
            is_ours = not is_exact and any(
                key in _TIMES or key.startswith(("ticks", "ratio")) for key in path
            )
            varies = is_ours or path[-1] in _SPEEDS
            yield f"{part}: {', '.join(path)}", (value, not varies)


def _check_form(report: Mapping[str, Any]) -> None:
    """KeyError for a report without the figures that every report has."""
    for key in ("ticks", "arena_bytes", "ram_bytes", "flash_bytes", "weights_bytes", "layers"):
        report["profile"][key]
    if report["verify"] is not None:
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
