"""The tables of models' bytes and cycles are those of docs/reference/model-figures.csv."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import utvm_deploy
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "size"))
from figures import BOARD, Figures, graph_bytes, known, tables_of, with_tables  # noqa: E402

MODEL = ROOT / "models" / "cifar10_cnn.tflite"


def test_the_pages_have_the_tables_of_the_file() -> None:
    for page, tables in tables_of(known()).items():
        text = page.read_text(encoding="utf-8")
        assert text == with_tables(text, tables), "run benchmarks/size/figures.py"


def test_another_figure_is_another_table() -> None:
    first, *others = known()
    changed = [replace(first, cycles=first.cycles + 1, arena=first.arena + 1), *others]
    for page, tables in tables_of(changed).items():
        text = page.read_text(encoding="utf-8")
        assert text != with_tables(text, tables)


def test_the_figures_of_a_model_are_those_of_a_compile() -> None:
    """Code and cycles depend on the C compiler, too; these figures do not."""
    (row,) = (one for one in known() if one.model == MODEL.stem and one.way == ("best", "size"))
    compiled = utvm_deploy.compile(MODEL, BOARD, optimize="size")
    bundled = utvm_deploy.compile(MODEL, BOARD, optimize="size", scratch="arena")
    weights, biases = graph_bytes(simplify(load_model(MODEL)))
    tables, arena = compiled.weights_bytes - weights - biases, bundled.arena_bytes
    found = replace(row, weights=weights, biases=biases, tables=tables, arena=arena)
    assert found == row, "run benchmarks/size/figures.py with the models of the file"


def test_code_is_what_is_left() -> None:
    row = Figures("m", "best", "size", 1, 100, 20, 30, 10, 5, 8)
    assert row.code == 55
