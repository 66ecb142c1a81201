"""The tables of models' bytes and cycles are those of the files of docs/reference/."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import utvm_deploy
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("cmsis_nn", "size")]
import network_table  # noqa: E402
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


def test_the_page_of_benchmarks_has_the_networks_of_the_file() -> None:
    text, rows = network_table.PAGE.read_text(encoding="utf-8"), network_table.known()
    assert text == with_tables(text, network_table.tables_of(rows)), "networks.py --write"
    other = [replace(rows[0], ours=rows[0].ours + 1), *rows[1:]]
    assert text != with_tables(text, network_table.tables_of(other))


def test_a_row_has_the_layer_that_gains_least_and_all_below_1() -> None:
    def layer(index: int, ratio: float | None, kernel: str | None) -> dict[str, object]:
        names = {"their_kernel": kernel, "kernel": f"ours_{index}"}
        return {"index": index, "ratio": ratio, **names}

    layers = [layer(0, 1.4, "a"), layer(1, 0.5, None), layer(2, 0.972, "b"), layer(3, None, "c")]
    told = {
        "figures": ["cycles", "core"],
        "layers": layers,
        "ours": {"cycles": 100},
        "theirs": {"cycles": 250},
        "build": "O3",
        "ratio_core": 2.25,
        "in_file": {"theirs": {"cycles": 300}},
    }
    row = network_table.row_of("board", "name", told)
    assert (row.least, row.least_ratio, row.below_1) == ("2 ours_2", 0.972, "2 0.97")
    *_, line = network_table.table([row])
    assert line == "| name | 4 | 100 | 250 | `O3` | 2.50 | 2.25 | 3.00 | 0.97, `ours_2` |"
