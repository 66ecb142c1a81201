"""The child of ``oracle.py``: model after model, named on standard input, until that ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from utvm_deploy.oracle.reference import interpret_or_explain


def serve() -> None:
    """Answer each line, ``model <tab> folder``, by one line."""
    # LiteRT writes to standard output now and then; answers go where it cannot.
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        model, folder = line.rstrip("\n").split("\t")
        done = interpret_or_explain(model, Path(folder))
        os.write(answers, b"done\n" if done == 0 else b"refused\n")


if __name__ == "__main__":
    serve()
