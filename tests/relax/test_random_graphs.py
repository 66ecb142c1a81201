"""Random Relax graphs, compiled, against TVM's own build of the same module by LLVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from host_model import HostModel
from random_graphs import random_graph
from relax_operators import expected, inputs_of, module_of, problem

import utvm_deploy

#: Graphs of one module, which one run of the C compiler builds.
AT_ONCE = 25


def wrong_graphs(seeds: range, folder: Path) -> Iterator[str]:
    """What is wrong with graphs, for those that are wrong."""
    for start in seeds[::AT_ONCE]:
        cases = [random_graph(seed) for seed in range(start, start + AT_ONCE)]
        module, inputs = module_of(cases), inputs_of(cases, start)
        compiled = utvm_deploy.compile(module, "host", name=f"graphs_{start}")
        target = folder / str(start)
        target.mkdir()
        outputs = HostModel(compiled, target).run(inputs)
        for case, made, wanted in zip(cases, outputs, expected(module, inputs), strict=True):
            if found := problem(case.bound, made, wanted):
                yield f"{case.name}: {found}"


@pytest.mark.tools
def test_random_graphs(tmp_path: Path) -> None:
    assert list(wrong_graphs(range(AT_ONCE), tmp_path)) == []


def test_a_stage_that_tvm_fails_to_inline() -> None:
    """TVM raises InternalError, not ScheduleError, where this graph repeats a tensor."""
    utvm_deploy.compile(module_of([random_graph(198)]), "host", name="graph")


@pytest.mark.soak
@pytest.mark.tools
def test_five_hundred_random_graphs(tmp_path: Path) -> None:
    assert list(wrong_graphs(range(500), tmp_path)) == []
