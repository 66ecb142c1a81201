"""Whether a package that pip would install needs no CUDA.

python scripts/cpu_only.py REPORT    with what ``pip install --dry-run --no-deps --report`` wrote
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement


def needs_cuda(report: str) -> bool:
    """Whether a package of the report requires ``nvidia-*`` or ``triton`` on this machine."""
    for package in json.loads(report)["install"]:
        for text in package["metadata"].get("requires_dist", []):
            needed = Requirement(text)
            if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
                continue
            if needed.name.startswith("nvidia-") or needed.name in ("triton", "cuda-bindings"):
                return True
    return False


if __name__ == "__main__":
    sys.exit(needs_cuda(Path(sys.argv[1]).read_text("utf-8")))
