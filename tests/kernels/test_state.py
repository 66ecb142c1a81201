"""Operators that keep a state between runs: run after run as the reference, also after a reset."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from small_models import int8, int32, join, lstm, ring_buffer, sample_inputs, sliced, svdf
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import Samples
from utvm_deploy.results.verifying.on_board import verify

RUNS = 6


def sequences(m: ModelWriter) -> None:
    """Sequences of one step and of several, both orders, several rows, a clipped cell."""
    m.output(lstm(m, m.input((1, 1, 6), 0.05, -3), 5))
    m.output(lstm(m, m.input((1, 7, 6), 0.05, -3), 8, seed=2))
    m.output(lstm(m, m.input((3, 4, 2), 0.02, 11), 3, seed=3))
    m.output(lstm(m, m.input((4, 3, 2), 0.02, 11), 3, time_major=True, seed=4))
    m.output(lstm(m, m.input((1, 9, 4), 0.1, 0), 6, clip=0.7, seed=5))
    x = lstm(m, m.input((1, 5, 4), 0.1, 0), 6, seed=6)
    m.output(lstm(m, x, 4, seed=7))


def keyword_model(m: ModelWriter) -> None:
    """Two layers with state, and some without, as keyword spotting has them."""
    x = m.input((1, 20), 0.05, -3)
    y = svdf(m, x, 8, 5, 1)
    z = svdf(m, y, 6, 3, 2, seed=2)
    weights = np.random.default_rng(3).integers(-127, 128, (4, 6)).astype(np.int8)
    m.output(m.softmax(m.fully_connected(z, weights, scale=0.1)))


def single_steps(m: ModelWriter) -> None:
    """The smallest memory, several rows, several ranks."""
    for batch, inputs, units, memory, rank in ((1, 1, 1, 1, 1), (3, 4, 2, 1, 2), (2, 7, 5, 9, 3)):
        m.output(svdf(m, m.input((batch, inputs), 0.05, 4), units, memory, rank, seed=units))


def states_of_bytes(m: ModelWriter) -> None:
    """As TFLite Micro's keyword_scrambled_8bit has them."""
    y = svdf(m, m.input((1, 20), 0.05, -3), 8, 5, 1, of_bytes=True)
    m.output(svdf(m, y, 6, 3, 2, seed=2, of_bytes=True))
    m.output(svdf(m, m.input((3, 7), 0.05, 4), 5, 1, 3, seed=3, of_bytes=True))


def variants(m: ModelWriter, *, every: bool = True) -> None:
    """Coupled gates, peepholes, norms and projections, alone and together.

    Without ``every``: of the first three, none and each two.
    """
    for seed, flags in enumerate(itertools.product((False, True), repeat=3), 20):
        couples, peeps, norms = flags
        if not every and sum(flags) % 2:
            continue
        x = m.input((2, 3, 5), 0.05, -3)
        m.output(lstm(m, x, 6, couples=couples, peeps=peeps, norms=norms, seed=seed))
        if not peeps:
            m.output(lstm(m, x, 6, couples=couples, norms=norms, outputs=4, seed=seed))
    x = m.input((3, 2, 5), 0.05, 7)
    m.output(lstm(m, x, 7, peeps=True, outputs=7, time_major=True, seed=40))
    m.output(lstm(m, x, 7, outputs=9, time_major=True, clip=0.5, projection_clip=0.3, seed=41))
    m.output(lstm(m, x, 33, norms=True, outputs=3, seed=42))
    # GCC warned here that a gate had no value.
    m.output(lstm(m, m.input((1, 1, 10), 0.05, -3), 1, outputs=4, time_major=True, seed=43))


def wide_sequences(m: ModelWriter) -> None:
    """LSTMs of int16 by int8 weights, whose sums fit 32 bits or do not."""

    def x(shape: tuple[int, ...]) -> int:
        number = m.tensor(shape, "int16", 3 / 32768, 0)
        m.inputs.append(number)
        return number

    m.output(lstm(m, x((2, 3, 5)), 6, seed=50))
    m.output(lstm(m, x((3, 2, 8)), 7, time_major=True, clip=0.7, seed=51))
    m.output(lstm(m, x((1, 1, 700)), 3, seed=52))


def ring_buffers(m: ModelWriter) -> None:
    """As streaming keyword spotting writes them: the last frames before every convolution."""
    rng = np.random.default_rng(9)
    x = m.input((1, 3, 1, 10), 0.05, -128)
    for kept, channels in ((4, 8), (2, 6)):
        x = ring_buffer(m, x, np.full((1, kept, 1, m.tensors[x].shape[3]), -128, np.int8))
        weights = int8(rng, channels, kept + 1, 1, m.tensors[x].shape[3])
        x = m.conv2d(x, weights, int32(rng, channels), padding="VALID", scale=0.2, zero_point=-128)
    # The last one keeps the window, not what is left of it, and begins with any bytes.
    shape = (1, 9, 1, 6)
    handle = m.variable("last", int8(rng, *shape), 0.2, -128)
    left = sliced(m, m.read(handle, shape, 0.2, -128), 3, 6)
    window = join(m, left, x)
    m.assign(handle, window)
    m.output(m.fully_connected(m.reshape(window, (1, 54)), int8(rng, 2, 54), int32(rng, 2)))


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "build",
    [
        *(keyword_model, single_steps, states_of_bytes, sequences, variants),
        *(wide_sequences, ring_buffers),
    ],
)
def test_runs_continue_each_other(build, device: Device, tmp_path: Path) -> None:
    m = ModelWriter()
    # GCC takes seconds for all of them: boards get fewer, of the same C.
    build(m, **({"every": device.board.is_host} if build is variants else {}))
    path = m.save(tmp_path / "model.tflite")
    samples = [sample_inputs(m, seed) for seed in range(RUNS)]
    expected = run_reference(path, samples).outputs
    assert len({outputs[-1].tobytes() for outputs in expected}) > RUNS // 2
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    assert model.compiled.states
    for _ in range(2):
        for sample, outputs in zip(samples, expected, strict=True):
            got, _ = model.run(sample)
            for ours, theirs in zip(got, outputs, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        model.reset_state()


@pytest.mark.spread(1, among=("mps3_an547",))
def test_verify_runs_layers_from_the_same_state(device: Device, tmp_path: Path) -> None:
    m = ModelWriter()
    keyword_model(m)
    path = m.save(tmp_path / "model.tflite")
    inputs = tuple(tuple(sample_inputs(m, seed)) for seed in range(RUNS))
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    found = verify(model, path, Samples(inputs=inputs, outputs=None, origin="random"))
    assert found.ok and found.samples_run == RUNS


def test_ring_buffers_are_not_copied(tmp_path: Path) -> None:
    m = ModelWriter()
    ring_buffers(m)
    compiled = utvm_deploy.compile(m.save(tmp_path / "words.tflite"), "host")
    assert [state.size_bytes for state in compiled.states] == [4 * 10, 2 * 8, 9 * 6]
    assert not any("VARIABLE" in layer.kind for layer in compiled.layers)
    assert "fill(arena + " in compiled.sources["words.c"]
    assert ", words_weights.state_2);" in compiled.sources["words.c"]


def test_a_product_of_a_variable_is_copied_into_it(tmp_path: Path) -> None:
    """Made in the state, it would write over what the product still reads."""
    rng = np.random.default_rng(5)
    m = ModelWriter()
    handle = m.variable("last", int8(rng, 1, 16), 0.1)
    sum_ = m.add(m.read(handle, (1, 16)), m.input((1, 16), 0.1, 0))
    made = m.fully_connected(m.read(handle, (1, 16)), int8(rng, 16, 16))
    m.assign(handle, made)
    m.output(sum_)
    compiled = utvm_deploy.compile(m.save(tmp_path / "product.tflite"), "host")
    assert [layer.kind for layer in compiled.layers].count("ASSIGN_VARIABLE") == 1


def test_what_the_header_says(tmp_path: Path) -> None:
    m = ModelWriter()
    keyword_model(m)
    compiled = utvm_deploy.compile(m.save(tmp_path / "words.tflite"), "host")
    header = compiled.sources["words.h"]
    assert "void words_reset(uint8_t *arena);" in header
    assert f"It keeps\n//   {2 * (8 * 5 + 12 * 3)} bytes of state between runs" in header
    assert "keeps nothing between runs" not in header


def test_state_of_two_operators(tmp_path: Path) -> None:
    m = ModelWriter()
    keyword_model(m)
    first, second = (op for op in m.operators if op.kind == "SVDF")
    second.inputs[4] = first.inputs[4]
    m.tensors[second.inputs[2]].shape = (12, 3)
    m.tensors[first.inputs[4]].shape = (1, 36)
    with pytest.raises(ModelError, match="state"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_peepholes_of_projected_cells_are_refused(tmp_path: Path) -> None:
    """The reference looks at as many cells as there are outputs."""
    m = ModelWriter()
    m.output(lstm(m, m.input((1, 2, 5)), 6, peeps=True, outputs=4))
    with pytest.raises(UnsupportedOperator, match="peepholes"):
        load_model(m.save(tmp_path / "model.tflite"))


def test_half_of_the_norms(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(lstm(m, m.input((1, 2, 5)), 6, norms=True))
    m.operators[-1].inputs[21] = -1
    with pytest.raises(ModelError, match="of its inputs"):
        load_model(m.save(tmp_path / "model.tflite"))
