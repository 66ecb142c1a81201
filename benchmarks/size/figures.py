"""Bytes and cycles of models at each level: one file of figures, and the tables of the pages.

    python benchmarks/size/figures.py [MODEL...]

With models, everything is measured again and written to docs/reference/model-figures.csv. In any
case, the tables between the marks of the pages are written from this file; a test compares them.

A row of the file has a model's figures on the board, by our fastest kernels or by plain C
(`generic`), at a level of `--optimize`: cycles; the flash of the image, of the runtime alone, of
weights and biases of the graph that is left after the passes; what else the model's tables take:
multipliers and shifts, geometry, padding of weights, tables of functions; and the arena with
`--scratch arena`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import utvm_deploy
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.project import build_image

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "reference" / "model-figures.csv"
BOARD = "mps2_an500"
BEST, GENERIC = "best", "generic"
#: Kernels and level of each row of a model, in the order of the file.
WAYS = ((BEST, "time"), (BEST, "balanced"), (BEST, "size"), (BEST, "ram"), (GENERIC, "size"))


@dataclass(frozen=True)
class Figures:
    """A row of the file. All but cycles are bytes."""

    model: str
    kernels: str
    level: str
    cycles: int
    image: int
    runtime: int
    weights: int
    biases: int
    tables: int
    arena: int

    @property
    def way(self) -> tuple[str, str]:
        """Kernels and level."""
        return self.kernels, self.level

    @property
    def code(self) -> int:
        """Flash besides the tables; with the runtime."""
        return self.image - self.weights - self.biases - self.tables


def main() -> None:
    """Measure the models, if there are any, and write the tables of the pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="*", type=Path)
    models = parser.parse_args().models
    if models:
        board = load_board(BOARD)
        rows = []
        for path in models:
            for kernels, level in WAYS:
                rows.append(measured(path, board, kernels, level))
                print(rows[-1], flush=True)
        FILE.write_text(text_of(rows), encoding="utf-8")
    for page, tables in tables_of(known()).items():
        page.write_text(with_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def measured(path: Path, board: Board, kernels: str, level: str) -> Figures:
    """Compile a model, build its image and run it."""
    options = {"kernels": kernels, "optimize": level}
    compiled = utvm_deploy.compile(path, board, **options)
    bundled = utvm_deploy.compile(path, board, scratch="arena", **options)
    weights, biases = graph_bytes(simplify(load_model(path)))
    return Figures(
        path.stem,
        kernels,
        level,
        utvm_deploy.profile(path, board, **options).found.ticks,
        build_image(compiled, board).flash_bytes,
        build_image(None, board).flash_bytes,
        weights,
        biases,
        compiled.weights_bytes - weights - biases,
        bundled.arena_bytes,
    )


def graph_bytes(graph: Graph) -> tuple[int, int]:
    """Bytes of the constants that operators read: weights, and biases of 32 and 64 bits."""
    used = {index for operator in graph.operators for index in operator.inputs if index is not None}
    sizes = {"weights": 0, "biases": 0}
    for index in used:
        tensor = graph.tensors[index]
        if tensor.data is not None:
            is_bias = tensor.dtype in ("int32", "int64")
            sizes["biases" if is_bias else "weights"] += tensor.data.nbytes
    return sizes["weights"], sizes["biases"]


def text_of(rows: Sequence[Figures]) -> str:
    """The file."""
    heads = [field.name for field in fields(Figures)]
    lines = [",".join(heads), *(",".join(map(str, asdict(row).values())) for row in rows)]
    return "\n".join(lines) + "\n"


def known() -> list[Figures]:
    """The rows of the file."""
    with FILE.open(encoding="utf-8") as lines:
        _, *rows = csv.reader(lines)
    return [Figures(*row[:3], *map(int, row[3:])) for row in rows]


def tables_of(rows: Sequence[Figures]) -> Mapping[Path, Mapping[str, Iterable[str]]]:
    """Page -> mark -> the lines of its table."""
    found = {(row.model, *row.way): row for row in rows}
    models = list(dict.fromkeys(row.model for row in rows))
    by_way = {name: [found[name, way[0], way[1]] for way in WAYS] for name in models}
    docs = ROOT / "docs"
    return {
        docs / "guides" / "optimize.md": {
            "optimize": _optimize(by_way),
            "flash": _flash(by_way),
        },
        docs / "internals" / "memory.md": {"arena": _arena(by_way)},
    }


def with_tables(page: str, tables: Mapping[str, Iterable[str]]) -> str:
    """The page with its tables replaced."""
    for mark, lines in tables.items():
        begin, end = (f"<!-- {mark}: {place} -->\n" for place in ("begin", "end"))
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"a page lacks the marks {begin}{end}")
        page = "".join((before, begin, *(f"{line}\n" for line in lines), end, after))
    return page


def _optimize(by_way: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    levels = ("time", "balanced", "size", "generic, size")
    yield from _heads(*(f"{one}: cycles | code" for one in levels), "its flash, all")
    for name, (time, balanced, size, _, generic) in by_way.items():
        cells = [f"{time.cycles:,}", f"{time.code:,}"]
        for one in (balanced, size):
            cells += [_beside(one.cycles, time.cycles), _beside(one.code, time.code)]
        cells.append(f"{generic.cycles:,} ({generic.cycles / time.cycles:.1f} times)")
        yield _row(name, *cells, f"{generic.code:,}", _beside(generic.image, time.image))


def _flash(by_way: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    yield from _heads("image", "runtime", "weights", "biases", "rest", "code", "tables")
    for name, (_, _, size, _, _) in by_way.items():
        code = size.code - size.runtime
        parts = size.image, size.runtime, size.weights, size.biases, code + size.tables
        yield _row(name, *(f"{one:,}" for one in (*parts, code, size.tables)))


def _arena(by_way: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    yield from _heads(*(f"`--optimize {level}`" for kernels, level in WAYS if kernels == BEST))
    for name, rows in by_way.items():
        yield _row(name, *(f"{row.arena:,}" for row in rows if row.kernels == BEST))


def _heads(*heads: str) -> Iterator[str]:
    line = _row("model", *heads)
    yield line
    yield f"|---|{'--:|' * (line.count('|') - 2)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _beside(one: int, other: int) -> str:
    return f"{one:,} ({100 * (one / other - 1):+.1f} %)"


if __name__ == "__main__":
    main()
