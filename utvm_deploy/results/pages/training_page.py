"""A training for people, from the object that ``utvm train --json`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from utvm_deploy.results.pages.chart import CURVE_HEIGHT, CURVE_WIDTH, line
from utvm_deploy.results.pages.render import render


def what_it_takes(found: Mapping[str, Any]) -> Iterator[str]:
    """Time and memory in lines."""
    if left := found["samples"] % found["batch"]:
        yield f"a step takes {found['batch']} samples, so each epoch leaves {left} out"
    modelled = "modelled " if found["is_modelled"] else ""
    each = f"{found['ticks'] / found['steps']:,.0f} {modelled}{found['tick_unit']}"
    if found["step_s"] is not None:
        each += f", {1e3 * found['step_s']:.3f} ms"
    yield f"{found['steps']:,} steps on {found['board']}; a step takes {each}"
    yield (
        f"RAM of the image: {found['ram_bytes']:,} bytes, of which arena "
        f"{found['arena_bytes']:,}; flash: {found['flash_bytes']:,} bytes"
    )


def training_html(result: Mapping[str, Any]) -> str:
    """The whole page."""
    return render("training.html", level=2, **training_values(result))


def training_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """What ``training_body.html`` shows; of a training that continues, of its ``epochs`` alone."""
    rows = result["epochs"]
    columns = {key: [row[key] for row in rows if row[key] is not None] for key in rows[-1]}
    return {
        "found": result,
        "lines": list(what_it_takes(result)) if "steps" in result else [],
        "columns": columns,
        "curves": {
            key: " ".join(f"{x},{y}" for x, y in line(values, CURVE_WIDTH, CURVE_HEIGHT))
            for key, values in columns.items()
            if key != "epoch"
        },
        "width": CURVE_WIDTH,
        "height": CURVE_HEIGHT,
    }
