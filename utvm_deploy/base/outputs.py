"""Files that are written: none may replace what it is made from."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_writable


def keep_model(model: Path, *outputs: Path | None) -> None:
    """Refuse an output that would replace the model it is made from."""
    keep_input(model, "the model", *outputs)


def keep_input(given: Path | None, what: str, *outputs: Path | None) -> None:
    """Refuse an output that would replace a file that is read."""
    for output in outputs:
        if output is None or given is None or not output.exists() or not given.exists():
            continue
        if output.samefile(given):
            raise UtvmError(f"{output} is {what} itself; give another name for the output")


def check_outputs(model: Path, *outputs: Path | None) -> None:
    """Refuse files that cannot be written, or had better not, before any work is done for them."""
    keep_model(model, *outputs)
    for output in outputs:
        if output is not None:
            check_writable(output)
