"""Writes the tables of docs/reference/cycle-model.md from the timing tables.

python benchmarks/cycle_model/document.py           rewrite the part between the marks
python benchmarks/cycle_model/document.py --check   exit status 1 if it is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from utvm_deploy.targets.arm_m.timing_m3 import CORTEX_M3
from utvm_deploy.targets.arm_m.timing_m4 import CORTEX_M4
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.arm_m.timing_m55 import CORTEX_M55
from utvm_deploy.targets.contract.timing import Need, Result, Row, Slot, Timing
from utvm_deploy.targets.riscv import timings as riscv

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cycle-model.md"
BEGIN = "<!-- generated: python benchmarks/cycle_model/document.py -->\n"
END = "<!-- end of the generated part -->\n"

_SLOTS = {Slot.EITHER: "either", Slot.OLDER: "older", Slot.ALONE: "alone"}


def _cycles(row: Row) -> str:
    if row.registers_per_cycle:
        more = f"n/{row.registers_per_cycle}" if row.registers_per_cycle > 1 else "n"
        return f"{row.cycles} + {more}" if row.cycles else more
    if row.pipelined_cycles:
        return f"{row.cycles} ({row.pipelined_cycles})"
    return f"{row.cycles}, unit {row.busy_cycles}" if row.busy_cycles > 1 else str(row.cycles)


def _needs(row: Row) -> str:
    """The operands that a class needs at another time than the default of their kind."""
    named = []
    for name in ("first", "second", "accumulator", "stored"):
        need = getattr(row, name)
        if need != Row.__dataclass_fields__[name].default:
            named.append(f"{name} {need.name.lower()}")
    return ", ".join(named)


def _rows(rows: Iterable[Row]) -> Iterable[str]:
    yield "| class | slot | units | cycles | needs | result | source |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        units = ", ".join(unit.name.lower() for unit in row.units)
        result = row.result.name.lower()
        if row.early is not None:
            result = f"early in {_SLOTS[row.early]} slot, else {result}"
        yield (
            f"| {row.kind.name.lower()} | {_SLOTS[row.slot]} | {units} | {_cycles(row)} "
            f"| {_needs(row)} | {result} | {row.source} |"
        )


def _latencies(timing: Timing) -> Iterable[str]:
    needs = [need for need in Need if need in {cell.need for cell in timing.latencies}]
    yield "| result | " + " | ".join(need.name.lower() for need in needs) + " | source |"
    yield "|---" * (len(needs) + 2) + "|"
    for result in Result:
        cells = {cell.need: cell for cell in timing.latencies if cell.result == result}
        if cells:
            numbers = [str(cells[need].cycles) if need in cells else "" for need in needs]
            sources = "; ".join(dict.fromkeys(cell.source for cell in cells.values()))
            yield f"| {result.name.lower()} | {' | '.join(numbers)} | {sources} |"


def _rules(timing: Timing) -> Iterable[str]:
    yield "| older | younger | order | source |"
    yield "|---|---|---|---|"
    for rule in timing.exclusions:
        older, younger = (
            ", ".join(kind.name.lower() for kind in kinds) for kinds in (rule.older, rule.younger)
        )
        order = "either" if rule.both_ways else "this"
        yield f"| {older} | {younger} | {order} | {rule.source} |"


def _numbers(timing: Timing) -> Iterable[str]:
    yield "| number | value | source |"
    yield "|---|---|---|"
    for name, source in timing.sources.items():
        value = getattr(timing, name)
        if name == "capacity":
            value = ", ".join(f"{unit.name.lower()} {count}" for unit, count in value.items())
        yield f"| {name} | {value} | {source} |"


def generated() -> str:
    """The whole generated part."""
    lines = [
        "### Cortex-M7: classes of instructions",
        "",
        *_rows(CORTEX_M7.rows),
        "",
        "### Cortex-M7: cycles from a result to who needs it",
        "",
        *_latencies(CORTEX_M7),
        "",
        "### Cortex-M7: what never issues together, beyond slots and units",
        "",
        *_rules(CORTEX_M7),
        "",
        "### Cortex-M7: the rest",
        "",
        *_numbers(CORTEX_M7),
        "",
        "### Cortex-M4: classes of instructions",
        "",
        *_rows(CORTEX_M4.rows),
        "",
        "### Cortex-M4: the rest",
        "",
        *_numbers(CORTEX_M4),
        "",
        "### Cortex-M3: what differs from the M4",
        "",
        *_rows(row for row in CORTEX_M3.rows if row != CORTEX_M4.row(row.kind)),
        "",
        "### Cortex-M55: classes of instructions",
        "",
        *_rows(CORTEX_M55.rows),
        "",
        "### Cortex-M55: cycles from a result to who needs it",
        "",
        *_latencies(CORTEX_M55),
        "",
        "### Cortex-M55: the rest",
        "",
        *_numbers(CORTEX_M55),
        "",
        "### CV32E40P: classes of instructions",
        "",
        *_rows(riscv.CV32E40P.row(kind) for kind in riscv.KINDS),
        "",
        "### CV32E40P: cycles from a result to who needs it",
        "",
        *_latencies(riscv.CV32E40P),
        "",
        "### CV32E40P: the rest",
        "",
        *_numbers(riscv.CV32E40P),
        "",
        "### Ibex: classes of instructions",
        "",
        *_rows(riscv.IBEX_FAST.row(kind) for kind in riscv.KINDS),
        "",
        "### Ibex: the rest",
        "",
        *_numbers(riscv.IBEX_FAST),
        "",
        "### Ibex with the single-cycle multiplier: what differs",
        "",
        *_rows(
            riscv.IBEX_SINGLE_CYCLE.row(kind)
            for kind in riscv.KINDS
            if riscv.IBEX_SINGLE_CYCLE.row(kind) != riscv.IBEX_FAST.row(kind)
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    fresh = f"{head}{BEGIN}\n{generated()}\n{END}{tail}"
    if "--check" in sys.argv[1:]:
        return int(fresh != text)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
