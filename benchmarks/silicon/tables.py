"""Writes the tables of docs/guides/silicon.md from files of `utvm silicon` of real boards.

python benchmarks/silicon/tables.py           rewrite the part between the marks
python benchmarks/silicon/tables.py --check   exit status 1 if it is out of date
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.silicon_kit.report import CaseResult, ModelResult, Report, read_report

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "guides" / "silicon.md"
BEGIN = "<!-- generated: python benchmarks/silicon/tables.py -->\n"
END = "<!-- end of the boards' part -->\n"
NOTHING = "No file yet: nobody has sent one."


def generated(folder: Path) -> str:
    """The whole generated part; UtvmError for a file that is not a report of a real board."""
    lines: list[str] = []
    for path in sorted(folder.glob("*.json")):
        report = read_report(path)
        if not report.setup.board.is_silicon:
            raise UtvmError(f"{path.name} is of an emulated board; delete it")
        lines += [*_board(path.name, report), ""]
    return "\n".join(lines or [NOTHING, ""])


def _board(name: str, report: Report) -> Iterable[str]:
    board, versions, modelling = report.setup.board, report.setup.versions, report.setup.modelling
    yield f"### {_text(board.name)} ({_text(name)})"
    yield ""
    timing = report.timing
    ticks = f"{_text(timing.unit)} by {_text(timing.source)}" if timing else "no ticks"
    yield (
        f"{_text(board.core)} at {board.clock_hz / 1e6:g} MHz, {ticks}; link {_text(board.link)}, "
        f"probe {_text(board.probe)}. utvm {_text(versions.utvm)}, {_text(versions.compiler)}."
    )
    if modelling.board is None:
        yield f"No modelled cycles: {_text(modelling.why)}."
    else:
        yield f"Cycle model {_text(modelling.cycle_model)}, on {_text(modelling.board)}."
    if report.unfinished:
        yield f"Not finished: {_text(report.unfinished)}."
    if report.models:
        yield ""
        yield from _models(report.models)
    if report.micro_benchmarks:
        yield ""
        yield from _cases(report.micro_benchmarks)


def _models(models: Sequence[ModelResult]) -> Iterable[str]:
    yield "| model | layer | output | measured | modelled | measured / modelled |"
    yield "|---|---|---|---|---|---|"
    for model in models:
        memory = model.modelled.get("memory")
        file = _text(model.file)
        yield (
            f"| {file} | all | {_text(model.error or model.state)} | {_count(model.ticks)} "
            f"| {_count(memory)} | {_ratio(model.ticks, memory)} |"
        )
        for layer in model.layers:
            state = "differs" if layer.differs else "equal" if layer.is_compared else ""
            memory = layer.modelled.get("memory")
            yield (
                f"| {file} | {layer.index} {_text(layer.operator)} | {state} "
                f"| {_count(layer.ticks)} | {_count(memory)} | {_ratio(layer.ticks, memory)} |"
            )


def _cases(cases: Sequence[CaseResult]) -> Iterable[str]:
    yield "| sequence | measured | modelled | published | source |"
    yield "|---|---|---|---|---|"
    for case in cases:
        yield (
            f"| {_text(case.name)} | {_cycles(case.ticks)} | {_cycles(case.modelled)} "
            f"| {_cycles(case.published)} | {_text(case.error or case.source)} |"
        )


def _text(value: str) -> str:
    """Somebody else's text: no markup, and no other column."""
    text = html.escape(value, quote=False)
    for sign in "|`[]*":
        text = text.replace(sign, f"&#{ord(sign)};")
    return text


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _cycles(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _ratio(measured: int | None, modelled: int | None) -> str:
    return f"{measured / modelled:.2f}" if measured is not None and modelled else ""


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    try:
        fresh = f"{head}{BEGIN}\n{generated(HERE)}\n{END}{tail}"
    except UtvmError as error:
        sys.exit(str(error))
    if "--check" in sys.argv[1:]:
        return int(fresh != text)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
