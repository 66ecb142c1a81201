"""int8 kernels: SIMD families, sketches and tensor intrinsics compete in one tuning."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import int8
from tflite_writer import ModelWriter

from tests.tuning.test_template_free import graph_of, model, work_of
from tests.tuning.test_tensorized_records import check_followed, dense_model
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.cli.main import main
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.intrinsics.facts import DSP, MVE
from utvm_deploy.records import Measurement, Record, read_records
from utvm_deploy.records.candidate import GENERIC, Candidate
from utvm_deploy.tuning.measuring.measure import Measurer
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.searching.search import FEWEST_PROPOSED, KernelState, Search
from utvm_deploy.tuning.searching.sketches import Sketches
from utvm_deploy.tuning.winners import TEMPLATE_FREE, TENSOR_INTRINSICS, winner_of

CORES = {"host": DSP, "cortex-m7": DSP, "cortex-m55": MVE, "cortex-m3": ""}


def int8_work(path: Path, core: str) -> Work:
    (work,) = workload([graph_of(path)], core, sketches=True)
    return work


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_the_space_has_sketches_and_the_intrinsics_of_the_core(core: str, tmp_path: Path) -> None:
    path = model(tmp_path, "convolution")
    work = int8_work(path, core)
    assert work.free is not None and work.intrinsics == CORES[core]
    proposed = Sketches(work.free, work.intrinsics, 3).propose()
    kinds = {winner_of(candidate) for candidate in proposed}
    assert kinds == {TENSOR_INTRINSICS if CORES[core] else TEMPLATE_FREE}
    assert all(work.admits(candidate) for candidate in proposed)
    assert not any(work_of(path, core).intrinsics for core in CORES)


@pytest.mark.slow
def test_tvms_sketches_with_intrinsics_and_without_take_turns(tmp_path: Path) -> None:
    work = int8_work(dense_model(tmp_path), "cortex-m7")
    assert work.free is not None
    sketches = Sketches(work.free, work.intrinsics, 3)
    listed = sketches.propose()
    for candidate in listed:
        sketches.learn(candidate, Measurement(100, 100.0))
    found = [sketches.propose() for _ in range(4)]
    kinds = [{winner_of(candidate) for candidate in some} for some in found]
    assert kinds == [{TENSOR_INTRINSICS}, {TEMPLATE_FREE}] * 2
    every = [*listed, *(candidate for some in found for candidate in some)]
    assert len(set(every)) == len(every)
    assert all(work.admits(candidate) for candidate in every)
    assert not work.admits(Candidate.of(GENERIC, intrinsics=DSP, pixels=3))


@pytest.mark.slow
@pytest.mark.parametrize("is_fast", [False, True])
def test_sketches_end_where_a_family_is_much_faster(is_fast: bool, tmp_path: Path) -> None:
    work = int8_work(dense_model(tmp_path), "cortex-m7")
    assert work.free is not None
    state = KernelState(work, free=Sketches(work.free, work.intrinsics, 1))
    search = Search([state], 1)
    for _ in range(3 * FEWEST_PROPOSED):
        for one, candidate in search.next_batch(1):
            is_listed = candidate in work.candidates and candidate.family != GENERIC
            ticks = 100 if is_listed else 90 if is_fast else 200
            one.add(candidate, Measurement(ticks, float(ticks)))
    assert (state.free is not None) == is_fast
    assert state.best is not None and (winner_of(state.best[0]) == "dsp") != is_fast


def two_layers(folder: Path) -> Path:
    """A padded convolution and a depthwise one, which both have intrinsics."""
    rng = np.random.default_rng(2)
    writer = ModelWriter()
    bias = rng.integers(-500, 500, 8, dtype=np.int32)
    x = writer.conv2d(writer.input((1, 6, 6, 4), 0.1, 5), int8(rng, 8, 3, 3, 4), bias, scale=2.0)
    writer.output(writer.depthwise_conv2d(x, int8(rng, 1, 3, 3, 8), bias, scale=2.0))
    writer.save(folder / "two.tflite")
    return folder / "two.tflite"


def with_equal_ticks(measure: Any) -> Any:
    """``Measurer.measure_some``, by which each right candidate takes 1,000 ticks."""

    def measure_some(*given: Any, **options: Any) -> list[Measurement | None]:
        found = measure(*given, **options)
        return [
            Measurement(1000, 1000.0) if one is not None and one.is_ok else one for one in found
        ]

    return measure_some


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("host", marks=pytest.mark.tools),
        pytest.param("mps2_an500", marks=pytest.mark.emulator),
    ],
)
def test_tune_tries_all_kinds_and_compile_follows_the_best(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "host":
        # Times of this computer would steer the search elsewhere in each run.
        monkeypatch.setattr(Measurer, "measure_some", with_equal_ticks(Measurer.measure_some))
    path, records = two_layers(tmp_path), tmp_path / "r.jsonl"
    command = ["tune", str(path), "--board", name, "--records", str(records)]
    assert main([*command, "--sketches", "--trials", "24", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    known = [one for one in read_records(records) if isinstance(one, Record)]
    kinds = {winner_of(one.candidate) for one in known}
    assert {TENSOR_INTRINSICS, TEMPLATE_FREE} < kinds and found["failed"] == 0
    for kernel in found["kernels"]:
        assert kernel["best_family"] == winner_of(Candidate.from_json(kernel["best"]))
    # As if the intrinsics had won everywhere.
    tensors = [one for one in known if winner_of(one.candidate) == TENSOR_INTRINSICS]
    assert {one.kernel.key for one in tensors} == {one["kernel"] for one in found["kernels"]}
    fastest = (replace(one, measurement=Measurement(1, 1.0)) for one in tensors)
    check_followed(path, name, fastest, tmp_path)


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"intrinsics": "neon", "pixels": 4}, "no tensor intrinsics of family 'neon'"),
        ({"intrinsics": DSP, "pixels": 3}, "do not take 3 pixels, but 2, 4, 8, 16, 32"),
        ({"intrinsics": DSP}, "it has no pixels"),
        ({"intrinsics": 1, "pixels": 4}, "intrinsics=1 is not a text"),
    ],
)
def test_choices_that_do_not_fit(
    choices: dict[str, int | str], reason: str, tmp_path: Path
) -> None:
    graph = graph_of(model(tmp_path, "convolution"))
    with pytest.raises(UnsupportedOperator, match=reason):
        lower(graph, graph.operators[0], "host", Candidate.of(GENERIC, **choices))
    other = graph_of(model(tmp_path, "matmul"))
    with pytest.raises(UnsupportedOperator, match="do not fit block matmul"):
        candidate = Candidate.of(GENERIC, intrinsics=DSP, pixels=4)
        lower(other, other.operators[0], "host", candidate)
