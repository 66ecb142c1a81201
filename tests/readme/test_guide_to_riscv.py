"""docs/guides/riscv.md: its tables have the same figures of a network, and ratios are theirs."""

from __future__ import annotations

from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "riscv.md"
Table = dict[str, list[str]]


def tables() -> list[Table]:
    """Network -> the cells behind it, of each table of networks; rows of portable C left out."""
    found: list[Table] = []
    for line in GUIDE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] == ["network"]:
            found.append({})
        elif found and cells and cells[0] and not cells[0].startswith("-"):
            found[-1][cells[0]] = cells[1:]
    return found


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def test_figures_of_a_network_are_the_same_in_all_tables() -> None:
    plain, vectors, beside_plain, in_cycles, beside_vectors = tables()
    assert list(in_cycles) == list(plain)
    assert len(plain) == 4
    assert {name: one[1] for name, one in plain.items()} == {
        name: one[0] for name, one in beside_plain.items()
    }
    assert {name: one[0] for name, one in vectors.items()} == {
        name: one[0] for name, one in beside_vectors.items()
    }


def test_ratios_are_those_of_the_figures() -> None:
    _, _, beside_plain, _, beside_vectors = tables()
    for table in (beside_plain, beside_vectors):
        for ours, *others in table.values():
            for theirs, ratio in zip(others[::2], others[1::2], strict=True):
                assert ratio == f"{number(theirs) / number(ours):.2f}"
