"""Records: lines on disk that outlive kill -9, and what they say about compiling."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from utvm_deploy.base.errors import RecordsError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.planning.decision import known_records
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.records import (
    DEFAULT,
    NEAREST,
    RECORD,
    EmittedCode,
    KernelIdentity,
    Measurement,
    ModelRecord,
    Record,
    Records,
    Setting,
    read_records,
)
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.records.emitted_code import CODES_OF_0_2_0
from utvm_deploy.records.line import record_of
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.report import histories, tuning_html
from utvm_deploy.tuning.shipping import worth_shipping

SETTING = Setting("cortex-m7", "gcc 12.2", "-O3", "0.1.0", "modelled cycles")


def identity(width: int, channels: int = 16, kind: str = "CONV_2D") -> KernelIdentity:
    shape = (("channels", channels), ("width", width))
    return KernelIdentity(f"{kind}_{width}_{channels}".lower(), "int8", kind, shape, 1000)


def record(ticks: int, pixels: int = 3, width: int = 32, **changes: object) -> Record:
    found = Record(
        identity(width),
        SETTING,
        Candidate.of("dsp", pixels=pixels),
        Measurement(ticks, float(ticks)),
        "some_board",
        time="2026-01-01T00:00:00+00:00",
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def test_a_record_survives_its_line() -> None:
    for measurement in (Measurement(7, 7.5), Measurement(error="hung", detail="after 2 s")):
        one = record(0, measurement=measurement, is_default=True)
        assert Record.from_line(one.to_line()) == one
        assert "\n" not in one.to_line()


def test_the_type_of_unusual_weights_is_part_of_the_identity() -> None:
    usual = identity(32)
    packed = replace(usual, weights="int4")
    assert (usual.key, packed.key) == ("conv_2d_32_16:int8", "conv_2d_32_16:int8:int4")
    assert usual.distance(packed) == math.inf and packed.distance(packed) == 0
    one = record(5, kernel=packed)
    assert Record.from_line(one.to_line()) == one != record(5)
    # Versions that do not know the field skip the line: they take schema 1, and 2 of whole models.
    assert json.loads(one.to_line())["schema"] == 3
    with pytest.raises(ValueError, match="schema 2 is not known"):
        Record.from_line(one.to_line().replace('"schema":3', '"schema":2'))


def test_records_of_0_3_0_are_read_and_written_as_they_are() -> None:
    """They do not name the type of their weights."""
    path = Path(__file__).with_name("records_of_0_3_0.jsonl")
    records = list(read_records(path))
    assert all(record.kernel.weights == "" for record in records)
    lines = path.read_text().splitlines()
    assert [json.loads(one.to_line()) for one in records] == list(map(json.loads, lines))
    assert [one.kernel.key for one in records] == [
        f"{json.loads(line)['kernel']}:{json.loads(line)['dtype']}" for line in lines
    ]
    # They choose for the layers that they were measured for.
    graph = simplify(load_model(data_dir("models") / "digits.tflite"))
    found = [identity_of(graph, operator).key for operator in graph.operators]
    assert {one.kernel.key for one in records} <= set(found)


def test_fields_of_later_versions_are_ignored() -> None:
    line = json.loads(record(5).to_line())
    line["mood"] = "good"
    line["measurement"]["joules"] = 1e-3
    assert Record.from_line(json.dumps(line)) == record(5)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": 99}, "schema 99"),
        ({"kernel": None}, "kernel is not text"),
        ({"shape": {"a": 1.5}}, "may only have integers"),
        ({"candidate": 3}, "candidate is not an object"),
        ({"measurement": {"min": "fast"}}, "neither ticks nor an error"),
        ({"measurement": {"min": 5, "median": float("nan")}}, "NaN is not a number"),
        ({"measurement": {"min": 5, "median": True}}, "median is not a number"),
        ({"measurement": {"min": 1 << 64, "median": 5}}, "min is not an integer"),
        ({"measurement": {"error": 3}}, "error is not text"),
        ({"measurement": {"error": "hung", "detail": {}}}, "detail is not text"),
        ({"measurement": "{}"}, "measurement is not an object"),
        ({"macs": float("inf")}, "Infinity is not a number"),
        ({"macs": {}}, "macs is not an integer"),
        ({"macs": -1}, "macs is not an integer"),
        ({"macs": 10**4000}, "macs is not an integer"),
        ({"shape": {"a": 10**400}}, "may only have integers"),
        ({"shape": {"a": True}}, "may only have integers"),
        ({"model": 5}, "model is not text"),
        ({"unit": []}, "unit is not text"),
        ({"core": "\ud800"}, "core is not text"),
        ({"default": "no"}, "default is neither true nor false"),
        ({"code": {}}, "code is not text"),
        ({"candidate": {"family": "dsp", "choices": {"a": 1.5}}}, "neither an integer"),
        ({"candidate": {"family": 1}}, "no family"),
    ],
)
def test_lines_that_are_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Record.from_line(json.dumps({**json.loads(record(5).to_line()), **change}))


def test_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RecordsFile(path) as file:
        file.append(record(5))
        file.extend([record(6, pixels=6), record(7, pixels=9)])
        assert len(file.records) == 3
    with RecordsFile(path) as file:
        file.append(record(8, pixels=12))
    assert [r.measurement.ticks_min for r in read_records(path)] == [5, 6, 7, 8]


BAD_LINES = [
    record(5).to_line().replace('"macs":1000', f'"macs":{macs}')
    for macs in ("Infinity", "-Infinity", "NaN", "1e400", "{}", "[]", '"5"', "9" * 5000, "null")
]


def test_a_bad_line_costs_that_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "r.jsonl"
    lines = [record(6).to_line(), *BAD_LINES, "[" * 100_000, record(7).to_line(), "null", "{}"]
    path.write_text("".join(f"{line}\n" for line in lines))
    assert [r.measurement.ticks_min for r in read_records(path)] == [6, 7]
    said = f"{path}: skipped 12 lines (2, 3, 4, 5, 6, 7, 8, 9 and 4 more), the first because of"
    assert f"{said} line 2: Infinity is not a number in JSON" in caplog.text
    before = path.read_bytes()
    with RecordsFile(path) as file:
        file.append(record(8))
    assert path.read_bytes() == before + record(8).to_line().encode() + b"\n"
    assert [r.measurement.ticks_min for r in read_records(path)] == [6, 7, 8]


def test_a_last_line_of_another_version_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    later = record(5).to_line().replace('"schema":1', '"schema":99')
    path.write_text(f"{record(6).to_line()}\n{later}")
    with RecordsFile(path) as file:
        file.append(record(7))
    assert path.read_text().splitlines()[1] == later
    assert [r.measurement.ticks_min for r in read_records(path)] == [6, 7]


def test_a_choice_may_have_any_name() -> None:
    one = Candidate("dsp", (("family", 3), ("self", "x")))
    assert Record.from_line(record(5, candidate=one).to_line()).candidate == one


OF_MODEL = ModelRecord(
    "0123456789ab",
    "digits",
    replace(SETTING, model="abc"),
    "some_board",
    "stack",
    (("conv:int8", Candidate.of("dsp", pixels=3)),),
    (("dsp", "code"),),
    Measurement(70, 70.0),
    (30, 40),
    time="2026-01-01T00:00:00+00:00",
)


def test_a_record_of_a_whole_model_survives_its_line(tmp_path: Path) -> None:
    assert record_of(OF_MODEL.to_line()) == OF_MODEL
    path = tmp_path / "r.jsonl"
    with RecordsFile(path) as file:
        file.extend([record(5), OF_MODEL])
    found = read_records(path)
    assert (list(found), found.model_records) == ([record(5)], [OF_MODEL])
    # Version 0.1.0 skips it.
    with pytest.raises(ValueError, match="schema 2"):
        Record.from_line(OF_MODEL.to_line())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"candidates": []}, "candidates is not an object"),
        ({"candidates": {"a": 5}}, "candidate is not an object"),
        ({"codes": {"dsp": 5}}, "dsp is not text"),
        ({"layers": {}}, "layers is not a list"),
        ({"layers": [1.5]}, "layers is not an integer"),
        ({"measurement": {"min": -1}}, "neither ticks nor an error"),
        ({"scratch": 5}, "scratch is not text"),
    ],
)
def test_lines_of_whole_models_that_are_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        record_of(json.dumps({**json.loads(OF_MODEL.to_line()), **change}))


@pytest.mark.parametrize("cut", [1, 30, -2])
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    whole = record(5).to_line() + "\n"
    path.write_text(whole + record(6).to_line()[:cut])
    assert len(read_records(path)) == 1
    with RecordsFile(path) as file:
        assert len(file.records) == 1
        file.append(record(7))
    assert path.read_text() == whole + record(7).to_line() + "\n"


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(record(6).to_line())
    with RecordsFile(path) as file:
        file.append(record(7))
    assert [r.measurement.ticks_min for r in read_records(path)] == [6, 7]


def test_a_first_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(record(6).to_line()[:20])
    with RecordsFile(path) as file:
        file.append(record(7))
    assert len(read_records(path)) == 1


@pytest.fixture
def limit_file_size() -> Iterator[Callable[[int], None]]:
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.tools
@pytest.mark.parametrize("room", [0, 10])
def test_a_full_disk_loses_nothing_that_was_recorded(
    tmp_path: Path, room: int, limit_file_size: Callable[[int], None]
) -> None:
    path = tmp_path / "r.jsonl"
    with RecordsFile(path) as file:
        file.append(record(7))
        limit_file_size(path.stat().st_size + room)
        with pytest.raises(RecordsError, match=r"cannot write .*: .*; make room and continue"):
            file.append(record(8, pixels=4))
        assert len(file.records) == 1
    limit_file_size(1 << 20)
    with RecordsFile(path) as file:
        file.append(record(9, pixels=5))
    assert [one.measurement.ticks_min for one in read_records(path)] == [7, 9]


def test_damaged_lines_are_skipped_and_other_files_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{record(5).to_line()}\nnonsense\n{record(6).to_line()}\n")
    assert len(read_records(path)) == 2
    assert f"{path}: skipped line 2: it is not JSON" in caplog.text
    path.write_text("name,ticks\nconv,5\n")
    with pytest.raises(RecordsError, match="is not a records file"):
        read_records(path)
    path.write_text("name,ticks\nconv,5\nconv,")
    with pytest.raises(RecordsError, match="is not a records file"):
        read_records(path)
    path.write_text("my only copy")
    with pytest.raises(RecordsError, match="is not a records file"):
        RecordsFile(path)
    assert path.read_text() == "my only copy"


@pytest.mark.parametrize("content", [b"TFL3\x00\n\xffweights", b"\n\nmy only copy", b"{}\n{"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    with pytest.raises(RecordsError, match=r"is not a records file.*; give"):
        RecordsFile(path)
    assert path.read_bytes() == content


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"no records file .*utvm tune"):
        read_records(tmp_path / "absent.jsonl")
    with pytest.raises(RecordsError, match=r"there is no folder .*make it first"):
        RecordsFile(tmp_path / "absent" / "r.jsonl")


def test_of_candidates_that_are_about_as_fast_the_one_with_the_least_scratch_is_taken() -> None:
    def pixels(*sizes: tuple[int, int, int]) -> list[int | None]:
        """``sizes``: ticks, bytes of scratch and of code; pixels count up from 3."""
        found = Records(
            record(ticks, 3 + i, scratch_bytes=scratch, code_bytes=code)
            for i, (ticks, scratch, code) in enumerate(sizes)
        )
        return [one.number("pixels") for one, _ in found.choices(identity(32), "cortex-m7")]

    assert pixels((1000, 900, 50), (1010, 300, 50), (1011, 0, 50)) == [4, 3, 5]
    assert pixels((1000, 300, 50), (1005, 300, 50)) == [3, 4]
    # Nothing is known of what was recorded without sizes.
    assert pixels((1000, 900, 50), (1010, 0, 0)) == [3, 4]


def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    line = record(5).to_line()
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from utvm_deploy.records import Record\n"
        "from utvm_deploy.tuning.records_file import RecordsFile\n"
        f"one = Record.from_line({line!r})\n"
        "with RecordsFile(Path(sys.argv[1])) as file:\n"
        "    while True:\n"
        "        file.append(one)\n"
        "        print(len(file.records), flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(20)]
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read().splitlines()
    writer.wait()
    writer.stdout.close()
    last = int((rest or told)[-1])
    assert last >= 20
    with RecordsFile(path) as file:
        assert len(file.records) in (last, last + 1)
        file.append(record(6))
    assert path.read_bytes().endswith(b"}\n")


def test_the_fastest_comes_first_and_units_are_not_mixed() -> None:
    records = Records(
        [
            record(90, pixels=3),
            record(50, pixels=6, setting=replace(SETTING, unit="instructions")),
            record(70, pixels=9),
            record(0, pixels=12, measurement=Measurement(error="wrong output")),
        ]
    )
    found = list(records.choices(identity(32), "cortex-m7", SETTING))
    assert found == [(Candidate.of("dsp", pixels=p), RECORD) for p in (9, 3)]
    assert list(records.choices(identity(32), "cortex-m4", SETTING)) == []
    assert len(records.of(identity(32), SETTING)) == 3


def test_cycles_of_silicon_count_more_than_modelled_ones() -> None:
    records = Records(
        [record(70, pixels=9), record(90, pixels=3, setting=replace(SETTING, unit="cycles"))]
    )
    best, _ = next(records.choices(identity(32), "cortex-m7", SETTING))
    assert best == Candidate.of("dsp", pixels=3)


def test_records_of_two_compilers_are_merged_on_one_scale() -> None:
    other = replace(SETTING, compiler="gcc 13")
    shipped = [record(100, pixels=3, is_default=True), record(98, pixels=6), record(80, pixels=9)]
    own = [record(120, pixels=3, setting=other), record(90, pixels=12, setting=other)]
    merged = Records([*shipped, *own])
    for near in (SETTING, other):
        found = [c.number("pixels") for c, _ in merged.choices(identity(32), "cortex-m7", near)]
        # 90 of the second compiler's ticks are 75 of the first one's.
        assert found == [12, 9, 6, 3]
    # Where both measured a candidate, the own compiler's ticks count, and the later ones.
    again = [record(70, pixels=3, setting=other), record(300, pixels=12, setting=other)]
    ranked, _ = Records([*shipped, *own, *again]).ranked("cortex-m7", identity(32).key, other)
    assert [r.measurement.ticks_min for r in ranked] == [56, 69, 70, 300]


def test_ticks_of_another_cycle_model_are_never_compared() -> None:
    def of_model(model: str, ticks: int, pixels: int, **more: object) -> Record:
        return record(ticks, pixels, setting=replace(SETTING, model=model), **more)

    old = [of_model("", 90, 3, is_default=True), of_model("", 1, 9)]
    new = [of_model("today", 95, 3, is_default=True), of_model("today", 94, 6)]
    records = Records([*new, *old], models={"today"})
    near = replace(SETTING, model="today")
    found = list(records.choices(identity(32), "cortex-m7", near))
    assert found == [(Candidate.of("dsp", pixels=p), RECORD) for p in (6, 3)]
    # What an older model counted chooses where there is nothing else, and is called near.
    found = list(Records(old, models={"today"}).choices(identity(32), "cortex-m7", near))
    assert found == [(Candidate.of("dsp", pixels=p), NEAREST) for p in (9, 3)]
    # Trials of the older model are made anew.
    assert records.of(identity(32), near) == new
    # Silicon has no model.
    silicon = replace(SETTING, unit="cycles")
    real = [record(9, 12, setting=silicon, is_default=True)]
    assert records_of(Records([*new, *real], models={"today"})) == [(12, RECORD)]
    # Settings of two models are two tables of a report, and two groups of what is kept.
    assert len(histories(Records([*old, *new]))) == 2
    assert len(list(worth_shipping([*old, *new]))) == 4


def records_of(records: Records) -> list[tuple[int | None, str]]:
    found = records.choices(identity(32), "cortex-m7", SETTING)
    return [(candidate.number("pixels"), origin) for candidate, origin in found]


def test_lines_of_version_0_1_0_are_of_an_unknown_model() -> None:
    line = json.loads(record(5, setting=replace(SETTING, model="abc")).to_line())
    assert line.pop("model") == "abc"
    assert Record.from_line(json.dumps(line)).setting.model == ""


def test_the_nearest_shapes_say_what_beats_the_default() -> None:
    near = [record(100, pixels=3, width=30, is_default=True), record(80, pixels=9, width=30)]
    far = [record(100, pixels=3, width=24, is_default=True), record(50, pixels=12, width=24)]
    found = list(Records([*far, *near]).choices(identity(32), "cortex-m7", SETTING))
    # The farther one's gain is the larger, more than its weight is less.
    assert found == [(Candidate.of("dsp", pixels=p), NEAREST) for p in (12, 9)]
    # A neighbour whose default is the best speaks against what it knows to be worse.
    good_default = [record(80, pixels=3, width=30, is_default=True), record(160, 12, width=30)]
    assert not list(Records(good_default).choices(identity(32), "cortex-m7", SETTING))
    assert not list(Records([*far, *good_default]).choices(identity(32), "cortex-m7", SETTING))
    assert DEFAULT not in (RECORD, NEAREST)


def test_a_small_gain_of_other_shapes_is_noise() -> None:
    for ticks, pixels in ((980, []), (960, [9])):
        near = [record(1000, pixels=3, width=30, is_default=True), record(ticks, 9, width=30)]
        found = Records(near).choices(identity(32), "cortex-m7", SETTING)
        assert [candidate.number("pixels") for candidate, _ in found] == pixels


def test_what_is_not_near() -> None:
    for other in (identity(32, 16, "DEPTHWISE_CONV_2D"), identity(32_000)):
        other_records = [
            record(100, kernel=other, is_default=True),
            record(50, pixels=9, kernel=other),
        ]
        assert not list(Records(other_records).choices(identity(32), "cortex-m7", SETTING))


def test_compacting_keeps_what_takes_less_scratch() -> None:
    made = [(100, 300), (120, 201), (140, 200), (150, 100)]
    some = [
        replace(record(ticks, pixels=ticks, is_default=ticks == 150), scratch_bytes=scratch)
        for ticks, scratch in made
    ]
    kept = list(worth_shipping(some))
    assert [r.measurement.ticks_min for r in kept] == [100, 140, 150]
    assert list(worth_shipping(kept)) == kept


def test_compacting_keeps_what_compiling_needs() -> None:
    some = [record(100 + 2 * n, pixels=3 * n + 3, is_default=n == 5) for n in range(8)]
    wrong = record(0, pixels=99, measurement=Measurement(error="hung"))
    kept = list(worth_shipping([*some, wrong]))
    assert [r.measurement.ticks_min for r in kept] == [100, 102, 110]
    assert kept[-1].is_default
    assert list(worth_shipping(kept)) == kept
    for records in (some, kept):
        first, *_ = Records(records).choices(identity(32), "cortex-m7", SETTING)
        assert first == (Candidate.of("dsp", pixels=3), RECORD)


def test_records_of_older_kernels_are_hints() -> None:
    def emitted(*pixels: int) -> EmittedCode:
        """What a compile knows after it has emitted these candidates."""
        pairs = [(identity(32).key, Candidate.of("dsp", pixels=p)) for p in pixels]
        return EmittedCode(dict.fromkeys(pairs, frozenset({"new"})))

    def chosen(records: list[Record], code: EmittedCode) -> list[tuple[Candidate, str]]:
        return list(Records(records, code).choices(identity(32), "cortex-m7", SETTING))

    old = [record(90, pixels=3, is_default=True), record(50, pixels=9)]
    old = [replace(one, code="old") for one in old]
    slow, fast = (Candidate.of("dsp", pixels=p) for p in (3, 9))
    # Of what was not emitted nobody knows better.
    assert chosen(old, EmittedCode()) == [(fast, RECORD), (slow, RECORD)]
    # The one that was emitted is stale, the other one is not, nor is another kernel.
    assert chosen(old, emitted(9)) == [(slow, RECORD)]
    other = [replace(one, kernel=identity(16)) for one in old]
    assert len(Records([*old, *other], emitted(9)).of(identity(16), SETTING)) == 2
    assert chosen(old, emitted(3, 9)) == [(fast, NEAREST), (slow, NEAREST)]
    assert chosen(old, EmittedCode(changed=frozenset({identity(32).key})))[0] == (fast, NEAREST)
    assert Records(old, emitted(3, 9)).of(identity(32), SETTING) == []
    assert Records(old).of(identity(32), SETTING) == old
    # Without the default there is nothing that today's compare with.
    some = [*old, record(80, pixels=6, code="new")]
    assert chosen(some, emitted(3, 6, 9))[0][1] == NEAREST
    new = [*some, record(85, pixels=3, code="new", is_default=True)]
    found = chosen(new, emitted(3, 6, 9))
    assert found == [(Candidate.of("dsp", pixels=p), RECORD) for p in (6, 3)]
    assert len(Records(new, emitted(3, 6, 9)).of(identity(32), SETTING)) == 2


@pytest.mark.parametrize("code", ["", *CODES_OF_0_2_0.values()])
def test_codes_of_older_versions_are_no_digests_of_c(code: str) -> None:
    one = record(50, code=code)
    assert Records([one]).of(one.kernel, SETTING) == [one]
    assert Records([one], EmittedCode()).of(one.kernel, SETTING) == []


def test_a_compile_contradicts_current_records_only() -> None:
    key, candidate = identity(32).key, Candidate.of("dsp", pixels=3)
    old, new = (record(50, code=code) for code in ("old", "new"))
    codes = frozenset({"new"})

    def is_contradicted(*records: Record | ModelRecord, core: str = "cortex-m7") -> bool:
        return Records(records, EmittedCode()).contradicts(core, key, candidate, codes)

    assert is_contradicted(new, old) and not is_contradicted(new)
    assert not is_contradicted(old, core="cortex-m4")
    assert not is_contradicted(record(50, pixels=9, code="old"), record(50, width=8, code="old"))
    assert not is_contradicted(record(50, code="old", measurement=Measurement(error="hung")))
    known = EmittedCode({(key, candidate): codes})
    assert not Records([old], known).contradicts("cortex-m7", key, candidate, codes)
    whole = replace(OF_MODEL, candidates=((key, candidate),), codes=((key, "old"),))
    assert is_contradicted(whole)
    assert not is_contradicted(replace(whole, codes=((key, "new"),)))
    assert not is_contradicted(replace(whole, codes=()))


def test_each_level_of_optimization_has_its_own_winner() -> None:
    small = replace(SETTING, flags="-O3 -Os")
    records = Records([record(50, pixels=3), record(70, pixels=9, setting=small)])
    for near, pixels in ((SETTING, 3), (small, 9)):
        best, _ = next(records.choices(identity(32), "cortex-m7", near))
        assert best == Candidate.of("dsp", pixels=pixels)


def test_what_ends_before_the_first_record_leaves_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.jsonl"
    with RecordsFile(path) as file:
        assert not list(file.records)
    assert not path.exists()
    path.touch()
    known_records(load_board("host"), read_records(path))
    assert "there are no records in the file" in caplog.text


def test_a_report_tells_counts_of_two_cycle_models_apart() -> None:
    counted = [replace(SETTING, unit="modelled cycles", model=model) for model in ("", "abc123")]
    page = tuning_html(Records(record(90, 3, setting=one) for one in counted), "r.jsonl")
    assert "modelled cycles (model of before 0.2.0)</h2>" in page
    assert "modelled cycles (model abc123)</h2>" in page
    assert page.count("Modelled, never measured on silicon.") == 2
