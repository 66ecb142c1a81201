"""The page of ONNX operators says what the script's stored result says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "onnx" / "node_tests.py"


def test_the_page_is_what_is_stored() -> None:
    spec = importlib.util.spec_from_file_location("node_tests", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    stored = json.loads(script.STORED.read_text("utf-8"))
    assert script.PAGE.read_text("utf-8") == script.page_of(stored)
    results = [script.Result(**one) for one in stored["results"]]
    assert {result.ended for result in results} <= {"ok", "refused"}
