"""``--stream``: the answers of a stream are those of the network over the whole recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_models
from signal_cases import options_of
from stream_nets import CHANNELS, FEATURES, Net, random_net
from tflite_serializer import OperatorSpec
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files.given_shapes import Stream, stream_of
from utvm_deploy.frontend.files.tflite_choice import Choice
from utvm_deploy.frontend.files.tflite_chosen import chosen_file
from utvm_deploy.graph.stream import METADATA, StreamFacts
from utvm_deploy.oracle.with_custom import run_oracle

pytestmark = pytest.mark.tools


def facts_of(data: bytes) -> StreamFacts:
    from utvm_deploy.frontend.files import tflite_schema as schema

    model = schema.read_model(data)
    (found,) = (one.buffer for one in model.metadata if one.name == METADATA.encode())
    return StreamFacts.of_json(bytes(model.buffers[found].data).decode())


def streamed(data: bytes, recording: np.ndarray, hop: int, axis: int = 1) -> list[np.ndarray]:
    """The answers of all runs over a recording, by LiteRT's reference kernels."""
    from utvm_deploy.oracle.program import Program

    program = Program(data)
    parts = np.split(recording, recording.shape[axis] // hop, axis)
    return [program.one([part])[program.outputs[0]] for part in parts]


def whole(data: bytes, recording: np.ndarray) -> np.ndarray:
    from utvm_deploy.oracle.program import Program

    program = Program(data)
    return np.asarray(program.one([recording])[program.outputs[0]])


@pytest.mark.parametrize("seed", range(24))
def test_random_nets_equal_the_whole_recording(seed: int) -> None:
    from utvm_deploy.frontend.streams.rewrite import with_stream

    hop = 16
    made = with_stream(random_net(seed, 48), hop, 1)
    facts, rng = facts_of(made), np.random.default_rng(seed)
    columns = 160
    recording = rng.integers(-128, 128, (1, columns, FEATURES, CHANNELS)).astype(np.int8)
    wanted = whole(random_net(seed, columns), recording)
    got = np.concatenate(streamed(made, recording, hop), axis=1)
    late = facts.shift * wanted.shape[1] // columns
    assert wanted.shape[1] - late > 0
    assert np.array_equal(got[:, late:], wanted[:, : wanted.shape[1] - late])


def grown_net(seed: int, columns: int) -> bytes:
    """Padding with several values, at both ends and with no slice behind it, next to that of SAME.

    It has more answers than columns.
    """
    m = ModelWriter()
    net = Net(m, np.random.default_rng(seed))
    x = m.input((1, columns, FEATURES, CHANNELS), zero_point=5)
    for _ in range(3):
        before, after, value = (int(one) for one in net.rng.integers(0, 4, 3))
        inputs = [x, m.constant(np.array([[0, 0], [before, after], [0, 0], [0, 0]], np.int32))]
        given = m.tensors[x]
        value = m.constant(np.full((), value, np.int8), given.scales[0], given.zero_points[0])
        shape = (1, given.shape[1] + before + after, FEATURES, CHANNELS)
        x = m.node("PADV2", [*inputs, value], shape, ("PadV2Options", {}))
        m.tensors[x].scales, m.tensors[x].zero_points = given.scales, given.zero_points
        kind = net.rng.integers(3)
        if kind == 2:
            x = m.max_pool(x, (3, 2), stride=(1, 1), padding="SAME")
        else:
            x = net.conv(x, 3, padding=("SAME", "VALID")[kind])
    m.output(x)
    return m.to_bytes()


@pytest.mark.parametrize("write", [random_net, grown_net])
@pytest.mark.parametrize("seed", range(16))
def test_a_recording_that_ends_gives_all_answers(write: Callable[..., bytes], seed: int) -> None:
    """Those of the whole network, padded at its end, whatever the columns behind the end hold."""
    from utvm_deploy.frontend.streams.rewrite import with_stream
    from utvm_deploy.oracle.program import Program

    hop = 32 if seed % 2 else 16
    made = with_stream(write(seed, 48), hop, 1, end_input=True)
    facts, rng = facts_of(made), np.random.default_rng(seed)
    program = Program(made)
    for columns in (16, 48, 112, 160):
        recording = rng.integers(-128, 128, (1, columns, FEATURES, CHANNELS)).astype(np.int8)
        wanted = whole(write(seed, columns), recording)
        runs = -(-(columns + facts.behind) // hop)
        junk = rng.integers(-128, 128, (1, runs * hop - columns, FEATURES, CHANNELS), np.int8)
        got = []
        for run, part in enumerate(np.split(np.concatenate([recording, junk], 1), runs, 1)):
            behind = np.full(1, np.clip((run + 1) * hop - columns, 0, hop), np.int32)
            tensors = program.one([part, behind], is_first=run == 0)
            got.append(tensors[program.outputs[0]])
        stride = -(-columns // wanted.shape[1])
        late = facts.shift // stride
        answers = np.concatenate(got, axis=1)[:, late : late + wanted.shape[1]]
        assert np.array_equal(answers, wanted)


def pooled_net(columns: int) -> bytes:
    """A pool that leaves out what is padded, behind columns of zeros."""
    m = ModelWriter()
    padded = m.pad(m.input((1, columns, FEATURES, CHANNELS)), [(0, 0), (3, 0), (0, 0), (0, 0)])
    m.output(m.max_pool(padded, (2, 2), stride=(1, 1), padding="SAME"))
    return m.to_bytes()


def test_padding_along_another_axis_has_no_value_of_time() -> None:
    from utvm_deploy.frontend.streams.rewrite import with_stream

    recording = np.random.default_rng(1).integers(-128, 0, (1, 40, FEATURES, CHANNELS), np.int8)
    got = np.concatenate(streamed(with_stream(pooled_net(24), 4, 1), recording, 4), axis=1)
    assert np.array_equal(got, whole(pooled_net(40), recording)[:, :40])


def headed_net(head: str, columns: int, *, is_trunk: bool = True, is_head: bool = True) -> bytes:
    """Three layers, and behind them what takes all columns at once; or one of both parts."""
    m = ModelWriter()
    net = Net(m, np.random.default_rng(7))
    x = m.input((1, columns, FEATURES, CHANNELS), scale=0.15 if not is_trunk else 0.1)
    if is_trunk:
        x = net.conv(x, 4, stride=(2, 1), wide=3, zero_point=0)
        x = m.add(net.conv(x, 3, deep=True), x, scale=0.15)
    if is_head:
        net.rng = np.random.default_rng(11)
        columns = m.tensors[x].shape[1]
        if head == "mean":
            x = m.mean(x, [1, 2])
        elif head == "pool":
            x = m.reshape(m.average_pool(x, (columns, FEATURES)), (1, CHANNELS))
        elif head == "conv":
            x = net.conv(x, columns, wide=FEATURES, padding="VALID")
        elif head == "last":
            ends = [np.array(one, np.int32) for one in ([0, -1, 0, 0], [1, 0, 5, 4], [1] * 4)]
            options = ("StridedSliceOptions", {"ShrinkAxisMask": 2})
            shape = (1, FEATURES, CHANNELS)
            x = m.node("STRIDED_SLICE", [x, *map(m.constant, ends)], shape, options)
        else:
            x = m.reshape(x, (1, columns * FEATURES * CHANNELS))
            weights = np.random.default_rng(9).integers(-9, 9, (3, columns * FEATURES * CHANNELS))
            x = m.softmax(m.fully_connected(x, weights, np.zeros(3)))
    m.output(x)
    return m.to_bytes()


@pytest.mark.parametrize("head", ["mean", "pool", "conv", "last", "dense"])
@pytest.mark.parametrize("hop", [2, 6])
def test_heads_take_the_last_columns_of_a_window(head: str, hop: int) -> None:
    from utvm_deploy.frontend.streams.rewrite import with_stream

    window, columns = 24, 120
    made = with_stream(headed_net(head, window), hop, None)
    facts = facts_of(made)
    rng = np.random.default_rng(hop)
    recording = rng.integers(-128, 128, (1, columns, FEATURES, CHANNELS)).astype(np.int8)
    trunk = whole(headed_net(head, columns, is_head=False), recording)
    answers = streamed(made, recording, hop)
    compared = 0
    for run in range(facts.runs, len(answers) + 1):
        newest = (run * hop - facts.shift) // 2
        if newest < window // 2:
            continue
        taken = trunk[:, newest - window // 2 : newest]
        wanted = whole(headed_net(head, window // 2, is_trunk=False), taken)
        assert np.array_equal(answers[run - 1], wanted)
        compared += 1
    assert compared > 10 and facts.answers == 1 and facts.padded == 2


def test_windows_without_padding_are_equal() -> None:
    """Then a stream is the model on the last window of columns, and nothing has to be said."""
    from utvm_deploy.frontend.streams.rewrite import with_stream

    m = ModelWriter()
    net = Net(m, np.random.default_rng(3))
    x = m.input((1, 20, FEATURES, CHANNELS))
    x = net.conv(net.conv(x, 5, padding="VALID"), 3, stride=(2, 1), padding="VALID")
    m.output(m.mean(x, [1, 2]))
    made = with_stream(m.to_bytes(), 2, None)
    facts = facts_of(made)
    recording = np.random.default_rng(1).integers(-99, 99, (1, 60, FEATURES, CHANNELS), np.int8)
    answers = streamed(made, recording, 2)
    assert facts.difference == "" and facts.delay == 0 and facts.runs == 10
    for end in range(20, 61, 2):
        window = recording[:, end - 20 : end]
        # Its stride counts from the recording's first column.
        assert np.array_equal(answers[end // 2 - 1], whole(m.to_bytes(), window))


def test_the_command_line_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(headed_net("pool", 24))
    options = ["--stream", "--hop", "2", "--time-axis", "1"]
    assert main(["verify", str(path), *options, "--board", "host", "--samples", "3"]) == 0
    assert "all equal" in capsys.readouterr().out
    ended = [*options, "--end-input", "--board", "host", "--samples", "8"]
    assert main(["verify", str(path), *ended]) == 0
    told = capsys.readouterr().out
    assert "all equal" in told
    found = utvm_deploy.inspect(path, stream={"hop": 2, "axis": 1}).graph
    assert found is not None and found.tensors[found.inputs[0]].shape == (1, 2, 5, 4)
    for given, said in (
        (["--stream"], "--stream needs --hop N"),
        (["--hop", "2"], "give --stream, too"),
        (["--end-input"], "give --stream, too"),
        (["--stream", "--hop", "0"], "0"),
    ):
        assert main(["inspect", str(path), *given]) != 0
        assert said in capsys.readouterr().err


def _alone(kind: str, options: Any = None, axes: list[int] | None = None) -> Callable[[], bytes]:
    def write() -> bytes:
        m = ModelWriter()
        x = m.input((1, 12, FEATURES, CHANNELS))
        inputs = [x] if axes is None else [x, m.constant(np.array(axes, np.int32))]
        m.output(m.node(kind, inputs, m.tensors[x].shape, options))
        return m.to_bytes()

    return write


_both_ways = _alone("BIDIRECTIONAL_SEQUENCE_RNN", ("BidirectionalSequenceRNNOptions", {}))


def _two_inputs() -> bytes:
    m = ModelWriter()
    m.output(m.add(m.input((1, 12, 5, 4)), m.input((1, 12, 5, 4))))
    return m.to_bytes()


def _position_wise() -> bytes:
    m = ModelWriter()
    table = m.constant(np.ones((1, 12, 1, 1), np.int8), 0.1)
    m.output(m.add(m.input((1, 12, 5, 4)), table))
    return m.to_bytes()


def _only_pool() -> bytes:
    m = ModelWriter()
    m.output(m.mean(m.input((1, 12, FEATURES, CHANNELS)), [1, 2]))
    return m.to_bytes()


def _table() -> bytes:
    m = ModelWriter()
    x = m.tensor((1, 12), "int32")
    m.inputs.append(x)
    table = m.constant(np.ones((9, CHANNELS), np.int8), 0.1)
    m.output(m.node("GATHER", [table, x], (1, 12, CHANNELS), ("GatherOptions", {})))
    return m.to_bytes()


@pytest.mark.parametrize(
    ("write", "hop", "said"),
    [
        (_only_pool, 12, "a hop of 12 columns has the whole window of 12"),
        (_only_pool, 2**31, "a hop of 2,147,483,648 columns is too large"),
        (_table, 1, r"GATHER\) has no form in a stream"),
        (_alone("REVERSE_V2", ("ReverseV2Options", {}), [2, 1]), 1, "works along time"),
        (lambda: headed_net("mean", 24), 3, r"operator 0 \(CONV_2D\) .* give a multiple of 2"),
        (lambda: headed_net("mean", 24), 0, "a hop of 0 columns"),
        (_alone("REVERSE_V2", ("ReverseV2Options", {}), [1]), 1, "REVERSE_V2.*works along time"),
        (_alone("CUMSUM", ("CumsumOptions", {}), [1]), 1, "CUMSUM.*works along time"),
        (_alone("RELU"), 1, "alone, so a stream would keep nothing"),
        (_two_inputs, 1, "the model has 2 inputs"),
        (_both_ways, 1, "RNN.* also begins at the recording's end"),
        (lambda: lstm_net(12, "SAME"), 2, "LSTM.*would begin .* are late by 1"),
        (lambda: lstm_net(12, "VALID"), 2, "LSTM.*would begin .* are late by 2"),
        (_position_wise, 1, "another constant for each column"),
    ],
)
def test_what_is_no_stream(write: Callable[[], bytes], hop: int, said: str) -> None:
    from utvm_deploy.frontend.streams.rewrite import with_stream

    with pytest.raises(ModelError, match=said):
        with_stream(write(), hop, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hop": None}, 'has no "hop"'),
        ({"axis": 1}, 'has no "hop"'),
        ({"hop": 2, "axes": 1}, "has the unknown key 'axes'"),
        ({"hop": 2.0}, 'has a "hop" that is not an integer'),
        ({"hop": 2, "axis": "1"}, 'has an "axis" that is not an integer'),
        ({"hop": 2, "end_input": 1}, 'has an "end_input" that is neither True nor False'),
        (True, "is neither a hop nor a dict"),
        ("2", "is neither a hop nor a dict"),
    ],
)
def test_a_stream_is_a_hop_or_a_dict(given: Any, said: str) -> None:
    with pytest.raises(ModelError, match=f"{said}; give a hop, such as 2, or a dict"):
        stream_of(given)
    assert stream_of(np.int64(2)) == stream_of({"hop": 2, "axis": None}) == Stream(2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"hop": 2', '"hop": Infinity', "hop is inf"),
        ('"hop": 2', '"hop": 0', "hop is 0"),
        ('"axis": 1', '"axis": "1"', "axis is '1'"),
        ('"axis": 1', '"other": 1', "'axis'"),
        ("{", "[" * 100_000, ""),
    ],
)
def test_damaged_metadata(old: str, new: str, said: str) -> None:
    text = StreamFacts(2, 1, 24, 4, 4, 14, 1, 2).to_json()
    with pytest.raises(ModelError, match=f"its metadata utvm_stream is damaged: .*{said}"):
        StreamFacts.of_json(text.replace(old, new))


def test_a_quantizer_takes_whole_windows(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["net.tflite", "--data", "data.npz", "-o", "made.tflite", "--stream", "--hop", "2"]
    assert main(["quantize", *given]) != 0
    assert "give --stream with the file that it writes" in capsys.readouterr().err


def test_accuracy_of_windows_and_of_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(headed_net("dense", 24))
    rng = np.random.default_rng(5)
    inputs = rng.integers(-128, 128, (6, 24, FEATURES, CHANNELS)).astype(np.int8)
    data = {"inputs": inputs, "labels": rng.integers(0, 3, 6)}
    found = utvm_deploy.evaluate(path, data, "host", stream=6)
    assert [one.run.engine for one in found.judged] == ["reference", "stream", "device"]
    # Their answers differ where the windows are padded; the board's are those of the stream.
    before, after = found.changes[:2]
    assert before.largest_difference > 0 == after.largest_difference


def lstm_net(columns: int, padding: str = "causal", *, time_major: bool = False) -> bytes:
    """Two layers of LSTM behind a convolution; an answer for each column."""
    m = ModelWriter()
    net = Net(m, np.random.default_rng(3))
    x = m.input((1, columns, FEATURES, CHANNELS))
    x = net.causal(x, 3, 1) if padding == "causal" else net.conv(x, 3, padding=padding)
    columns = m.tensors[x].shape[1]
    width = FEATURES * CHANNELS
    x = m.reshape(x, (columns, 1, width) if time_major else (1, columns, width))
    x = small_models.lstm(m, x, 8, time_major=time_major)
    x = small_models.lstm(m, x, 6, time_major=time_major, seed=2)
    m.output(m.reshape(x, (1, columns, 6)))
    return m.to_bytes()


@pytest.mark.parametrize("time_major", [False, True])
def test_an_lstm_goes_on_from_hop_to_hop(tmp_path: Path, time_major: bool) -> None:
    """By the reference and on the board, its answers are those for the whole recording."""
    path, hop, columns = tmp_path / "net.tflite", 4, 48
    path.write_bytes(lstm_net(12, time_major=time_major))
    samples = np.random.default_rng(3).integers(-128, 128, (1, columns, FEATURES, CHANNELS))
    recording = samples.astype(np.int8)
    wanted = whole(lstm_net(columns, time_major=time_major), recording)
    from utvm_deploy.frontend.streams.rewrite import with_stream

    made = with_stream(path.read_bytes(), hop, 1)
    assert facts_of(made).shift == 0
    assert np.array_equal(np.concatenate(streamed(made, recording, hop), axis=1), wanted)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host", stream=hop), into="ram")
        for _ in range(2):  # a new recording forgets the first one
            model.reset_state()
            answers = [model.run([one])[0][0] for one in np.split(recording, columns // hop, 1)]
            assert np.array_equal(np.concatenate(answers, axis=1), wanted)


def svdf_net(columns: int = 6) -> bytes:
    """An SVDF behind all columns at once, which it takes as one step."""
    m = ModelWriter()
    net = Net(m, np.random.default_rng(3))
    x = net.conv(m.input((1, columns, FEATURES, CHANNELS)), columns, wide=FEATURES, padding="VALID")
    m.output(small_models.svdf(m, m.reshape(x, (1, CHANNELS)), 5, 4, 2))
    return m.to_bytes()


def test_an_svdf_takes_each_run_as_a_step() -> None:
    """When its memory is full, it equals the model with a window a run, a hop apart."""
    from utvm_deploy.frontend.streams.rewrite import with_stream
    from utvm_deploy.oracle.program import Program

    hop, made = 2, with_stream(svdf_net(), 2, 1)
    facts = facts_of(made)
    recording = np.random.default_rng(3).integers(-128, 128, (1, 40, FEATURES, CHANNELS), np.int8)
    answers = streamed(made, recording, hop)
    windows = Program(svdf_net())
    for end in range(6, 41, hop):
        wanted = windows.one([recording[:, end - 6 : end]])[windows.outputs[0]]
        if end // hop >= facts.runs:
            assert np.array_equal(answers[end // hop - 1], wanted)
    assert facts.runs == 3 + 3


def test_unrolled_cells_begin_anew_with_each_window() -> None:
    """A GRU of PyTorch: each step is an operator, so a run takes the last columns as a window."""
    from utvm_deploy.base.paths import data_dir
    from utvm_deploy.frontend.streams.rewrite import with_stream

    data = (data_dir("models") / "gru.tflite").read_bytes()
    recording = np.random.default_rng(3).normal(0, 1, (1, 20, 8)).astype(np.float32)
    answers = streamed(with_stream(data, 2, 1), recording, 2)
    for end in range(8, 21, 2):
        assert np.array_equal(answers[end // 2 - 1], whole(data, recording[:, end - 8 : end]))


def test_an_end_makes_answers_of_windows_and_of_the_stream_equal(tmp_path: Path) -> None:
    """Each window is a recording, padded at its ends, by the reference and on the board."""
    path, stream = tmp_path / "net.tflite", {"hop": 4, "axis": 1, "end_input": True}
    path.write_bytes(headed_net("dense", 24))
    rng = np.random.default_rng(5)
    inputs = rng.integers(-128, 128, (6, 24, FEATURES, CHANNELS)).astype(np.int8)
    data = {"inputs": inputs, "labels": rng.integers(0, 3, 6)}
    found = utvm_deploy.evaluate(path, data, "host", stream=stream)
    assert [one.largest_difference for one in found.changes[:2]] == [0, 0]


def test_no_end_where_no_answer_needs_one() -> None:
    from utvm_deploy.frontend.streams.rewrite import with_stream

    with pytest.raises(ModelError, match="leave --end-input out"):
        with_stream(lstm_net(12), 4, 1, end_input=True)


def test_a_page_of_both_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(headed_net("mean", 24))
    found = utvm_deploy.profile(path, "host", stream=2)
    assert found.window is not None and found.stream is not None
    assert found.stream.text in found.beside and found.to_dict()["stream"]["hop"] == 2
    output = tmp_path / "net.tar"
    options = ["--stream", "--hop", "2", "--board", "host", "-o", str(output)]
    assert main(["compile", str(path), *options]) == 0
    assert "a hop and the whole window: " in capsys.readouterr().out
    header = utvm_deploy.compile(path, "host", stream=2).sources["net.h"]
    assert "// A stream: each run takes the next 2 columns" in header


def test_a_hop_may_fit_where_the_whole_window_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, output = tmp_path / "net.tflite", tmp_path / "net.tar"
    path.write_bytes(headed_net("last", 96))
    options = ["--stream", "--hop", "2", "--board", "host", "--ram-budget", "1500"]
    assert main(["compile", str(path), *options, "-o", str(output)]) == 0
    told = capsys.readouterr()
    assert "stream: a run takes 2 columns" in told.out and "and the whole window" not in told.out
    assert "figures of the whole window are left out: the RAM budget is 1,500" in told.err
    found = utvm_deploy.profile(path, "host", stream=2, ram_budget=1500)
    assert found.window is None and found.to_dict()["stream"]["window"] is None


def framed_net(samples: int, *, is_pooled: bool = False) -> bytes:
    """Frames of samples, windowed, and layers over the frames."""
    m = ModelWriter()
    net = Net(m, np.random.default_rng(2))
    x = m.tensor((1, samples), "int16", 0.001, 0)
    m.inputs.append(x)
    frames = samples // 8
    made = m.tensor((1, frames, 20), "int16", 0.001, 0), m.tensor((), "bool")
    options = options_of({"frame_size": 20, "frame_step": 8, "prefill": True})
    m.operators.append(OperatorSpec("SignalFramer", [x], list(made), custom_options=options))
    weights = m.constant(np.arange(20, dtype=np.int16) * 200)
    windowed = m.tensor((1, frames, 20), "int16", 0.001, 0)
    options = options_of({"shift": 12})
    m.operators.append(
        OperatorSpec("SignalWindow", [made[0], weights], [windowed], custom_options=options)
    )
    x = m.quantize(windowed, scale=0.2, zero_point=3)
    x = net.conv(m.reshape(x, (1, frames, 5, 4)), 3, stride=(2, 1), wide=3)
    x = net.conv(x, 3)
    m.output(m.mean(x, [1, 2]) if is_pooled else x)
    return m.to_bytes()


def test_each_sample_of_a_front_end_begins_a_recording(tmp_path: Path) -> None:
    """The states of SignalFramer, and those of the stream behind it."""
    path, rng = tmp_path / "framed.tflite", np.random.default_rng(5)
    path.write_bytes(framed_net(96, is_pooled=True))
    inputs = rng.integers(-20000, 20000, (4, 96)).astype(np.int16)
    data = {"inputs": inputs, "labels": rng.integers(0, CHANNELS, 4)}
    found = utvm_deploy.evaluate(path, data, "host", stream=32)
    assert [(one.before, one.after) for one in found.changes][1] == ("stream", "device")
    assert found.changes[0].largest_difference > 0 == found.changes[1].largest_difference


def test_a_hop_in_samples_goes_through_a_front_end(tmp_path: Path) -> None:
    """The board, and the reference, equal the network over all samples at once."""
    path, window, columns, hop = tmp_path / "framed.tflite", 96, 480, 32
    path.write_bytes(framed_net(window))
    found = utvm_deploy.inspect(path, stream=hop).graph
    assert found is not None and found.stream is not None
    facts = found.stream
    assert (facts.hop, facts.window, facts.axis) == (hop, window, 1)
    samples = np.random.default_rng(3).integers(-9000, 9000, (1, columns)).astype(np.int16)
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host", stream=hop), into="ram")
        answers = [model.run([part])[0][0] for part in np.split(samples, columns // hop, 1)]
    recording = tmp_path / "recording.tflite"
    recording.write_bytes(framed_net(columns))
    ((whole_answer,),) = run_oracle(recording, [[samples]]).outputs
    late, got = facts.shift // 16, np.concatenate(answers, axis=1)
    assert late > 0 and np.array_equal(got[:, late:], whole_answer[:, :-late])


def test_a_file_of_other_tools(shared_models: Path) -> None:
    """Of MLPerf Tiny's DS-CNN, the layers in front of the pool run over a whole recording."""
    from utvm_deploy.frontend.files import tflite_schema as schema
    from utvm_deploy.frontend.streams.rewrite import with_stream
    from utvm_deploy.oracle.program import Program

    data = (shared_models / "kws_ref_model.tflite").read_bytes()
    recording = np.random.default_rng(0).integers(-128, 128, (1, 90, 10, 1)).astype(np.int8)
    parts = []
    for part in (slice(None, 9), slice(9, None)):
        model = schema.read_model(data)
        graph = model.subgraphs[0]
        graph.operators, model.signatureDefs = graph.operators[part], []
        (inner,) = schema.numbers(schema.read_model(data).subgraphs[0].operators[8].outputs)
        if part.start is None:
            graph.outputs = [inner]
            first = {int(graph.inputs[0]): recording.shape}
            parts.append(chosen_file(schema.model_bytes(model), Choice(shapes=first)))
        else:
            graph.inputs = [inner]
            parts.append(schema.model_bytes(model))
    trunk, head = whole(parts[0], recording), Program(parts[1])
    made = with_stream(data, 2, None)
    facts = facts_of(made)
    answers = streamed(made, recording, 2)
    for run in range(facts.runs, len(answers) + 1):
        end = (2 * run - facts.shift) // 2
        assert np.array_equal(
            answers[run - 1], head.one([trunk[:, end - 25 : end]])[head.outputs[0]]
        )
    assert (facts.delay, facts.padded, facts.runs) == (12, 5, 31)
