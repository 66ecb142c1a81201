"""examples/ci/github-actions.yml, run step by step in an empty folder, as the service would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from server_process import Server

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / "examples" / "ci" / "github-actions.yml").read_text("utf-8"))
JOBS: dict[str, Any] = WORKFLOW["jobs"]
#: How long a step may take on a loaded machine.
PATIENCE_S = 300.0
#: Steps that install or download; their text is checked instead.
DOWNLOADS = ("sudo apt-get", "pip install", "git clone")
#: A shell that ends at the first command that fails, as the service starts it.
SHELL = ("bash", "-e")


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = JOBS[job]["steps"]
    return found


def is_download(step: Mapping[str, Any]) -> bool:
    return any(words in step["run"] for words in DOWNLOADS)


RUNS = [(job, step) for job in JOBS for step in steps(job) if "run" in step]


def test_the_workflow_has_the_shape_that_the_service_reads() -> None:
    # YAML 1.1 takes the key "on" for a boolean.
    assert set(WORKFLOW) == {"name", True, "permissions", "env", "jobs"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in JOBS.values():
        assert {"runs-on", "timeout-minutes", "env", "steps"} <= set(job)
        assert set(job) <= {"if", "runs-on", "timeout-minutes", "env", "steps"}
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1
            assert set(step) <= {"id", "name", "if", "uses", "with"} | {"run"}
            assert "with" not in step or "uses" in step
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+(/[\w.-]+)+@v\d+", step["uses"])


def test_no_expression_becomes_part_of_a_script() -> None:
    # A branch or a title may be anything: scripts read them from the environment only.
    assert RUNS and not [step for _, step in RUNS if "${{" in step["run"]]


def test_what_is_written_to_a_cache_is_read_from_it() -> None:
    for job in JOBS:
        caches = [step["with"] for step in steps(job) if "/cache" in step.get("uses", "")]
        saved = [step["with"] for step in steps(job) if "cache/save" in step.get("uses", "")]
        for cache in caches:
            assert cache["key"].count("${{") == cache["key"].count("}}")
            assert cache["key"].startswith(cache.get("restore-keys", ""))
        for cache in saved:
            same = [one for one in caches if one["path"] == cache["path"]]
            assert len(same) == 2 and same[0]["key"] == same[1]["key"]


def test_main_has_new_figures_after_it_grew() -> None:
    """Else main would be compared with its old figures forever."""
    for job in ("mps2_an500", "server"):
        names = [step.get("name") for step in steps(job)]
        after = steps(job)[names.index("Compare with main") + 1 :]
        keeping = [step for step in after if "main's figures" in step.get("name", "")]
        assert len(keeping) == 2
        for step in keeping:
            # Without a function of the status, a step is left out after one that failed.
            wanted = ["always()", "github.ref == 'refs/heads/main'"]
            wanted.append("steps.profile.outcome == 'success'")
            assert step["if"].split(" && ") == wanted
        (profile,) = (step for step in steps(job) if step.get("id") == "profile")
        assert profile["name"] == "Profile"


def test_what_the_jobs_install() -> None:
    setup = (ROOT / "scripts" / "setup").read_text("utf-8")
    zephyr = (ROOT / "docs" / "guides" / "zephyr.md").read_text("utf-8")
    extras = re.search(
        r"optional-dependencies\]\n(.*?)\n\n", (ROOT / "pyproject.toml").read_text("utf-8"), re.S
    )
    assert extras is not None
    downloads = {job: "" for job in JOBS}
    for job, step in RUNS:
        if is_download(step):
            downloads[job] += step["run"] + "\n"
    for text in downloads.values():
        for line in re.findall(r"apt-get install -y (.*)", text):
            for package in line.split():
                assert re.search(rf"[ \"]{package}[ \"\n]", setup + zephyr), package
        for extra in re.findall(r"utvm_deploy\[(\w+)\]", text):
            assert f"\n{extra} = " in f"\n{extras[1]}"
        assert "utvm_deploy" in text
    assert "clone --depth 1 -b v3.7.1 https://github.com/" in downloads["qemu_x86"]
    assert "west init -m https://github.com/zephyrproject-rtos/zephyr --mr v3.7.1" in zephyr
    assert not downloads["server"].count("apt-get")  # the server has the tools


def environment(job: str, folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """No setting of the user's reaches a step; ``utvm`` is this checkout's."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("UTVM_")}
    written = {**WORKFLOW["env"], **JOBS[job]["env"]}
    plain = {name: str(value) for name, value in written.items() if "${{" not in str(value)}
    assert set(more) <= set(written) | {"UTVM_SERVER", "ZEPHYR_BASE"}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "UTVM_RUNS": str(folder / "runs.sqlite"),
        "GITHUB_ENV": str(folder / "github-env"),
        **plain,
        **more,
    }


def run_step(job: str, name: str, folder: Path, more: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and what the step wrote."""
    (step,) = (step for step in steps(job) if step.get("name") == name)
    variables = environment(job, folder, more)
    exported = Path(variables["GITHUB_ENV"])
    lines = exported.read_text().splitlines() if exported.exists() else []
    done = subprocess.run(
        [*SHELL, "-c", step["run"]],
        cwd=folder,
        env={**variables, **dict(line.split("=", 1) for line in lines)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout + done.stderr


def run_steps(job: str, folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """What each step wrote. A step that fails fails the test."""
    written = {}
    for step in steps(job):
        if "run" in step and not is_download(step):
            code, told = run_step(job, step["name"], folder, more)
            assert code == 0, f"{step['name']}: {told}"
            written[step["name"]] = told
    return written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a checkout has of what the steps read."""
    made = tmp_path / "checkout"
    made.mkdir()
    shutil.copy(ROOT / "models" / "digits.tflite", made / WORKFLOW["env"]["MODEL"])
    return made


@pytest.mark.slow
@pytest.mark.emulator
def test_the_job_on_an_emulated_board(folder: Path, image_cache: Path) -> None:
    more = {"TRIALS": "2", "UTVM_CACHE": str(image_cache)}
    written = run_steps("mps2_an500", folder, more)
    assert "main has no figures" in written["Compare with main"]
    assert len((folder / "records.jsonl").read_text().splitlines()) > 1
    assert (folder / "profile.html").exists()
    # The next run finds main's figures, and a slower layer.
    slower = (folder / "main.json").read_text().replace('"ticks": ', '"ticks": 1')
    (folder / "profile.json").write_text(slower)
    code, told = run_step("mps2_an500", "Compare with main", folder, more)
    assert code == 1 and "GREW by more than 3 %" in told
    assert (folder / "compare.html").exists()


@pytest.mark.slow
@pytest.mark.emulator
def test_the_job_with_a_server(folder: Path, server: Server) -> None:
    more = {"UTVM_SERVER": server.url, "AUTHORITY": ""}
    written = run_steps("server", folder, more)
    assert "main has no figures" in written["Compare with main"]
    assert (folder / "firmware" / "bundle.zip").stat().st_size > 10_000
    # The next run finds main's figures.
    code, told = run_step("server", "Compare with main", folder, more)
    assert code == 0 and "+0.0 %" in told


@pytest.mark.slow
@pytest.mark.emulator
def test_the_job_under_zephyr(folder: Path, image_cache: Path) -> None:
    base = os.environ.get("ZEPHYR_BASE")
    if not base:
        pytest.skip("ZEPHYR_BASE is not set: no Zephyr to build with (see docs/guides/zephyr.md)")
    (folder / "zephyr").symlink_to(base)
    run_steps("qemu_x86", folder, {"TRIALS": "2", "UTVM_CACHE": str(image_cache)})
    assert len((folder / "records.jsonl").read_text().splitlines()) > 1
