"""Candidates: as data, as what lower() takes, and what a space lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.targets.table import CORES


def small_graph(tmp_path: Path) -> Graph:
    m = ModelWriter()
    x = m.input((1, 6, 6, 4), 0.1, 5)
    x = m.conv2d(x, np.full((4, 3, 3, 4), 3, np.int8), np.ones(4, np.int32), scale=0.5)
    m.output(m.softmax(m.reshape(m.max_pool(x, 2), (1, 36))))
    return load_model(m.save(tmp_path / "model.tflite"))


def test_a_candidate_survives_json() -> None:
    candidate = Candidate.of("dsp", step=16, pixels=12, tile="3x2")
    assert candidate.choices == (("pixels", 12), ("step", 16), ("tile", "3x2"))
    assert Candidate.from_json(candidate.to_json()) == candidate
    assert candidate.label == "dsp pixels=12 step=16 tile=3x2"
    assert candidate.number("step") == 16 and candidate.choice("absent") is None
    with pytest.raises(ValueError, match=r"tile=3x2 .* is not an integer"):
        candidate.number("tile")


@pytest.mark.parametrize(
    "value", [None, {}, {"family": 1}, {"family": "dsp", "choices": {"a": 1.5}}]
)
def test_what_is_no_candidate(value: object) -> None:
    with pytest.raises(ValueError, match=r"candidate|choice"):
        Candidate.from_json(value)


def test_choices_are_sorted() -> None:
    with pytest.raises(ValueError, match="not sorted"):
        Candidate("dsp", (("b", 1), ("a", 2)))


@pytest.mark.parametrize("core", sorted(CORES))
def test_every_listed_candidate_has_a_kernel(tmp_path: Path, core: str) -> None:
    graph = small_graph(tmp_path)
    for operator in graph.operators:
        candidates = space(graph, operator, core)
        assert candidates and len(set(candidates)) == len(candidates)
        kernels = [lower(graph, operator, core, candidate).kernel for candidate in candidates]
        # What is compiled without records comes first.
        assert kernels[0] == lower(graph, operator, core).kernel


def test_candidates_that_do_not_fit(tmp_path: Path) -> None:
    graph = small_graph(tmp_path)
    convolution = graph.operators[0]
    assert families_for("cortex-m7") == ("dsp", "fpu", "generic")
    with pytest.raises(UnsupportedOperator, match="no kernels of family 'fpga'; it has dsp, fpu"):
        lower(graph, convolution, "cortex-m7", Candidate("fpga"))
    with pytest.raises(UnsupportedOperator, match="no kernel 'dsp' for SOFTMAX: the family has"):
        lower(graph, graph.operators[-1], "cortex-m7", Candidate("dsp"))
    # The generic kernel can be asked for where there is a better one.
    generic = lower(graph, convolution, "cortex-m7", Candidate("generic")).kernel
    assert generic == lower(graph, convolution).kernel
    assert generic != lower(graph, convolution, "cortex-m7").kernel


def graph_without_choices(tmp_path: Path) -> Graph:
    m = ModelWriter()
    x = m.input((1, 6, 6, 4), 0.1, 5)
    x = m.depthwise_conv2d(x, np.full((1, 3, 3, 4), 3, np.int8), np.ones(4, np.int32), scale=0.5)
    x = m.add(x, m.max_pool(x, 1), scale=0.9)
    x = m.reshape(m.max_pool(x, 2), (1, 36))
    m.output(m.fully_connected(x, np.full((3, 36), 3, np.int8), np.ones(3, np.int32), scale=3.0))
    return load_model(m.save(tmp_path / "model.tflite"))


@pytest.mark.parametrize("choices", [{"tile": "2x2"}, {"pixels": 6}, {"method": "columns"}])
@pytest.mark.parametrize(
    ("core", "kind"),
    [
        ("cortex-m3", "DEPTHWISE_CONV_2D"),
        ("cortex-m0", "FULLY_CONNECTED"),
        ("cortex-m4", "ADD"),
        ("cortex-m4", "MAX_POOL_2D"),
        ("cortex-m55", "DEPTHWISE_CONV_2D"),
        ("cortex-m55", "FULLY_CONNECTED"),
    ],
)
def test_kernels_without_choices_refuse_every_choice(
    tmp_path: Path, core: str, kind: str, choices: dict[str, int | str]
) -> None:
    graph = graph_without_choices(tmp_path)
    operator = next(one for one in graph.operators if one.kind == kind)
    family = families_for(core)[0]
    assert lower(graph, operator, core, Candidate(family)).family == family
    with pytest.raises(UnsupportedOperator, match=rf"no kernel '{family} \w+=\w+' for {kind}: \w+"):
        lower(graph, operator, core, Candidate.of(family, **choices))


@pytest.mark.parametrize(
    ("number", "choices", "reason"),
    [
        (0, {"tile": "3x9"}, "has no tile 3x9; its tiles are 1x1, 1x2, 1x4, 2x1"),
        (0, {"tile": 4}, "tile=4 is not a text"),
        (0, {"unroll": 3}, "loops are not unrolled by 3, but by 2, 4, 8"),
        (0, {"step": 4}, "there is no choice 'step'; the choices are: tile, unroll"),
        (2, {"tile": "1x1"}, "has no tile 1x1; it has no tiles"),
        (3, {"unroll": 2}, "is a C routine, which has no loops to unroll"),
    ],
)
def test_portable_kernels_refuse_what_they_cannot_do(
    tmp_path: Path, number: int, choices: dict[str, int | str], reason: str
) -> None:
    graph = small_graph(tmp_path)
    candidate = Candidate.of("generic", **choices)
    with pytest.raises(UnsupportedOperator, match=rf"^no kernel 'generic .*{reason}"):
        lower(graph, graph.operators[number], "cortex-m7", candidate)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    ("core", "choices"),
    [
        ("cortex-m3", {"pixels": 0}),
        ("cortex-m55", {"pixels": 0}),
        ("cortex-m4", {"pixels": 0}),
        ("cortex-m4", {"method": "columns", "rows": 0}),
    ],
)
def test_what_is_done_at_a_time_is_at_least_one(
    tmp_path: Path, core: str, choices: dict[str, int | str], value: int
) -> None:
    # A record may come from anybody, and a kernel of -1 pixels at a time computes nothing.
    graph = small_graph(tmp_path)
    given = {name: value if one == 0 else one for name, one in choices.items()}
    candidate = Candidate.of(families_for(core)[0], **given)
    with pytest.raises(UnsupportedOperator, match=rf"={value} is less than 1"):
        lower(graph, graph.operators[0], core, candidate)
