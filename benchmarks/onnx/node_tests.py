"""The node tests of the ``onnx`` package: right, wrong or refused, as stored data and as a page.

    python benchmarks/onnx/node_tests.py [--jobs N]        run all, store them, write the page
    python benchmarks/onnx/node_tests.py NAME...           run tests or operators, and print them
    python benchmarks/onnx/node_tests.py --page            write the page from what is stored

A test counts if its model is one operator, all its shapes are stated, none of them is 0, and its
types are those that kernels have. It is compiled for the host and run with the test's own input. It
runs as it is given. If it is refused, it runs with all inputs but the first as constants, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STORED = HERE / "node_tests.json"
PAGE = ROOT / "docs" / "reference" / "onnx-operators.md"
#: Seconds for one test, on a loaded machine.
PATIENCE_S = 600.0
RIGHT = "ok"


@dataclass(frozen=True)
class Result:
    """How one test ended: as it is given, and with constants."""

    name: str
    operator: str
    is_float: bool
    given: str
    ended: str
    said: str


def suite() -> Any:
    """The module that reads the tests of ``onnx``; it loads much."""
    import sys

    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "relax")]
    import onnx_suite

    return onnx_suite


def counted() -> list[Any]:
    """The cases that count, in the order of ``onnx``."""
    cases = suite().node_cases()
    return [case for case in cases if len(case.model.graph.node) == 1 and case.is_static]


def _serve(connection: Any, known: Mapping[str, Any]) -> None:
    """In a child: the result of each case that the parent names, until it names none."""
    with tempfile.TemporaryDirectory() as folder:
        while name := connection.recv():
            case = known[name]
            ends = []
            for number, variant in enumerate(suite().variants(case)):
                ends.append(suite().end_of(variant, Path(folder) / f"{name}_{number}"))
                if ends[-1].kind != "refused":
                    break
            last = ends[-1]
            what = case.operator, case.has_float, ends[0].kind, last.kind, last.said
            connection.send(Result(name, *what))


def _results(cases: Sequence[Any]) -> Iterator[Result]:
    """The results of cases by a child, which is started again if it dies or is late."""
    waiting = list(cases)
    # The cases take seconds to make, and TVM is loaded by the child.
    context = multiprocessing.get_context("fork")
    known = {case.name: case for case in cases}
    while waiting:
        ours, theirs = context.Pipe()
        child = context.Process(target=_serve, args=(theirs, known), daemon=True)
        child.start()
        theirs.close()
        while waiting:
            case = waiting.pop(0)
            try:
                ours.send(case.name)
                is_in_time = ours.poll(PATIENCE_S)
                result = ours.recv() if is_in_time else None
            except (EOFError, OSError):
                result = None
            if result is None:
                said = "the process crashed, or took too long"
                yield Result(case.name, case.operator, case.has_float, "bug", "bug", said)
                break
            yield result
        child.kill()
        child.join()


def measured(cases: Sequence[Any], jobs: int) -> list[Result]:
    """The results of all cases, in their order."""
    with ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda part: list(_results(part)), [cases[i::jobs] for i in range(jobs)])
        found = {result.name: result for part in parts for result in part}
    return [found[case.name] for case in cases]


def first_of_each(results: Sequence[Result]) -> list[Result]:
    """The first test of every operator."""
    first: dict[str, Result] = {}
    for result in results:
        first.setdefault(result.operator, result)
    return list(first.values())


def _row(what: str, results: Sequence[Result]) -> str:
    count = len(results)
    given = sum(result.given == RIGHT for result in results)
    right = sum(result.ended == RIGHT for result in results)
    refused = sum(result.ended == "refused" for result in results)
    share = f"{right / count:.1%}" if count else "-"
    wrong = count - right - refused
    return f"| {what} | {count} | {given} | {right} | {share} | {refused} | {wrong} |"


def page_of(stored: Any) -> str:
    """The page of the documentation that says what is stored."""
    results = [Result(**one) for one in stored["results"]]
    floats = [result for result in results if result.is_float]
    lines = [
        "# ONNX operators",
        "",
        "`benchmarks/onnx/node_tests.py` writes this page. It runs the tests of single operators",
        f"that the package `onnx` {stored['onnx']} has for backends. It counts those with fixed",
        "shapes and with types that kernels have. Each is compiled for the host and run. Outputs",
        "must be those of the test: within a relative error of 1e-4 for floats, and equal for",
        "integers. Integers of a quantized model may differ by one step.",
        "",
        "*As given* leaves all inputs open. *With constants* makes all inputs but the first",
        "constants where the test is refused otherwise. Axes, shapes and weights are constants in",
        "most files.",
        "",
        "| tests | count | right as given | right with constants | share | refused | wrong |",
        "|---|---|---|---|---|---|---|",
        _row("the first of each operator", first_of_each(results)),
        _row("with float32", floats),
        _row("all", results),
        "",
        "## What is refused",
        "",
        "Other files may use an operator of this table in another way, and then it works.",
        "",
        "| operator | tests | refused | the first refusal |",
        "|---|---|---|---|",
    ]
    for operator in sorted({result.operator for result in results}):
        own = [result for result in results if result.operator == operator]
        bad = [result for result in own if result.ended != RIGHT]
        if bad:
            said = bad[0].said.replace("|", "\\|")
            lines.append(f"| {operator} | {len(own)} | {len(bad)} | {said} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Run the tests that are named, or all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a test or an operator")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--page", action="store_true", help="write the page only")
    given = parser.parse_args()
    if not given.page:
        names = set(given.names)
        cases = [case for case in counted() if not names or {case.name, case.operator} & names]
        results = measured(cases, given.jobs)
        if names:
            for result in results:
                print(f"{result.name}: {result.given}, {result.ended} {result.said}".rstrip())
            return
        stored = {"onnx": onnx.__version__, "results": [asdict(result) for result in results]}
        STORED.write_text(json.dumps(stored, indent=0) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(json.loads(STORED.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
