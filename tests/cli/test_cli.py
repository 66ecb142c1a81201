"""The command line as scripts and CI use it: exit codes, one sentence on failure, --json."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import board_names
from utvm_deploy.cli.main import build_parser, main
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.verbs import VERBS

DIGITS = str(data_dir("models") / "digits.tflite")
HOST = ("--board", "host")
HELD_OUT = data_dir("models") / "digits_test.npz"


ROOT = Path(__file__).parents[2]
#: How long a process may take on a loaded machine.
PATIENCE_S = 120.0
JSON_PAGE = (ROOT / "docs" / "reference" / "json.md").read_text()


def run_json(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    """Run with --json; stdout must be exactly one object that says its schema."""
    assert main([*argv, "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    (row,) = re.findall(rf"^\| `{result['schema']}` \|.*$", JSON_PAGE, re.MULTILINE)
    fields = JSON_PAGE if row.endswith("see below |") else row
    if result["schema"] != "utvm.board/1":  # "field by field"
        assert [key for key in result if f"`{key}" not in fields and key != "schema"] == []
    return result


def failure(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Run what must fail; the one sentence it says."""
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    *steps, said = captured.err.splitlines()
    # Progress comes before it, one short line a step.
    begins = ("compiling", "building", "reading", "running", "looking", "listing")
    assert all(step.startswith(begins) for step in steps), steps
    assert said.startswith("error: ")
    return said


def test_every_verb_has_its_name() -> None:
    for verb in VERBS:
        (subparsers,) = (action for action in build_parser(verb)._actions if action.dest == "verb")
        assert list(subparsers.choices or ()) == [verb]


@pytest.mark.tools
def test_verbs_that_compile_nothing_do_without_tvm() -> None:
    code = (
        "import sys; from utvm_deploy.cli.main import main\n"
        "for argv in (['boards'], ['doctor']):\n"
        "    assert main(argv) == 0\n"
        "    assert 'tvm' not in sys.modules, argv\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


def test_every_verb_is_documented() -> None:
    for verb in VERBS:
        assert f"`{verb}" in JSON_PAGE, verb


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "VERB; see utvm --help"),
        (["nonsense"], "no verb 'nonsense'; see utvm --help"),
        (["insepct", DIGITS], "no verb 'insepct'; did you mean 'inspect'? (see utvm --help)"),
        (
            ["inspect", DIGITS, "--supportd"],
            "utvm inspect has no option --supportd; did you mean '--supported'? (see utvm inspect",
        ),
        (["compile", DIGITS, "--bord", "host"], "has no option --bord; did you mean '--board'?"),
        (["compile", DIGITS, *HOST, "-o", "x.tar", "--optimize", "tme"], "did you mean 'time'?"),
        (["project", "biuld"], "did you mean 'build'? (see utvm project --help)"),
        (["run", DIGITS], "--board; see utvm run --help"),
        (["project", "build"], "DIR; see utvm project build --help"),
        (["verify", DIGITS, *HOST, "--samples", "0"], "0 is not above zero"),
        (["verify", DIGITS, *HOST, "--samples", "x"], "'x' is not an integer"),
        (["run", DIGITS, *HOST, "--link", "foo"], "no link 'foo'; choose monitor, debug or"),
        (["run", DIGITS, *HOST, "--link", "debug@9600"], "no link 'debug@9600'; only the monitor"),
        (["run", DIGITS, *HOST, "--name", "7up"], "'7up' cannot prefix C symbols"),
        (["run", DIGITS, *HOST, "--name", "int"], "'int' is reserved"),
        (["compile", DIGITS, *HOST, "-o", "x.tar", "--dump", "foo"], "invalid choice: 'foo'"),
        (["profile", DIGITS, *HOST, "--fail-over", "3"], "--baseline; give that, too"),
        (["run", DIGITS, *HOST, "--cmsis-nn", "x"], "only with --kernels cmsis-nn"),
        (["tune", DIGITS, *HOST, "--trials", "1"], "give --records R.jsonl"),
        (["tune", DIGITS, *HOST, "--records", "r"], "give --trials N or --minutes M"),
        (["tune", DIGITS, *HOST, "--minutes", "x"], "'x' is not a number of minutes"),
        (["tune", DIGITS, *HOST, "--minutes", "nan"], "nan minutes is too little or too much time"),
        (["tune", DIGITS, *HOST, "--seed", "-1"], "-1 is not a seed; give one from 0"),
        (["bundle", DIGITS, "-o", "x"], "--board is missing"),
        (["report", "missing.tflite", "--try-it"], "is a model, and the report needs a board"),
        (["inspect", "--supported", "--svg", "x.svg"], "--svg draws a MODEL"),
        (["inspect", "--supported", "--passes"], "--passes is of a MODEL"),
        (["bundle", DIGITS, "--check", "x"], "give either MODEL or --check"),
        (["project", "create", "x.tar", "tree", *HOST, "--scratch", "stack"], "so --scratch would"),
        (["project", "create", "x.tar", "tree", *HOST, "--name", "x"], "so --name would change"),
    ],
)
def test_a_wrong_command_line_is_refused_before_any_work(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = run_json(capsys, *argv, code=2)
    assert (found["schema"], found["kind"]) == ("utvm.error/1", "UsageError")
    assert says in found["error"]
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {found['error']}\n")
    assert list(tmp_path.iterdir()) == []


def test_help_of_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["project", "build", "--help"], ["bundle", "--help"]):
        with pytest.raises(SystemExit) as stopped:
            build_parser().parse_args(argv)
        assert stopped.value.code == 0
    assert "--format" in capsys.readouterr().out


def test_boards(capsys: pytest.CaptureFixture[str]) -> None:
    listed = run_json(capsys, "boards")
    assert [board["name"] for board in listed["boards"]] == board_names()
    one = run_json(capsys, "boards", "mps2_an500")
    assert one["cpu"]["core"] == "cortex-m7"
    assert main(["boards", "mps2_an500"]) == 0
    assert "cortex-m7" in capsys.readouterr().out


@pytest.mark.tools
def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_json(capsys, "doctor", "--board", "mps2_an500")["ok"] is True
    monkeypatch.setenv("PATH", "")
    found = run_json(capsys, "doctor", "--board", "mps2_an500", code=1)
    missing = {check["what"]: check["fix"] for check in found["checks"] if not check["ok"]}
    assert "apt install qemu-system-arm" in missing["qemu-system-arm"]
    # The cycle model's plugin is compiled with it; without it instructions are counted.
    absent = {check["what"] for check in found["checks"] if check["found"] is None}
    assert absent - missing.keys() == {"cc"}
    # Without a board nothing is insisted on: pip alone is a complete installation.
    assert run_json(capsys, "doctor")["ok"] is True


def test_inspect(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = run_json(capsys, "inspect", DIGITS, "--svg", str(tmp_path / "digits.svg"))
    assert found["macs"] == 254_208
    assert [op["kind"] for op in found["operators"]][:2] == ["CONV_2D", "CONV_2D"]
    assert (tmp_path / "digits.svg").read_text().startswith("<svg")
    assert found["passes"] is None
    assert main(["inspect", DIGITS]) == 0
    assert "DEPTHWISE_CONV_2D" in capsys.readouterr().out


def test_inspect_passes(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "inspect", DIGITS, "--passes")["passes"]
    for figure, before in found["before"].items():
        removed = sum(one[figure] for one in found["removed"])
        assert before - found["after"][figure] == removed
    assert main(["inspect", DIGITS, "--passes"]) == 0
    said = capsys.readouterr().out
    assert "all passes" in said and "after all passes: " in said


@pytest.mark.tools
def test_compile_writes_a_library(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "digits.tar"
    argv = ["compile", DIGITS, "--board", "mps2_an500", "-o", str(out)]
    result = run_json(capsys, *argv, "--dump", "place")
    assert result["arena_bytes"] > 0
    with tarfile.open(out) as archive:
        assert "./metadata.json" in archive.getnames() or "metadata.json" in archive.getnames()
    assert (tmp_path / "digits.place.txt").stat().st_size > 0
    first = out.read_bytes()
    run_json(capsys, *argv)
    assert out.read_bytes() == first


@pytest.mark.tools
def test_project_from_a_library(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    library, tree = tmp_path / "digits.tar", tmp_path / "tree"
    run_json(capsys, "compile", DIGITS, "--board", "mps2_an500", "-o", str(library))
    created = run_json(
        capsys, "project", "create", str(library), str(tree), "--board", "mps2_an500"
    )
    assert Path(created["directory"]) == tree
    built = run_json(capsys, "project", "build", str(tree))
    assert Path(built["elf"]).is_file()
    assert built["flash_bytes"] > 7_000


@pytest.mark.tools
def test_run_and_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with np.load(HELD_OUT) as held_out:
        inputs, outputs = held_out["inputs"], held_out["outputs"]
    np.save(tmp_path / "in.npy", inputs[0])
    argv = ["--board", "host", "--input", "in.npy", "--output", "out.npy"]
    result = run_json(capsys, "run", DIGITS, *argv)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), outputs[0])
    assert result["outputs"][0]["values"] == outputs[0].tolist()
    assert result["tick_unit"] == "nanoseconds"

    assert run_json(capsys, "verify", DIGITS, "--board", "host", "--samples", "3")["ok"] is True
    np.savez(tmp_path / "good.npz", inputs=inputs[:3], outputs=outputs[:3])
    golden = ["verify", DIGITS, "--board", "host", "--golden", "good.npz"]
    assert run_json(capsys, *golden)["samples"] == 3

    outputs[1, 0, 4] ^= 1
    np.savez(tmp_path / "bad.npz", inputs=inputs[:3], outputs=outputs[:3])
    golden[-1] = "bad.npz"
    found = run_json(capsys, *golden, code=1)
    assert found["golden_differs"] and not found["ok"]
    assert main(golden) == 1
    assert "MISMATCH" in capsys.readouterr().out


@pytest.mark.tools
def test_profile(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "profile", DIGITS, "--board", "host")
    assert len(found["layers"]) > 5
    assert found["seconds"] > 0
    assert main(["profile", DIGITS, "--board", "host"]) == 0
    assert "CONV_2D" in capsys.readouterr().out


@pytest.mark.tools
def test_bundle_and_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "out"
    argv = ["bundle", DIGITS, "--board", "mps2_an500", "-o", str(target)]
    assert run_json(capsys, *argv, "--name", "seven")["name"] == "seven"
    assert run_json(capsys, "bundle", "--check", str(target))["ok"] is True
    header = next(target.rglob("seven.h"))
    header.write_text(header.read_text() + "\n")
    assert "seven.h" in failure(capsys, "bundle", "--check", str(target))


@pytest.mark.slow
def test_dry_run_prints_commands_and_runs_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cache of its own: in the one that is shared another test may link an image meanwhile.
    cache = tmp_path / "cache"
    monkeypatch.setenv("UTVM_CACHE", str(cache))
    for verb in ("run", "verify", "profile"):
        assert main([verb, DIGITS, "--board", "mps2_an386", "--name", "dry", "--dry-run"]) == 0
        out = capsys.readouterr().out
        assert "cmake" in out
        assert "qemu-system-arm" in out
    assert list(cache.rglob("*.elf")) == []
    argv = ["compile", DIGITS, "--board", "host", "-o", str(tmp_path / "x.tar"), "--dry-run"]
    assert main(argv) == 0
    assert "warning" not in capsys.readouterr().err
    assert main(["project", "create", DIGITS, "tree", "--board", "host", "--dry-run"]) == 0
    assert not (tmp_path / "x.tar").exists() and not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["inspect", "missing.tflite"], "No such file or directory; give the path of a .tflite"),
        (["inspect", "pipe.tflite"], "it is a pipe or a device"),
        (["inspect", "pipe.onnx"], "it is a pipe or a device"),
        (["report", "pipe.tflite"], "it is a pipe or a device"),
        (["tune", DIGITS, *HOST, "--records", "pipe.tflite", "--trials", "1"], "it is a pipe"),
        (["verify", DIGITS, *HOST, "--golden", "pipe.tflite"], "it is a pipe or a device"),
        (["run", DIGITS, *HOST, "--input", "pipe.tflite"], "it is a pipe or a device"),
        (
            ["profile", DIGITS, *HOST, "--baseline", "deep.jsonl"],
            "deep.jsonl is not a baseline; give",
        ),
        (["project", "build", "deep"], "deep"),
        (["profile", DIGITS, *HOST, "--baseline", "pipe.tflite"], "it is a pipe or a device"),
        (["project", "create", "pipe.tar", "tree", *HOST], "it is a pipe or a device"),
        (["boards", "own.tflite"], "'own.tflite' is not a board file: its name ends in .toml"),
        (["report", "deep.jsonl"], "is not a records file (line 1: it is not JSON)"),
        (["report", "missing.jsonl", "-o", "no/such/page.html"], "there is no folder no/such"),
        (["report", "text.npz", "-o", "text.npz"], "holds the records; give another name"),
        (["run", DIGITS, *HOST, "--link", "debug"], "host has no debug link; choose one"),
        (["inspect", "."], "."),
        (["verify", DIGITS, "--board", "mps2_an50"], "did you mean 'mps2_an500'"),
        (["verify", DIGITS, "--board", "no/such.toml"], "no/such.toml"),
        (["verify", "text.tflite", "--board", "host"], "text.tflite"),
        (["verify", DIGITS, "--board", "host", "--golden", "text.npz"], "text.npz is no .npz file"),
        (["verify", DIGITS, *HOST, "--samples", "1" + "0" * 30], "ask for 1,000,000 at most"),
        (["verify", DIGITS, "--board", "host", "--golden", "missing.npz"], "missing.npz: No such"),
        (["run", DIGITS, "--board", "host", "--input", "missing.npy"], "missing.npy"),
        (
            ["run", DIGITS, "--board", "host", "--input", "wrong.npy"],
            "takes int8 of shape (1, 8, 8, 1): give one sample of shape (1, 8, 8, 1) or (8, 8, 1)",
        ),
        (
            ["run", DIGITS, "--board", "host", "--input", "flat.npy"],
            "flat.npy has shape (4, 16)",
        ),
        (
            ["run", DIGITS, "--board", "host", "--input", "float.npy"],
            "takes int8 of shape (1, 8, 8, 1): quantize it, round(x",
        ),
        (["run", DIGITS, "--board", "host", "--input", "wide.npy"], "convert it, astype('int8')"),
        (
            ["compile", DIGITS, "--board", "host", "-o", "no/such/dir/x.tar"],
            "no folder no/such/dir",
        ),
        (["compile", DIGITS, "--board", "host", "-o", "."], "it is a folder"),
        (["compile", DIGITS, *HOST, "-o", "pipe.tar"], "pipe.tar: it is a pipe or a device"),
        (["project", "create", DIGITS, "pipe.tar", *HOST], "pipe.tar is not a folder"),
        (["project", "create", DIGITS, ".", *HOST], "is not empty and not a project of utvm"),
        (["bundle", DIGITS, *HOST, "-o", "pipe.tar"], "pipe.tar is not a folder"),
        (["run", DIGITS, "--board", "host", "--output", "."], "it is a folder"),
        (["verify", DIGITS, "--board", "host", "--golden", "wrong.npy"], "no .npz file"),
        (["inspect", DIGITS, "--svg", "."], "it is a folder"),
        (["compile", "own.tflite", "--board", "host", "-o", "own.tflite"], "the model itself"),
        (["inspect", "own.tflite", "--svg", "./own.tflite"], "the model itself"),
        (["bundle", "own.tflite", "--board", "host", "-o", "link.tflite"], "the model itself"),
        (["run", "own.tflite", "--board", "host", "--output", "own.tflite"], "the model itself"),
        (
            ["bundle", DIGITS, "--board", "host", "-o", "."],
            "would be replaced, and is not an unchanged bundle",
        ),
        (["bundle", "--check", "text.npz"], "no .zip file, or a damaged one (File is not a zip"),
        (["boards", "binary.toml"], "binary.toml: cannot be read as TOML: it is not text"),
        (["boards", "deep.toml"], "it is nested too deeply"),
        (["bundle", DIGITS, "--board", "host", "-o", "no/such"], "no folder no"),
        (["bundle", DIGITS, "--board", "host", "-o", "text.npz"], "text.npz is not a folder"),
        (["bundle", "--check", "."], "manifest.json is missing: . is not a bundle"),
        (["run", DIGITS, "--board", "host", "--input", "text.npz"], "no .npy array"),
        (["project", "build", "nowhere"], "nowhere"),
        (["project", "create", "text.tar", "tree", "--board", "host"], "text.tar"),
        (["bundle", "--check", "nowhere"], "nowhere"),
        (["run", DIGITS, "--board", "nucleo_f746zg"], "port"),
    ],
)
def test_nonsense_gets_one_sentence(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("text.tflite", "text.npz", "text.tar"):
        (tmp_path / name).write_text("this is not what its name says\n" * 20)
    (tmp_path / "own.tflite").write_bytes(Path(DIGITS).read_bytes())
    (tmp_path / "link.tflite").symlink_to("own.tflite")
    np.save(tmp_path / "wrong.npy", np.zeros((1, 3), np.int8))
    np.save(tmp_path / "flat.npy", np.zeros((4, 16), np.int8))
    np.save(tmp_path / "float.npy", np.zeros((1, 8, 8, 1), np.float32))
    np.save(tmp_path / "wide.npy", np.zeros((1, 8, 8, 1), np.int64))
    (tmp_path / "deep.jsonl").write_text("[" * 100_000 + "\n")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    (tmp_path / "binary.toml").write_bytes(b"\xb8\x00")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "utvm_project.json").write_text("[" * 100_000)
    for name in ("pipe.tflite", "pipe.onnx", "pipe.tar"):
        os.mkfifo(tmp_path / name)
    said = failure(capsys, *argv)
    assert says in said
    assert (tmp_path / "own.tflite").read_bytes() == Path(DIGITS).read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
@pytest.mark.parametrize(
    "verb", [["compile", DIGITS, "-o", "shut/x"], ["bundle", DIGITS, "-o", "shut/x"]]
)
def test_a_shut_folder_is_told_before_any_work(
    verb: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "shut").mkdir(mode=0o555)
    said = failure(capsys, *verb, *HOST)
    assert said == (
        f"error: cannot write shut/x: nothing may be written to {tmp_path}/shut; name another "
        "folder"
    )


@pytest.mark.emulator
@pytest.mark.parametrize(
    "verb", [["run", DIGITS], ["tune", DIGITS, "--trials", "1", "--records", "r.jsonl"]]
)
def test_a_missing_emulator_is_told_once(
    verb: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    board = tmp_path / "mps2_an500.toml"
    shipped = (data_dir("boards") / "mps2_an500.toml").read_text()
    board.write_text(shipped.replace("qemu-system-arm", "qemu-system-absent"))
    said = failure(capsys, *verb, "--board", str(board), "--trust-board")
    assert said.startswith("error: qemu-system-absent is not installed; it is needed to go on. ")


@pytest.mark.tools
@pytest.mark.parametrize(
    "verb", [["run", DIGITS], ["profile", DIGITS], ["doctor"]], ids=lambda argv: argv[0]
)
def test_no_port_leads_to_a_board_that_runs_here(
    verb: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = failure(capsys, *verb, "--board", "host", "--port", "/dev/ttyACM0")
    assert said == (
        "error: host runs on this computer, where no port leads to it; leave it out, or name a "
        "real board"
    )
    with pytest.raises(BoardError, match="no port and no probe leads to it; leave them out"):
        utvm_deploy.connect("mps2_an500", port="/dev/ttyACM0", probe="pyocd")
    # A setting for the board on the desk is not a question to an emulated one.
    monkeypatch.setenv("UTVM_PORT", "/dev/ttyACM0")
    assert main([*verb, "--board", "host", *(["--dry-run"] if verb[0] != "doctor" else [])]) == 0


@pytest.mark.tools
def test_without_a_home_folder_the_cache_must_be_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Homeless(type(Path())):  # type: ignore[misc]
        @classmethod
        def home(cls) -> Path:
            raise RuntimeError("Could not determine home directory.")

    # There alone: TVM asks for a home folder as well, when it is imported.
    monkeypatch.setattr("utvm_deploy.base.paths.Path", Homeless)
    for name in ("UTVM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert "set UTVM_CACHE" in failure(capsys, "verify", DIGITS, "--board", "host")


def test_json_failure_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "inspect", "missing.tflite", code=1)
    assert found["schema"] == "utvm.error/1"
    assert "missing.tflite" in found["error"]


def test_a_table_that_does_not_change_is_told_each_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ""
    with Output().live_table(["kernel"]) as show:
        show([["conv"]], "tuning: 0 of 9 trials")
        deadline = time.monotonic() + PATIENCE_S
        while "trials (for " not in said and time.monotonic() < deadline:
            time.sleep(0.02)
            said += capsys.readouterr().err
    first, second, *_ = said.splitlines()
    assert first == "tuning: 0 of 9 trials"
    assert re.fullmatch(r"tuning: 0 of 9 trials \(for \d+ s\)", second)
