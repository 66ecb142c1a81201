"""Models that the ``onnx`` package ships have the outputs that it expects, or are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx_suite import OK, SuiteCase, converted_cases, node_cases, problems

# TVM's importer warns. Users do not see it, because a child process reads their models.
pytestmark = pytest.mark.filterwarnings("ignore")

SEED = 15
#: Operators whose backend tests run each time: a few of the 1,400.
DRAWN = 25
DRAWN_EXPORTS = 5
#: How many parts the whole is run in, so that one failure hides few others.
PARTS = 10


@pytest.mark.tools
@pytest.mark.parametrize(
    ("cases", "count"), [(node_cases, DRAWN), (converted_cases, DRAWN_EXPORTS)]
)
def test_some_models_of_the_onnx_package(
    cases: Callable[[], tuple[SuiteCase, ...]], count: int, tmp_path: Path
) -> None:
    ends, wrong = problems(random.Random(SEED).sample(cases(), count), tmp_path)
    assert not wrong
    assert ends.get(OK, 0) >= count // 3


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.parametrize("part", range(PARTS))
def test_all_operators_of_the_onnx_package(part: int, tmp_path: Path) -> None:
    ends, wrong = problems(node_cases()[part::PARTS], tmp_path)
    print(ends)  # shown by -rP
    assert not wrong


@pytest.mark.soak
@pytest.mark.tools
def test_all_exports_of_the_onnx_package(tmp_path: Path) -> None:
    ends, wrong = problems(converted_cases(), tmp_path)
    print(ends)
    assert not wrong
