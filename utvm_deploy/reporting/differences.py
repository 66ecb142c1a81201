"""Two reports on the same thing: which figures are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UtvmError

#: Units that count the same on each run; times on silicon or on this computer vary.
_EXACT_UNITS = ("cycles", "instructions")


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
    profile, checked = report["profile"], report["verify"]
    unit = profile["tick_unit"]
    is_exact = profile["is_modelled"] or unit == "instructions"
    yield "bytes as the reference", (checked["ok"], True)
    yield unit, (profile["ticks"], is_exact and unit in _EXACT_UNITS)
    for name in ("arena_bytes", "ram_bytes", "flash_bytes", "weights_bytes"):
        yield name.replace("_", " ") + " of the image", (profile[name], True)
    yield "arena bytes of a bundle", (profile["bundle_arena_bytes"], True)
    for layer in profile["layers"]:
        what = f"layer {layer['index']} {layer['operator']}"
        yield f"{what}: kernel", (layer["kernel"], True)
        yield f"{what}: {unit}", (layer["ticks"], is_exact and unit in _EXACT_UNITS)
    if report["bench"]:
        one = report["bench"]["models"][0]
        yield f"CMSIS-NN over ours ({one['source']})", (one["ratio"], is_exact)
    if report["evaluation"]:
        for run in report["evaluation"]["runs"]:
            for name, value in run["metrics"].items():
                yield f"{name} ({run['engine']})", (value, True)
