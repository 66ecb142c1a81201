"""The networks that benchmarks/cmsis_nn/networks.py compares: models that can be compiled."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import LOWERINGS

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "cmsis_nn"


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # It imports its neighbour.
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("networks", FOLDER / "networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "networks", module)
    spec.loader.exec_module(module)
    return module


def test_each_is_a_model_of_known_operators(networks: ModuleType, tmp_path: Path) -> None:
    kinds: set[str] = set()
    for name, write in networks.NETWORKS.items():
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(write())
        assert write() == path.read_bytes()
        kinds |= {operator.kind for operator in simplify(load_model(path)).operators}
    assert kinds <= set(LOWERINGS)
    assert {"ADD", "MUL", "HARD_SWISH", "TRANSPOSE_CONV", "CONCATENATION", "MEAN"} <= kinds
