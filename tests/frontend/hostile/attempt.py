"""The child: imports and compiles hostile files under limits, and says of each what came of it."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hostile.mutations import mutant
from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.results.inspecting.facts import inspect_model

#: What the import of one file may take beyond what the process has when it begins.
MOST_BYTES = 1024 * 1024 * 1024


def main(first: int, last: int) -> None:
    """Try each file; two lines for each: ``begin N`` and ``end N verdict detail``."""
    board = load_board("host")
    _limit_memory()
    with tempfile.TemporaryDirectory(prefix="utvm-hostile-") as folder:
        for number in range(first, last):
            how, data = mutant(number)
            path = Path(folder) / "hostile.tflite"
            path.write_bytes(data)
            _say(f"begin {number}")
            try:
                graph = load_model(path)
                inspect_model(graph)
                _say(f"imported {number}")
                compile_model(path, board)
                verdict, detail = "compiled", ""
            except (ModelError, CompileError) as exc:
                verdict, detail = "refused", str(exc)
                if "\n" in detail or (str(path) not in detail and isinstance(exc, ModelError)):
                    verdict = "unclear"
            except BaseException:
                verdict, detail = "traceback", traceback.format_exc()
            _say(f"end {number} {verdict} {how}: {detail!r}")


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
