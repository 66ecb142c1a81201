"""utvm init and utvm.toml: what the file may say, what it may not, and that a line says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.main import main

DIGITS = data_dir("models") / "digits.tflite"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, where commands start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTVM_BOARD", raising=False)
    shutil.copy(DIGITS, tmp_path / "model.tflite")
    return tmp_path


@pytest.mark.slow
def test_verbs_read_it_and_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "model.tflite", "--board", "host", "--optimize", "size"]) == 0
    assert capsys.readouterr().out == "wrote utvm.toml\n"
    assert main(["inspect"]) == 0
    assert "utvm.toml: MODEL model.tflite, --board host\n" in capsys.readouterr().err
    assert main(["compile", "-o", "x.tar", "--dry-run"]) == 0
    said = "utvm.toml: MODEL model.tflite, --board host, --optimize size\n"
    assert said in capsys.readouterr().err
    # The command line counts more, and so does the environment.
    assert main(["compile", "model.tflite", "--optimize", "time", "-o", "x.tar", "--dry-run"]) == 0
    assert "utvm.toml: --board host\n" in capsys.readouterr().err
    assert main(["inspect", "--supported"]) == 0
    assert "utvm.toml" not in capsys.readouterr().err
    assert main(["boards"]) == 0
    assert "utvm.toml" not in capsys.readouterr().err


def test_the_environment_counts_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", "model.tflite", "--board", "host"]) == 0
    monkeypatch.setenv("UTVM_BOARD", "nowhere")
    assert main(["compile", "-o", "x.tar"]) == 1
    assert "no board 'nowhere'" in capsys.readouterr().err


def test_init_never_replaces_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    before = (folder / "utvm.toml").read_bytes()
    capsys.readouterr()
    assert main(["init"]) == 1
    told = "error: utvm.toml exists, and init never replaces it; "
    assert told + "change it with an editor" in capsys.readouterr().err
    assert main(["init", "model.tflite", "--board", "host", "--ram-budget", "32K"]) == 1
    assert capsys.readouterr().err.startswith(
        f'{told}write model = "model.tflite" and board = "host" and ram-budget = "32K" below '
        "[options] into it with an editor, or remove it first"
    )
    assert (folder / "utvm.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["none.tflite"], "none.tflite is not a file"),
        (["--board", "hsot"], "no board 'hsot'; did you mean 'host'?"),
        (["--optimize", "tme"], "did you mean 'time'?"),
        (["--ram-budget", "3Q"], "'3Q' is not a size"),
    ],
)
def test_init_checks_what_it_writes(
    argv: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *argv]) in (1, 2)
    assert says in capsys.readouterr().err
    assert not (folder / "utvm.toml").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('plugin = "x.py"', "utvm.toml: plugin: unknown key"),
        ("[options]\ntrust-board = true", "options.trust-board: utvm.toml cannot set it"),
        ('[options]\nplugin = "x.py"', "options.plugin: utvm.toml cannot set it; it may have"),
        ("[options]\nallow-code = true", "options.allow-code: utvm.toml cannot set it"),
        ('[options]\noutput = "/etc/x"', "options.output: utvm.toml cannot set it"),
        ('[options]\ncmsis-nn = "x"', "options.cmsis-nn: utvm.toml cannot set it"),
        ('[options]\noptimise = "ram"', "did you mean 'optimize'?"),
        ('[options]\noptimize = "rum"', "optimize: 'rum' is not one of time, size"),
        ("[options]\noptimize = true", "optimize: must be a value"),
        ("[options]\noptimize = [1]", "must be a string, a number or true"),
        ('[options]\nno-float = "yes"', "no-float: must be true"),
        ('[options]\nram-budget = "12Q"', "ram-budget: '12Q' is not a size"),
        ('board = "utvm://far/host"', "a server is named on the command line only"),
        ("board = 3", "must be a string"),
        ("[[x", "cannot be read as TOML"),
    ],
)
def test_a_wrong_file_is_one_sentence(
    text: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "utvm.toml").write_text(text)
    assert main(["compile", "model.tflite", "--board", "host", "-o", "x.tar"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: utvm.toml: ") and says in error and error.count("\n") == 1


def test_numbers_and_several_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "utvm.toml").write_text(
        'model = "model.tflite"\nboard = "nowhere"\n[options]\nram-budget = 32768\nshape = "x=1"\n'
    )
    for verb in ("bench", "memory"):
        assert main([verb]) == 1
        assert "MODEL model.tflite" in capsys.readouterr().err
