"""Notebooks as pages: their text, their code, and the results that are stored with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def pages(folder: Path) -> dict[str, str]:
    """The Markdown of each notebook in a folder, by its name without the ending."""
    return {path.stem: page(path) for path in sorted(folder.glob("*.ipynb"))}


def page(path: Path) -> str:
    """The notebook as Markdown, with a link to the file below its heading."""
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts.extend(shown for output in cell["outputs"] for shown in _shown(output))
    heading, _, rest = parts[0].partition("\n")
    download = f"This page is a notebook: [{path.name}]({path.name})."
    return "\n\n".join((heading, download, rest.strip(), *parts[1:])) + "\n"


def _shown(output: Any) -> Iterator[str]:
    """A page of a result if it has one, else its text."""
    data = output.get("data", {})
    if "text/html" in data:
        # Markdown begins again after an empty line.
        lines = "".join(data["text/html"]).splitlines()
        yield "\n".join(line for line in lines if line.strip())
        return
    text = "".join(output.get("text") or data.get("text/plain", ""))
    if text.strip():
        yield f"```text\n{text.rstrip()}\n```"
