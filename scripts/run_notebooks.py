"""Run the notebooks of the tutorials and store what they show: ``make notebooks``.

Each runs from top to bottom in a kernel of this environment and in an empty folder. A cell that
fails ends the run with its error, and its notebook stays as it was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "tutorials"
#: Of one cell, which may train and compile.
TIMEOUT_S = 300
KERNEL = "python3"


def notebooks() -> list[Path]:
    """The notebooks that ship."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """The notebook with the outputs of a new run. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    with (
        tempfile.TemporaryDirectory(prefix="utvm-") as folder,
        tempfile.TemporaryDirectory(prefix="utvm-") as sockets,
    ):
        # Files of this user, and no port of the computer. The kernel is this Python.
        own = Path(sockets, "kernel")
        manager = KernelManager(kernel_name=KERNEL, transport="ipc", ip=str(own))
        manager.connection_file = f"{own}.json"
        manager.kernel_spec.argv[0] = sys.executable
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, km=manager, timeout=TIMEOUT_S, resources=resources)
        try:
            client.execute()
        finally:
            if manager.has_kernel:
                manager.shutdown_kernel(now=True)
    return notebook


def stored(notebook: Any) -> Any:
    """The notebook as it is kept: without times, versions and progress, which always differ."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "name": KERNEL}}
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined(one for one in cell.outputs if one.get("name") != "stderr")
    return notebook


def joined(outputs: Iterable[Any]) -> list[Any]:
    """The outputs with printed texts that follow each other as one."""
    found: list[Any] = []
    for one in outputs:
        if found and one.get("name") == found[-1].get("name") == "stdout":
            found[-1].text += one.text
        else:
            found.append(one)
    return found


def main() -> None:
    """Run the named notebooks, or all; store them in docs/tutorials, or elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    parser.add_argument("--to", metavar="DIR", type=Path, default=FOLDER, help="where they go")
    args = parser.parse_args()
    for path in notebooks():
        if not args.names or path.stem in args.names:
            nbformat.write(stored(executed(path)), args.to / path.name)
            print(f"{path.name}: run and stored")


if __name__ == "__main__":
    main()
