"""What ``utvm eval`` prints for people."""

from __future__ import annotations

import math

from utvm_deploy.cli.output import Output
from utvm_deploy.quality.evaluating import facts
from utvm_deploy.quality.evaluating.page import metric_text

#: More classes do not fit a terminal as a matrix.
_MOST_COLUMNS = 16
_MOST_LISTED = 10


def report(found: facts.Evaluation, out: Output) -> None:
    """The table of engines, the classes, and what changed."""
    problem = found.problem
    where = "" if found.board is None else f" on {found.board}"
    windows = f" in {len(problem.item):,} windows" if problem.word != "samples" else ""
    out.line(f"{found.model}{where}: {problem.task}, {_items(problem)}{windows} {found.data}")
    out.line(f"inputs: {found.inputs}")
    if problem.task == "anomaly":
        out.line("score: mean squared difference of input and output, in real numbers")
    names = list(dict.fromkeys(name for one in found.judged for name in one.metrics))
    out.table(
        ["", *(f">{name}" for name in names), ">samples/s", "computed by"],
        [_row(one, names) for one in found.judged],
    )
    last = found.judged[-1]
    if last.confusion is not None:
        _classes(last, problem, out)
    is_equal = any(not change.largest_difference for change in found.changes)
    # Where two of three are equal, the last comparison repeats the first one.
    for change in found.changes[: 2 if is_equal else None]:
        out.line(_change(change, problem))
    for note in found.notes:
        out.line(f"note: {note}")


def _items(problem: facts.Problem) -> str:
    return f"1 {problem.word[:-1]}" if problem.items == 1 else f"{problem.items:,} {problem.word}"


def _row(one: facts.Judged, names: list[str]) -> list[object]:
    cells = [
        metric_text(name, _json(one.metrics[name])) if name in one.metrics else "" for name in names
    ]
    return [one.run.engine, *cells, f"{one.run.samples_per_second:,.1f}", one.run.runtime]


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _classes(last: facts.Judged, problem: facts.Problem, out: Output) -> None:
    assert last.confusion is not None
    is_small = problem.classes <= _MOST_COLUMNS
    heads = [">" + problem.class_name(number) for number in range(problem.classes)]
    out.table(
        ["class", f">{problem.word}", ">precision", ">recall", ">F1", *(heads * is_small)],
        [
            [
                figures.name,
                figures.items,
                *(_share(value) for value in (figures.precision, figures.recall, figures.f1)),
                *([f"{count:,}" if count else "." for count in row.tolist()] * is_small),
            ]
            for figures, row in zip(last.per_class, last.confusion, strict=True)
            if figures.items or is_small
        ],
        title=f"by {last.run.engine}" + ("; on the right what was predicted" * is_small),
    )
    if not is_small:
        for pair in facts.confused(last, problem)[:_MOST_LISTED]:
            out.line(f"{pair['items']:,} of {pair['label']} taken for {pair['prediction']}")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _change(change: facts.Change, problem: facts.Problem) -> str:
    between = f"{change.before} -> {change.after}"
    if not change.largest_difference:
        return f"{between}: all values are equal"
    noise = f"; values differ by {change.largest_difference:.3g} at most ({change.sqnr_db:.1f} dB)"
    if problem.task != facts.CLASSIFICATION:
        return f"{between}: {change.changed:,} of {_items(problem)} differ{noise}"
    said = f"{between}: {change.changed:,} of {_items(problem)} change class"
    shown = [
        f"{item.position} ({_label(item.label, problem)}"
        f"{problem.class_name(int(item.before))} -> {problem.class_name(int(item.after))})"
        for item in change.items[:_MOST_LISTED]
    ]
    if change.changed > _MOST_LISTED:
        shown.append("...")
    return said + (f": {', '.join(shown)}" if shown else "") + noise


def _label(label: float | None, problem: facts.Problem) -> str:
    return "" if label is None else f"label {problem.class_name(int(label))}: "
