"""scripts/cpu_only.py tells a PyTorch that brings CUDA from one that does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cpu_only.py"


@pytest.mark.parametrize(
    ("needed", "status"),
    [
        (["filelock", "sympy>=1.13"], 0),
        (["filelock", "nvidia-cublas==13.0; platform_system == 'Linux'"], 1),
        (["triton==3.5"], 1),
        (["nvidia-cublas; platform_system == 'Nowhere'", "triton; extra == 'fast'"], 0),
    ],
)
def test_packages_of_cuda_are_found(needed: list[str], status: int, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": [{"metadata": {"requires_dist": needed}}]}))
    done = subprocess.run([sys.executable, str(SCRIPT), str(report)], check=False)
    assert done.returncode == status
