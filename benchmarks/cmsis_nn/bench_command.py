"""`utvm bench`, as the programs here run it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layer import ROOT


def bench(
    paths: Sequence[Path], board: str, cmsis_nn: Path, records: Path | None = None
) -> list[dict[str, Any]]:
    """What `utvm bench --json` says of each model; of several builds of CMSIS-NN, the fastest's."""
    command = [sys.executable, "-m", "utvm_deploy", "bench", *map(str, paths), "--json"]
    command += ["--board", board, "--cmsis-nn", str(cmsis_nn)]
    command += ["--records", str(records)] if records else []
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    found: list[dict[str, Any]] = json.loads(done.stdout)["models"]
    return found
