"""The recorded rows: their shapes, and which layers they are found for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from utvm_deploy.base.errors import BenchError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.macs import macs
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.results.comparing.engines import EngineRun
from utvm_deploy.results.comparing.recorded import (
    check_recorded_core,
    compare_with_recorded,
    layer_shape,
    recorded_rows,
)
from utvm_deploy.results.profiling.layer_costs import LayerProfile, Profile
from utvm_deploy.results.profiling.placement import Placement

CIFAR = data_dir("models") / "cifar10_cnn.tflite"
PLACEMENT = Placement("ram", "ram", "ram", "ram", "flash", "dtcm")


@cache
def compiled_for_m7(model: Path) -> CompiledModel:
    return compile_model(model, load_board("mps2_an500"), CompileOptions(kernels="generic"))


def run_of(model: Path, unit: str = "instructions") -> EngineRun:
    """What a run would give if every layer took 1000 ticks."""
    compiled = compiled_for_m7(model)
    layers = tuple(
        LayerProfile(layer, ticks=1000, ticks_median=1000, figures={unit: 1000})
        for layer in compiled.layers
    )
    found = Profile(
        board=compiled.board,
        model=compiled.name,
        tick_unit=unit,
        ticks_per_second=1,
        is_modelled=False,
        runs=1,
        layers=layers,
        ticks=1000 * len(layers),
        ticks_median=1000 * len(layers),
        figures={unit: 1000 * len(layers)},
        macs=compiled.macs,
        arena_bytes=1,
        weights_bytes=2,
        flash_bytes=3,
        ram_bytes=4,
        placement=PLACEMENT,
    )
    return EngineRun(compiled, found, ())


def test_all_rows_are_read_with_their_figures() -> None:
    rows = recorded_rows()
    assert len(rows) == 44
    (row,) = [row for row in rows.values() if row.name == "ic_3x3x32x32"]
    assert row.figures["instructions"] == 4546908
    assert row.figures["core"] == 3152659
    assert row.figures["cycles"] == 3152659 + 22 * (38393 + 2313)


def test_the_cifar_network_finds_its_rows() -> None:
    graph = simplify(load_model(CIFAR))
    rows = recorded_rows()
    found = {}
    for operator in graph.operators:
        shape = layer_shape(graph, operator)
        if shape is not None:
            found[rows[shape].name] = macs(graph, operator)
    assert found == {
        "cifar_c1_5x5x3x32": 2457600,
        "cifar_c2_5x5x32x32": 6553600,
        "cifar_c3_5x5x32x64": 3276800,
        "cifar_fc1024x10": 10240,
    }


@pytest.mark.parametrize(
    ("model", "unmatched"),
    [
        ("ad01_int8", set()),
        ("kws_ref_model", {"AVERAGE_POOL_2D", "SOFTMAX"}),
        ("pretrainedResnet_quant", {"ADD", "AVERAGE_POOL_2D", "SOFTMAX"}),
        # Without dead channels, its later layers have other shapes.
        (
            "vww_96_int8",
            {"AVERAGE_POOL_2D", "SOFTMAX", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"},
        ),
    ],
)
def test_shared_models_find_their_rows(
    shared_models: Path, model: str, unmatched: set[str]
) -> None:
    graph = simplify(load_model(shared_models / f"{model}.tflite"))
    missing = set()
    for operator in graph.operators:
        shape = layer_shape(graph, operator)
        if shape is None or shape not in recorded_rows():
            missing.add(operator.kind)
    assert missing - {"RESHAPE"} == unmatched


def test_recorded_figures_are_labelled_and_compared_where_units_match() -> None:
    graph = simplify(load_model(CIFAR))
    found = compare_with_recorded(run_of(CIFAR), graph, "none")
    assert found.source == "recorded" and "recorded" in found.engine
    assert found.theirs is None and found.their_size is None
    assert found.figures == ("instructions",)
    assert [layer.theirs is not None for layer in found.layers] == [
        True, False, True, False, True, False, True
    ]  # fmt: skip
    assert found.layers[0].their_kernel == "cifar_c1_5x5x3x32"
    assert found.matched("instructions") == (4000, 7024385 + 11888092 + 5730356 + 19844)
    assert found.ratio("instructions") == pytest.approx(24662677 / 4000)
    assert all(layer.differing_bytes is None for layer in found.layers)
    # The figures of cycles are others.
    cycles = compare_with_recorded(run_of(CIFAR, "cycles"), graph, "none")
    assert cycles.layers[0].theirs == {"cycles": 4808352 + 22 * (14477 + 1658)}


def test_no_row_fits() -> None:
    digits = data_dir("models") / "digits.tflite"
    graph = simplify(load_model(digits))
    with pytest.raises(BenchError, match="no layer of digits has a recorded"):
        compare_with_recorded(run_of(digits), graph, "none")
    with pytest.raises(BenchError, match=r"those of a cortex-m7, and .* is a cortex-m4"):
        check_recorded_core(load_board("mps2_an386"))
    with pytest.raises(BenchError, match="recorded CMSIS-NN figure in nanoseconds"):
        compare_with_recorded(run_of(CIFAR, "nanoseconds"), graph_of(CIFAR), "none")


def graph_of(path: Path) -> Graph:
    return simplify(load_model(path))
