"""Pages that list all cores, or all families of kernels, leave none out."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.targets.table import CORES, target_of

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of the page's tables."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in one.split("|")[1:-1]] for one in lines if one[:1] == "|"]


def test_the_page_on_board_files_has_every_core() -> None:
    (cell,) = (cells[1] for cells in rows("reference/boards.md") if cells[0].endswith(" `core`"))
    assert [name for name in CORES if f"`{name}`" not in cell] == []


def test_the_page_on_kernels_has_every_family() -> None:
    told = {cells[0] for cells in rows("internals/kernels.md")}
    families = {one for name, core in CORES.items() for one in target_of(name).families_of(core)}
    assert sorted(one for one in families if f"`{one}`" not in told) == []
