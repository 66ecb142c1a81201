"""Each tutorial works as it stands: its files, its commands, and what they print."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import page_runner
import pytest
import yaml
from page_runner import ROOT, TUTORIALS, Block, blocks, commands, first_difference, run_page

from utvm_deploy.cli.main import build_parser

# `utvm serve` for tests.
sys.path.append(str(ROOT / "tests" / "service"))
PAGES = sorted(path.name for path in TUTORIALS.glob("*.md"))


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("a 100 b\n", "a  105 b\n", True),
        ("a 100 b\n", "a 150 b\n", False),
        ("a\n...\nc 1,000\n", "a\nb\nb\nc 1,001\nd\n", True),
        ("a\nc\n", "a\nb\nc\n", False),
        ("a b ...\n", "a b c d\n", True),
        ("...\nnothing like it\n", "a\n", False),
    ],
)
def test_what_is_shown_is_what_is_printed(shown: str, printed: str, is_right: bool) -> None:
    assert (first_difference(shown, printed) is None) == is_right


def test_commands_of_a_block() -> None:
    block = Block("sh", "", "pip install x\nutvm a \\\n    --b c\n\n# no command\nls\n")
    assert commands(block) == ["utvm a --b c", "ls"]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_utvm_takes_its_arguments(page: str) -> None:
    found = [line for block in blocks(page) if block.language == "sh" for line in commands(block)]
    assert found
    for line in found:
        verb, *arguments = shlex.split(re.split(r"[|>#]|&&", line)[0])
        if verb == "utvm" and arguments[0] not in ("serve", "submit"):
            assert build_parser(arguments[0]).parse_args(arguments)


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        *("first-model.md", "from-data.md", "small-ram.md", "tune-in-ci.md"),
        *("own-board.md", "own-operator.md", "risc-v.md", "vibration.md"),
        "own-accelerator.md",
        *("microphone.md", "camera.md"),
        # These compute for a minute and more.
        pytest.param("train-on-device.md", marks=pytest.mark.soak),
        pytest.param("quantization-aware-training.md", marks=pytest.mark.soak),
    ],
)
def test_a_tutorial(
    page: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], image_cache: Path
) -> None:
    if page in ("from-data.md", "vibration.md", "microphone.md"):
        pytest.importorskip("torch")
    assert Path.cwd() == tmp_path
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # as in a clone
    run_page(page, capfd, UTVM_CACHE=str(image_cache))


@pytest.mark.emulator
@pytest.mark.slow
def test_the_tutorial_of_a_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    image_cache: Path,
) -> None:
    server_process = pytest.importorskip("server_process")
    cache = {"UTVM_CACHE": str(image_cache)}
    with server_process.serving(tmp_path / "data", env=cache) as server:
        monkeypatch.setenv("UTVM_SERVER", server.url)
        run_page("team-server.md", capfd, **cache)
    # What the runner leaves out, because it never ends, is a command, too.
    text = (TUTORIALS / "team-server.md").read_text(encoding="utf-8")
    serves = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("utvm serve")]
    assert len(serves) == 3
    for argv in serves:
        assert build_parser("serve").parse_args(argv)


def test_the_workflow_is_the_one_whose_steps_other_tests_run() -> None:
    (shown,) = (one for one in blocks("tune-in-ci.md") if one.title.endswith(".yml"))
    workflow = yaml.safe_load(shown.text)
    example = yaml.safe_load((ROOT / "examples" / "ci" / "github-actions.yml").read_text("utf-8"))
    example["env"]["MODEL"] = "digits.tflite"
    example["jobs"] = {"mps2_an500": example["jobs"]["mps2_an500"]}
    example["jobs"]["mps2_an500"]["env"]["TRIALS"] = 8
    assert workflow == example


def test_the_runner_finds_all_blocks() -> None:
    assert all(page_runner.blocks(page) for page in PAGES)
