"""The operator table: as data, on the command line, and in docs/reference/operators.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files.limits import LIMITS
from utvm_deploy.frontend.files.suggestions import SUGGESTIONS
from utvm_deploy.frontend.operators.importers import FLOAT_IMPORTERS, IMPORTED, IMPORTERS
from utvm_deploy.results.inspecting.supported import supported_operators

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from operators_page import PAGE, operators_page


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == operators_page(), "run python scripts/operators_page.py"


def test_the_page_has_every_operator_and_limit() -> None:
    page = operators_page()
    for kind in IMPORTED:
        assert f"| {kind} | " in page
    for what, most in LIMITS:
        assert f"| {most:,} | {what} |" in page


def test_what_to_do_instead_is_told_of_what_is_not_supported_only() -> None:
    page = operators_page()
    for kind, what in SUGGESTIONS.items():
        label = f"{kind} of integers" if kind in FLOAT_IMPORTERS else kind
        assert f"| {label} | {what} |" in page
    assert not set(SUGGESTIONS) & set(IMPORTERS)


def test_supported_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--supported"]) == 0
    said = capsys.readouterr().out
    assert all(kind in said for kind in IMPORTED)
    assert f"{len(IMPORTED)} operators" in said


def test_supported_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--supported", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "utvm.operators/1"
    assert [row["operator"] for row in facts["operators"]] == sorted(IMPORTED)
    assert [row["constraints"] for row in facts["operators"]] == [
        row.constraints for row in supported_operators()
    ]


@pytest.mark.parametrize("argv", [["inspect"], ["inspect", "m.tflite", "--supported"]])
def test_a_model_or_the_table(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "--supported" in capsys.readouterr().err
