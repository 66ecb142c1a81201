"""TVM is loaded without PyTorch, which a program may load before or after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from utvm_deploy.base.without_torch import without_torch

#: Stands for PyTorch, so that this holds where it is not installed.
FAKE = "loaded = True\n"
AFTER = """
import sys
from utvm_deploy.kernels.contract.lazy_tvm import tvm
tvm.ir
assert "torch" not in sys.modules, "TVM has loaded PyTorch"
import torch
assert torch.loaded
"""


@pytest.mark.slow
def test_tvm_is_loaded_without_torch_and_torch_after_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE, encoding="utf-8")
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    subprocess.run([sys.executable, "-c", path + AFTER], check=True, timeout=120)


def test_a_loaded_torch_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    with without_torch():
        import torch
    assert torch is sys
