"""utvm silicon, with emulated boards in the place of silicon."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.board_verbs import silicon_verb as verb
from utvm_deploy.cli.main import main
from utvm_deploy.device import connect
from utvm_deploy.oracle.reference import ReferenceRun, run_reference
from utvm_deploy.silicon_kit import models, origin
from utvm_deploy.silicon_kit import run as run_module
from utvm_deploy.silicon_kit.private import Cleaner
from utvm_deploy.silicon_kit.report import read_report
from utvm_deploy.silicon_kit.sequences import Count, agrees, cases_of, count_cases
from utvm_deploy.targets.arm_m.sequences import CASES

DIGITS = data_dir("models") / "digits.tflite"

needs_emulator = pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="needs qemu-system-arm and arm-none-eabi-gcc",
)


def write_small_model(folder: Path, seed: int) -> Path:
    """A fully connected layer."""
    rng = np.random.default_rng(seed)
    writer = ModelWriter()
    x = writer.input((1, 8), 0.05, -3)
    weights = rng.integers(-127, 128, (4, 8)).astype(np.int8)
    bias = rng.integers(-500, 500, (4,)).astype(np.int32)
    writer.output(writer.fully_connected(x, weights, bias, weight_scale=0.01))
    path = folder / f"small_{seed}.tflite"
    writer.save(path)
    return path


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model in the place of those that ship."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    path = write_small_model(folder, 1)
    monkeypatch.setattr(verb.kit, "shipped_models", lambda: [path])
    return path


def silicon(*argv: object) -> int:
    return main(["silicon", *map(str, argv)])


def content(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


@needs_emulator
@pytest.mark.emulator
@pytest.mark.parametrize("link", ["monitor", "debug"])
def test_the_whole_run_in_the_place_of_silicon(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb.kit, "shipped_models", lambda: [DIGITS])
    extra = tmp_path / "more"
    extra.mkdir()
    write_small_model(extra, 2)
    file = tmp_path / "an500.json"
    argv = ("--board", "mps2_an500", "--link", link, "--models", extra, "--samples", 1)
    assert silicon(*argv, "--cases", "*chain", "-o", file) == 0
    shown = capsys.readouterr().out
    assert "digits.tflite" in shown and "small_2.tflite" in shown and "udiv chain" in shown
    assert "measured" not in shown  # a model of the core counted

    found = content(file)
    assert found["schema"] == "utvm.silicon/1"
    assert found["unfinished"] == ""
    board, modelling = found["setup"]["board"], found["setup"]["modelling"]
    assert (board["name"], board["link"], board["is_silicon"]) == ("mps2_an500", link, False)
    assert board["probe"] == modelling["emulator"]
    assert len(modelling["cycle_model"]) == 12
    assert found["timing"]["source"] == "cycle model"
    digits, small_model = found["models"]
    assert digits["state"] == small_model["state"] == "equal"
    assert digits["layer_bytes"] > digits["output_bytes"] == 10
    for one in (digits, small_model):
        # What its timer says is what the model counts.
        assert one["ticks"] == one["modelled"]["memory"] > one["modelled"]["core"] > 0
        for layer in one["layers"]:
            assert layer["ticks"] == layer["modelled"]["memory"] > 0
            assert not layer["differs"]
    assert {one["name"] for one in found["micro_benchmarks"]} == {
        case.name for case in CASES["cortex-m7"] if case.name.endswith("chain")
    }
    for one in found["micro_benchmarks"]:
        assert one["ticks"] == one["modelled"] == one["published"]

    assert silicon("--show", file) == 0
    assert capsys.readouterr().out.splitlines() == shown.splitlines()[:-1]
    assert silicon("--show", file, "--json") == 0
    assert json.loads(capsys.readouterr().out) == found


@needs_emulator
@pytest.mark.emulator
@pytest.mark.parametrize("name", ["mps2_an500", "mps2_an386"])
def test_the_model_counts_what_was_published_in_a_session(name: str) -> None:
    counts: list[Count] = []
    with connect(name) as device:
        cases = CASES[device.board.cpu.core]
        count_cases(device, cases, counts.extend)
    assert {count.case for count in counts} == set(cases) and len(counts) == len(cases)
    assert [str(count.error) for count in counts if count.error] == []
    differing = {
        count.case.name
        for count in counts
        if count.modelled is None or not agrees(count.case, count.modelled)
    }
    assert differing == {case.name for case in cases if case.exception}


@needs_emulator
@pytest.mark.emulator
def test_a_fault_in_a_case_leaves_the_others_alone() -> None:
    first, second = CASES["cortex-m7"][:2]
    broken = replace(first, body="udf #0")
    counts: list[Count] = []
    with connect("mps2_an500", timing="instructions") as device:
        count_cases(device, [broken, second], counts.extend)
    assert "case_0_short" in str(counts[0].error)
    assert counts[1].error is None and counts[1].ticks == 2 and counts[1].modelled is None


@needs_emulator
@pytest.mark.emulator
def test_micro_benchmarks_that_were_counted_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb.kit, "shipped_models", list)
    file = tmp_path / "f.json"
    argv = ("--board", "mps2_an500", "-o", file, "--cases", "ld*")
    counted: list[str] = []

    def interrupted(device: Any, cases: Any, done: Callable[..., None]) -> None:
        def once(counts: Any) -> None:
            done(counts)
            raise KeyboardInterrupt

        count_cases(device, cases, once)

    def counting(device: Any, cases: Any, done: Callable[..., None]) -> None:
        counted.extend(case.name for case in cases)
        count_cases(device, cases, done)

    monkeypatch.setattr(run_module, "count_cases", interrupted)
    assert silicon(*argv) == 130
    kept = [one["name"] for one in content(file)["micro_benchmarks"]]
    wanted = {case.name for case in CASES["cortex-m7"] if case.name.startswith("ld")}
    assert len(kept) == 8 and set(kept) < wanted
    monkeypatch.setattr(run_module, "count_cases", counting)
    assert silicon(*argv) == 0
    assert set(counted) == wanted - set(kept) and len(counted) == len(wanted) - 8
    found = [one["name"] for one in content(file)["micro_benchmarks"]]
    assert found[:8] == kept and set(found) == wanted and len(found) == len(wanted)


def test_cases_with_floating_point_need_it() -> None:
    board = load_board("mps2_an500")
    without = replace(board, cpu=replace(board.cpu, fpu="none"))
    assert {case.name for case in cases_of(board)} - {case.name for case in cases_of(without)} == {
        case.name for case in CASES["cortex-m7"] if "f32" in case.body
    }
    assert cases_of(load_board("host")) == ()


def test_cases_about_a_data_cache_need_one() -> None:
    board = load_board("mps2_an500")
    without = replace(board, cpu=replace(board.cpu, dcache_bytes=0))
    missing = set(cases_of(board)) - set(cases_of(without))
    assert missing == {case for case in CASES["cortex-m7"] if case.is_cached} != set()


def desk_board(folder: Path) -> Path:
    """The emulated Cortex-M7 as a board on a desk, which is flashed and has a GDB server."""
    text = load_board("mps2_an500").source
    text = text[: text.index("[emulator]")].replace('"mps2_an500"', '"desk"')
    text = text.replace('kinds = ["qemu"]', f'kinds = ["mine"]\n{COMMANDS}')
    (folder / "flash.sh").write_text(f'#!/bin/sh\ncp "$1" "{folder}/flashed.elf"\n')
    (folder / "serve.sh").write_text(
        "#!/bin/sh\nexec qemu-system-arm -machine mps2-an500 -icount shift=6,sleep=off -nodefaults "
        "-display none -monitor none -serial none -S "
        f'-kernel "{folder}/flashed.elf" -gdb tcp:127.0.0.1:$1\n'
    )
    path = folder / "desk.toml"
    path.write_text(text.replace("FOLDER", str(folder)))
    return path


COMMANDS = """
[probe.commands.mine]
program = "sh"
image_format = "elf"
select = []
flash = ["FOLDER/flash.sh", "{image}"]
reset = ["FOLDER/flash.sh", "FOLDER/flashed.elf"]
server_program = "sh"
server = ["FOLDER/serve.sh", "{gdb_port}"]
"""


@needs_emulator
@pytest.mark.emulator
def test_a_board_that_is_flashed_has_its_cycles_modelled_elsewhere(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "desk.json"
    board = desk_board(tmp_path)
    argv = ("--board", board, "--trust-board", "--link", "debug", "--samples", 1, "-o", file)
    assert silicon(*argv, "--cases", "* chain") == 0, capsys.readouterr().err
    found = content(file)
    assert found["setup"]["board"]["is_silicon"] and found["setup"]["board"]["probe"] == "mine"
    # Its own twin.
    assert found["setup"]["modelling"]["board"] == "desk.twin"
    assert found["timing"] == {
        "unit": "instructions", "per_second": 15_625_000, "source": "cmsdk"
    }  # fmt: skip
    (model,) = found["models"]
    assert model["runs"] == 1 and model["ticks"] > 0
    assert model["modelled"]["instructions"] > 0
    assert model["ticks"] != model["modelled"]["memory"] > 0
    assert all(layer["modelled"]["memory"] for layer in model["layers"])
    cases = {one["name"]: one for one in found["micro_benchmarks"]}
    assert cases["udiv chain"]["ticks"] == 1  # an instruction
    assert cases["udiv chain"]["modelled"] == 7
    assert "measured" in capsys.readouterr().out


def test_without_an_emulator_modelled_cycles_are_left_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = load_board("stm32f746g_disco")
    other = origin.stand_in(board)
    assert other is not None and other.has_cycle_model and other.cpu.core == board.cpu.core
    monkeypatch.setenv("PATH", "")
    modelling, emulated = origin.modelling_of(board, Cleaner())
    assert emulated is None and modelling.board is None
    assert modelling.why == "qemu-system-arm is not installed"
    # Nobody models the cycles of its core, or emulates that.
    assert origin.stand_in(load_board("microbit")) is None
    assert origin.stand_in(load_board("nrf5340dk")) is None


def test_another_board_file_that_is_wrong_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_wrong_one.toml").write_text("name = 1\n")
    monkeypatch.setenv("UTVM_BOARDS", str(tmp_path))
    found = origin.stand_in(load_board("stm32f746g_disco"))
    assert found is not None and found.has_cycle_model


def test_equal_facts_have_one_digest() -> None:
    board = load_board("stm32f746g_disco")
    digest = origin.facts_digest(board)
    assert origin.facts_digest(replace(board, source="# other comments")) == digest
    other = replace(board, cpu=replace(board.cpu, clock_hz=1))
    assert origin.facts_digest(other) != digest


def test_a_board_that_is_not_there_is_said_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("device.doctor.desk", "device.device"):
        build = f"utvm_deploy.{module}.build_image"
        monkeypatch.setattr(build, lambda *_: pytest.fail("built"))
    assert silicon("--board", "stm32f746g_disco", "-o", "f.json") == 1
    said = capsys.readouterr().err
    assert "stm32f746g_disco is not ready, missing: " in said
    assert "serial port" in said and "utvm doctor --board stm32f746g_disco" in said
    assert silicon("--board", "stm32f746g_disco", "-o", "f.json", "--link", "debug") == 1
    assert "serial port" not in capsys.readouterr().err
    assert not Path("f.json").exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "--board is missing"),
        (("--board", "host"), "-o is missing"),
        (("--show", "a.json", "-o", "b.json"), "give either --show or -o"),
        (("--board", "host", "-o", "f.json", "--samples", "0"), "0 is not above zero"),
    ],
)
def test_a_wrong_command_line(
    argv: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert silicon(*argv) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--models", "nowhere"), "cannot read the folder nowhere"),
        (("--models", "."), ". holds no model (.tflite, "),
        (("--cases", "no such"), "no micro-benchmark is called 'no such', and there are none"),
    ],
)
def test_what_cannot_be_is_said_first(
    argv: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert silicon("--board", "host", "-o", "f.json", *argv) == 1
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_differs_is_exit_code_1(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(path: Path, inputs: Any) -> ReferenceRun:
        right = run_reference(path, inputs)
        outputs = tuple(tuple(array ^ 1 for array in arrays) for arrays in right.outputs)
        return replace(right, outputs=outputs)

    file = tmp_path / "f.json"
    monkeypatch.setattr(models, "run_reference", wrong)
    assert silicon("--board", "host", "-o", file, "--samples", 1) == 1
    assert "small_1.tflite differs" in capsys.readouterr().out
    assert content(file)["models"][0]["state"] == "differs"
    assert silicon("--show", file) == 1
    monkeypatch.setattr(models, "run_reference", run_reference)
    assert silicon("--board", "host", "-o", file, "--samples", 1) == 0
    assert [one["state"] for one in content(file)["models"]] == ["equal"]


def counted_runs(monkeypatch: pytest.MonkeyPatch, fail: Callable[[int], None]) -> list[str]:
    """The models that are run from now on; ``fail`` may raise at the nth."""
    ran: list[str] = []
    measure = run_module.measure_model

    def counting(device: Any, emulated: Any, file: Any, *rest: Any) -> Any:
        fail(len(ran))
        ran.append(file.path.name)
        return measure(device, emulated, file, *rest)

    monkeypatch.setattr(run_module, "measure_model", counting)
    return ran


def test_an_interrupted_run_goes_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = tmp_path / "more"
    extra.mkdir()
    write_small_model(extra, 2)
    file = tmp_path / "f.json"
    argv = ("--board", "host", "-o", file, "--samples", 1, "--models", extra)

    def at_the_second(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        assert counted_runs(patch, at_the_second) == []
        assert silicon(*argv) == 130
    assert "Traceback" not in capsys.readouterr().err
    kept = content(file)
    assert kept["unfinished"] == "interrupted"
    assert [one["file"] for one in kept["models"]] == ["small_1.tflite"]
    assert silicon("--show", file) == 1
    assert "not finished: interrupted; the same command continues" in capsys.readouterr().out

    ran = counted_runs(monkeypatch, lambda _: None)
    assert silicon(*argv) == 0
    assert ran == ["small_2.tflite"]
    found = content(file)
    assert found["unfinished"] == ""
    assert found["models"][0] == kept["models"][0]
    assert len(found["models"]) == 2


def test_a_failing_model_is_kept_with_its_error_and_nothing_private(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "volunteer7")
    monkeypatch.setattr(socket, "gethostname", lambda: "desk9.example.org")
    extra = tmp_path / "My Models of volunteer7"
    extra.mkdir()
    (extra / "broken.tflite").write_bytes(b"no model")
    file = tmp_path / "f.json"
    argv = ("--board", "host", "-o", file, "--samples", 1, "--models", extra)

    real_load = models.load_model

    def load(path: Path) -> Any:
        if path.name == "broken.tflite":
            raise models.UtvmError(
                f"cannot read {path}: volunteer7 on desk9.example.org (desk9) may not; see "
                f"{Path.home()}/x.log and /var/tmp/deep/y.log\n\x1b[1mnow"
            )
        return real_load(path)

    monkeypatch.setattr(models, "load_model", load)
    ran = counted_runs(monkeypatch, lambda _: None)
    assert silicon(*argv) == 1
    text = file.read_text()
    for private in ("volunteer7", "desk9", str(tmp_path), "My Models", "/var/tmp", "\\u001b"):
        assert private not in text, private
    broken = content(file)["models"][1]
    assert broken["state"] == "failed"
    assert broken["error"].startswith("UtvmError: cannot read broken.tflite: (hidden) on (hidden)")
    assert "see x.log and y.log" in broken["error"]
    assert "broken.tflite failed" in capsys.readouterr().out
    # Nothing but the failed one is done again.
    monkeypatch.setattr(models, "load_model", real_load)
    assert silicon(*argv) == 1
    assert ran == ["small_1.tflite", "broken.tflite", "broken.tflite"]
    broken = content(file)["models"][1]
    assert broken["error"].startswith("ModelError: ") and "(hidden)" not in broken["error"]


def test_a_model_that_crashes_the_board_leaves_the_others_alone(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = tmp_path / "more"
    extra.mkdir()
    write_small_model(extra, 2)
    file = tmp_path / "f.json"
    real_compile = models.compile_for

    def crashing(model: models.ModelFile, board: Any) -> Any:
        compiled = real_compile(model, board)
        if model.path != small:
            return compiled
        name = f"{compiled.name}.c"
        bad = "*(volatile int *)0 = 1;"
        text = re.sub(r"(_run\(uint8_t \*[^)]*\) \{)", rf"\1 {bad}", compiled.sources[name])
        assert bad in text
        return replace(compiled, sources={**compiled.sources, name: text})

    monkeypatch.setattr(models, "compile_for", crashing)
    argv = ("--board", "host", "-o", file, "--samples", 1, "--models", extra)
    assert silicon(*argv) == 1
    assert [one["state"] for one in content(file)["models"]] == ["failed", "equal"]
    assert content(file)["unfinished"] == ""


def test_more_samples_are_another_run(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f.json"
    ran = counted_runs(monkeypatch, lambda _: None)
    for samples in (1, 2, 1):
        assert silicon("--board", "host", "-o", file, "--samples", samples) == 0
    assert len(ran) == 2
    assert content(file)["models"][0]["samples"] == 2


def test_a_dry_run_prints_commands_and_writes_nothing(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--board", "stm32f746g_disco", "-o", tmp_path / "f.json", "--dry-run")
    assert silicon(*argv, "--port", "/dev/ttyUTVM") == 0
    said = capsys.readouterr().out
    assert "cmake" in said and "openocd" in said
    assert not (tmp_path / "f.json").exists()


def test_a_file_of_another_setup_is_left_alone(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.json"
    assert silicon("--board", "host", "-o", file, "--samples", 1) == 0
    before = file.read_text()
    monkeypatch.setattr(origin, "__version__", "9.9.9")
    assert silicon("--board", "host", "-o", file, "--samples", 1) == 1
    assert "and now it is 9.9.9; give another file with -o" in capsys.readouterr().err
    assert file.read_text() == before


@pytest.fixture(scope="module")
def good_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("good")
    path = write_small_model(folder, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verb.kit, "shipped_models", lambda: [path])
        assert silicon("--board", "host", "-o", folder / "f.json", "--samples", 1) == 0
    return (folder / "f.json").read_text()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"utvm.silicon/1"', '"utvm.silicon/2"', "its schema is 'utvm.silicon/2'"),
        ('"samples": 1', '"samples": -1', "models[0].samples is not a count"),
        ('"samples": 1', '"samples": true', "models[0].samples is not a number"),
        ('"samples": 1', '"samples": 1e400', "models[0].samples is not a count"),
        ('"samples": 1', f'"samples": {"9" * 5000}', "is not a report"),
        ('"ticks_median": ', '"ticks_median": NaN, "x": ', "models[0].'x' is not known"),
        ('"unfinished": ""', '"unfinished": "\\u001b[2J"', "unfinished holds characters"),
        ('"unfinished": ""', '"unfinished": null', "unfinished is not text"),
        ('"unfinished": ""', '"extra": ""', "unfinished is missing"),
        ('"micro_benchmarks": []', '"micro_benchmarks": {}', "micro_benchmarks is not a list"),
        ("{", "[" * 100_000, "is not a report"),
        ("{", "", "is not a report"),
    ],
)
def test_a_damaged_file_is_one_sentence(
    old: str, new: str, says: str, good_text: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert old in good_text
    capsys.readouterr()
    file = tmp_path / "f.json"
    file.write_text(good_text.replace(old, new, 1))
    assert silicon("--show", file) == 1
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e400", "1" + 400 * "0"])
def test_cycles_are_numbers_of_cycles(number: str, good_text: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(re.sub(r'"ticks_median": [^,]*', f'"ticks_median": {number}', good_text))
    with pytest.raises(UtvmError, match=r"models\[0\]\.ticks_median is not a number of cycles"):
        read_report(file)


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    """It would be read for ever."""
    os.mkfifo(tmp_path / "x.tflite")
    with pytest.raises(UtvmError, match=r"cannot read the model .* it is a pipe or a device"):
        models.ModelFile.at(tmp_path / "x.tflite")


def test_a_file_comes_back_as_it_was_written(good_text: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(good_text)
    assert {"schema": "utvm.silicon/1", **read_report(file).as_json()} == json.loads(
        good_text, object_pairs_hook=_tuples
    )


def _tuples(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in pairs}
