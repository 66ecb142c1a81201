"""Layers of which most weights are zeros: all forms, odd shapes, against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fenced import fenced_device, placed, source_of, stretch, watched
from kernel_harness import check
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import families_for, lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.native.sparse.packing import (
    FORMS,
    ITEMS,
    LANES,
    VECTORS,
    Packed,
    packed,
    smallest,
)
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.results.verifying.on_board import verify
from utvm_deploy.tuning.measuring.build import kernel_text

CORES = ("generic", "cortex-m0plus", "cortex-m7", "cortex-m55", "rv32imc_zve32x")


def pruned(
    rng: np.random.Generator, shape: tuple[int, int], zeros: float, block: int = 1
) -> np.ndarray:
    """Weights in which whole blocks of neighbours are zeros."""
    outputs, inputs = shape
    values = rng.integers(-128, 128, shape).astype(np.int8)
    is_kept = rng.random((outputs, -(-inputs // block))) >= zeros
    return values * np.repeat(is_kept, block, axis=1)[:, :inputs].astype(np.int8)


def made() -> ModelWriter:
    """Dense and pointwise layers of odd sizes; rows without any weight, and far blocks."""
    rng = np.random.default_rng(7)
    m = ModelWriter()

    def scales(channels: int) -> list[float]:
        return [float(one) for one in rng.uniform(0.01, 0.1, channels).astype(np.float32)]

    def bias(channels: int) -> np.ndarray:
        return rng.integers(-900, 900, channels).astype(np.int32)

    dense = [
        ((1, 128), 40, 0.9, 4),
        ((3, 75), 23, 0.7, 1),
        ((2, 1300), 5, 0.999, 4),
        ((1, 700), 6, 0.995, 1),
        ((1, 96), 50, 0.85, 2),
        ((1, 512), 3, 1.0, 4),
    ]
    for (rows, inputs), outputs, zeros, block in dense:
        values = pruned(rng, (outputs, inputs), zeros, block)
        for w in (scales(outputs), 0.02):
            x = m.input((rows, inputs), scale=0.05, zero_point=7)
            y = m.fully_connected(x, values, bias(outputs), weight_scale=w, scale=0.5)
            m.output(y)
    for (rows, columns, inputs), outputs, zeros, block in [
        ((5, 3, 64), 32, 0.9, 4),
        ((3, 3, 33), 41, 0.7, 1),
        ((1, 1, 128), 17, 0.95, 1),
        ((2, 7, 68), 19, 0.9, 4),
    ]:
        values = pruned(rng, (outputs, inputs), zeros, block).reshape(outputs, 1, 1, inputs)
        x = m.input((1, rows, columns, inputs), scale=0.05, zero_point=-9)
        given = {"scale": 0.3, "zero_point": -4, "weight_scale": scales(outputs)}
        m.output(m.conv2d(x, values, bias(outputs), activation="RELU", **given))
    return m


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_bytes_are_those_of_the_reference(core: str, tmp_path: Path) -> None:
    assert check(made(), tmp_path, core=core, samples=2) == len(made().operators)


@pytest.mark.tools
@pytest.mark.parametrize("core", [*CORES, "cortex-m3"])
@pytest.mark.parametrize("zeros", [0.0, 0.9])
def test_outputs_that_are_always_the_same(core: str, zeros: float, tmp_path: Path) -> None:
    """A quantizer gives the outputs of pruned rows tiny scales."""
    rng = np.random.default_rng(2)
    m = ModelWriter()
    for tiny in (1e-12, 3e-9):
        scales = [float(np.float32(one)) for one in rng.uniform(0.01, 0.1, 40)]
        scales[3] = scales[17] = tiny
        values = pruned(rng, (40, 64), zeros, 4)
        values[3] = 0
        bias = rng.integers(-90, 90, 40).astype(np.int32)
        x = m.input((1, 64), scale=0.05, zero_point=7)
        given = {"scale": 0.5, "zero_point": -3, "weight_scale": scales}
        m.output(m.fully_connected(x, values, bias, **given))
    check(m, tmp_path, core=core, samples=2)
    graph = load_model(m.save(tmp_path / "model.tflite"))
    family = "sparse" if zeros else families_for(core)[0]
    assert {lower(graph, one, core).family for one in graph.operators} == {family}


@pytest.mark.tools
@pytest.mark.parametrize("form", FORMS)
def test_each_form(form: str, tmp_path: Path) -> None:
    check(made(), tmp_path, core="cortex-m7", family=f"sparse form={form}", samples=2)


def test_all_layers_are_packed(tmp_path: Path) -> None:
    graph = load_model(made().save(tmp_path / "model.tflite"))
    assert {lower(graph, one, "cortex-m7").family for one in graph.operators} == {"sparse"}
    for one in graph.operators:
        listed = space(graph, one, "cortex-m7")
        assert listed[0].family == "sparse" and len({one.family for one in listed}) == 3


@pytest.mark.tools
def test_a_layer_that_pads_has_all_zeros(tmp_path: Path) -> None:
    """A PAD becomes the padding of the layer behind it."""
    m = ModelWriter()
    x = m.pad(m.input((1, 4, 5, 64), scale=0.05, zero_point=3), ((0, 0), (1, 2), (1, 0), (0, 0)))
    values = pruned(np.random.default_rng(5), (32, 64), 0.9).reshape(32, 1, 1, 64)
    m.output(m.conv2d(x, values, np.arange(32, dtype=np.int32), weight_scale=0.02, scale=0.3))
    found = utvm_deploy.verify(m.save(tmp_path / "model.tflite"), "host", samples=2)
    assert found.ok, found.found


def one_dense(zeros: float, block: int, shape: tuple[int, int] = (128, 512)) -> ModelWriter:
    """A fully connected layer of 512x128."""
    values = pruned(np.random.default_rng(3), shape, zeros, block)
    m = ModelWriter()
    x = m.input((1, shape[1]), scale=0.05, zero_point=3)
    bias = np.arange(shape[0], dtype=np.int32)
    m.output(m.fully_connected(x, values, bias, scale=0.9, weight_scale=0.02))
    return m


@pytest.mark.parametrize(("zeros", "block", "most"), [(0.9, 4, 10_200), (0.9, 1, 0.3 * 65_536)])
def test_pruned_weights_are_small(zeros: float, block: int, most: float, tmp_path: Path) -> None:
    path = one_dense(zeros, block).save(tmp_path / "model.tflite")
    for level in ("time", "balanced", "size"):
        assert utvm_deploy.compile(path, "mps2_an500", optimize=level).weights_bytes <= most


def test_the_flash_rate_says_whether_zeros_are_packed(tmp_path: Path) -> None:
    path = one_dense(0.7, 1).save(tmp_path / "model.tflite")
    found = {
        rate: utvm_deploy.compile(path, "mps2_an500", flash_rate=rate).layers[0].engine
        for rate in (0.0, 4.0)
    }
    assert found == {0.0: "dsp", 4.0: "sparse"}


def test_an_estimate_packs_zeros_where_a_compile_does(tmp_path: Path) -> None:
    path = one_dense(0.9, 4).save(tmp_path / "model.tflite")
    compiled = utvm_deploy.compile(path, "mps2_an500")
    found = utvm_deploy.estimate(path, "mps2_an500")
    (layer,) = found.table
    assert layer["weights_bytes"] == pytest.approx(compiled.weights_bytes, rel=0.05)
    assert 15_000 < layer["cycles"] < 30_000 and layer["is_known"]


def test_inspect_says_what_pruning_brings(tmp_path: Path) -> None:
    path = one_dense(0.9, 4).save(tmp_path / "pruned.tflite")
    found = utvm_deploy.inspect(path).found
    (operator,) = found.operators
    assert operator.zeros == pytest.approx(0.9, abs=0.02)
    assert operator.packed_bytes is not None and operator.packed_bytes < 9_000
    assert found.pruning is not None
    assert (found.pruning.weights_bytes, found.pruning.packed_bytes) == (
        65_536,
        operator.packed_bytes,
    )
    whole = one_dense(0.0, 1).save(tmp_path / "whole.tflite")
    bringing = utvm_deploy.inspect(whole).found.pruning
    assert bringing is not None and bringing.packed_bytes == 65_536
    assert bringing.pruned_bytes == pytest.approx(operator.packed_bytes, rel=0.05)


def test_packing_loses_nothing_and_is_never_larger() -> None:
    rng = np.random.default_rng(9)
    for shape, zeros, block in [
        ((7, 600), 0.99, 4), ((3, 4000), 0.999, 1), ((40, 40), 0.65, 1), ((64, 64), 0.92, 4),
        ((9, 300), 1.0, 1),
    ]:  # fmt: skip
        values = pruned(rng, shape, zeros, block)
        best = smallest(values)
        assert best is not None and best.table_bytes < values.nbytes
        for form in FORMS:
            one = packed(values, form)
            assert one is not None and one.table_bytes >= best.table_bytes
            assert np.array_equal(unpacked(one, shape), values)
        gathered = packed(values, VECTORS)
        assert (gathered is None) == (shape[1] > 1024)
        assert gathered is None or np.array_equal(unpacked(gathered, shape), values)
    assert smallest(pruned(rng, (128, 128), 0.5)) is None
    assert smallest(pruned(rng, (8, 16), 0.9)) is None
    # Short rows, filled up to fours of blocks, would be larger than all weights.
    for inputs, form in ((16, "blocks"), (512, VECTORS)):
        best = smallest(pruned(rng, (400, inputs), 0.8, 4), gathers=True)
        assert best is not None and best.form == form


def unpacked(one: Packed, shape: tuple[int, int]) -> np.ndarray:
    """The matrix that was packed."""
    dense = np.zeros(shape, np.int8)
    if one.form == "bitmap":
        bits = np.unpackbits(one.steps.astype(">u4").view(np.uint8)).reshape(shape[0], -1)
        dense[bits[:, : shape[1]] == 1] = one.weights[: int(bits.sum())]
        return dense
    size, item = ITEMS[one.form], 0
    items = LANES if one.form == VECTORS else 1
    for row, count in zip(dense, (items * one.counts).tolist(), strict=True):
        places = one.steps[item : item + count].astype(int)
        places = places if one.form == VECTORS else np.cumsum(places)
        for n, place in enumerate(places, item):
            row[size * place : size * (place + 1)] += one.weights[size * n : size * (n + 1)]
        item += count
    return dense


def test_a_form_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    graph = load_model(one_dense(0.9, 1, (64, 130)).save(tmp_path / "model.tflite"))
    for form, told in (("blocks", "rows of 130 weights"), ("tiles", "there is no form 'tiles'")):
        with pytest.raises(UnsupportedOperator, match=told):
            lower(graph, graph.operators[0], "generic", Candidate.of("sparse", form=form))


@pytest.mark.emulator
def test_gathered_blocks_stay_in_their_tables(tmp_path: Path) -> None:
    """Of a core with vectors; places are loaded a turn ahead, the last time behind all."""
    m, rng = ModelWriter(), np.random.default_rng(11)
    for rows, inputs, outputs, zeros in [(1, 512, 21, 0.8), (3, 1024, 9, 0.95), (2, 64, 40, 0.9)]:
        values = pruned(rng, (outputs, inputs), zeros, 4)
        values[5] = 0
        x = m.input((rows, inputs), scale=0.05, zero_point=7)
        bias = rng.integers(-900, 900, outputs).astype(np.int32)
        m.output(m.fully_connected(x, values, bias, weight_scale=0.02, scale=0.5))
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    (sample,) = run_reference(path, random_samples(graph, 1).inputs).tensors
    with fenced_device("mps3_an547") as (fence, device):
        for operator in graph.operators:
            call = lower(graph, operator, device.board.cpu.kernel_core)
            assert call.family == "sparse" and f"_{VECTORS}_" in call.kernel.name
            function = lower_kernel(call.kernel, "kernel", "cortex-m55").function
            with device.load_module(kernel_text([function])) as module:
                made, arguments = placed(device, graph, operator, call, function, sample)
                own = [*(stretch(one.block) for one in made), stretch(module.block)]
                with watched(fence, device, module["kernel"].address, own) as crossings:
                    module["kernel"](*arguments)
                assert crossings == []
                expected = sample[source_of(graph, operator)]
                np.testing.assert_array_equal(made[0].numpy(), expected)


@pytest.mark.each_core
def test_a_network_on_boards(device: Device, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    m = ModelWriter()
    x = m.input((1, 6, 7, 64), scale=0.05, zero_point=3)
    given: dict[str, Any] = {"scale": 0.1, "zero_point": -5, "weight_scale": 0.02}
    for outputs, zeros, block, activation in [(48, 0.8, 4, "RELU6"), (36, 0.8, 1, "NONE")]:
        values = pruned(rng, (outputs, m.tensors[x].shape[3]), zeros, block)
        bias = rng.integers(-90, 90, outputs).astype(np.int32)
        x = m.conv2d(x, values.reshape(outputs, 1, 1, -1), bias, activation=activation, **given)
    values = pruned(rng, (9, 6 * 7 * 36), 0.95, 1)
    values[4] = 0
    given["weight_scale"] = [0.02] * 4 + [1e-12] + [0.03] * 4
    m.output(m.fully_connected(x, values, np.arange(9, dtype=np.int32) * 40, **given))
    path = m.save(tmp_path / "model.tflite")
    samples = random_samples(load_model(path), 2)
    compiled = utvm_deploy.compile(path, device.board, flash_rate=100_000)
    assert {one.engine for one in compiled.layers} == {"sparse"}
    found = verify(device.load(compiled), path, samples)
    assert found.ok, found
