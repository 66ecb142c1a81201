"""utvm submit, jobs, fetch and compare with a server whose jobs are a function."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from app_server import App

from utvm_deploy.cli import wait_for_jobs
from utvm_deploy.cli.main import main
from utvm_deploy.cli.server_verbs import submit_verb
from utvm_deploy.service.client.facts import job_of
from utvm_deploy.service.cluster.facts import KEY
from utvm_deploy.service.cluster.job import JobSpec, Outcome
from utvm_deploy.service.server.store.cached import Cached

ROOT = Path(__file__).parents[2]
DIGITS = str(ROOT / "models" / "digits.tflite")
Capture = pytest.CaptureFixture[str]


def profile(ticks: int) -> bytes:
    """What `utvm profile --json` prints, as far as compare reads it."""
    layers = [{"index": 0, "operator": "CONV_2D", "name": "a", "ticks": ticks}]
    facts = {"model": "digits", "board": "mps2_an500", "tick_unit": "cycles", "ticks": ticks}
    sizes = {"ram_bytes": 100, "flash_bytes": 200}
    return json.dumps({"schema": "utvm.profile/1", **facts, **sizes, "layers": layers}).encode()


@pytest.fixture
def shell(app: App, monkeypatch: pytest.MonkeyPatch) -> App:
    """The server is the one of this shell."""
    monkeypatch.setenv("UTVM_SERVER", app.url)
    return app


def result(capsys: Capture, *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def fails_on_host(spec: JobSpec) -> Outcome:
    if spec.board == "host":
        error = {"schema": "utvm.error/1", "kind": "VerifyError", "error": "1 byte differs"}
        log = "\n".join(f"line {number}" for number in range(100))
        return Outcome(1, json.dumps(error).encode(), log.encode())
    return Outcome(0, b'{"schema": "utvm.verify/1", "ok": true}', b"")


def hang(app: App) -> None:
    """From here on jobs run until the test ends."""

    def run(spec: JobSpec) -> Outcome:
        app.cluster.closing.wait(60)
        return Outcome(0, b"{}", b"")

    app.cluster.run = run


def test_a_job_on_two_boards_and_its_files(shell: App, capsys: Capture, tmp_path: Path) -> None:
    boards = "--board", "mps2_an500", "--board", "mps2_an386"
    command = "submit", DIGITS, *boards, "--job", "bundle", "--samples", "2", "-o", "out"
    code, found = result(capsys, *command)
    assert code == 0
    assert [job["board"] for job in found["jobs"]] == ["mps2_an500", "mps2_an386"]
    assert {job["state"] for job in found["jobs"]} == {"done"}
    assert found["jobs"][0]["result"] == {"schema": "utvm.fake/1"}
    for job in found["jobs"]:
        folder = tmp_path / "out" / f"digits-{job['board']}"
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            file["name"] for file in job["files"]
        )
        bundle = folder / "bundle.zip"
        assert bundle.read_bytes() == f"bundle.zip of {job['job']}".encode()
    assert shell.cluster.started[0].arguments[:3] == (
        *("bundle", "--board=mps2_an500", "--samples=2"),
    )


def test_the_exit_code_is_that_of_the_worst_job(shell: App, capsys: Capture) -> None:
    shell.cluster.run = fails_on_host
    verify = "submit", DIGITS, "--job", "verify"
    both = "--board", "mps2_an500", "--board", "host", "--wait"
    assert main([*verify, "--board", "mps2_an500", "--wait"]) == 0
    capsys.readouterr()
    assert main([*verify, *both]) == 1
    told = capsys.readouterr().out
    assert "digits.tflite on mps2_an500: done" in told
    assert "digits.tflite on host: failed: 1 byte differs" in told
    # The end of the log says what happened.
    assert "line 99" in told and "line 0\n" not in told
    shell.cluster.run = lambda spec: Outcome(-11, b"", b"")
    assert main([*verify, "--board", "host", "--wait"]) == 128 + 11
    assert main([*verify, "--board", "host"]) == 0  # it does not wait


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--board", "nowhere", "--job", "verify"), 2, "no board 'nowhere'"),
        (("--job", "verify"), 2, "give --board"),
        (("--board", "host", "--job", "dance"), 2, "no job runs 'dance'"),
        (("--board", "host", "--job", "verify", "--option", "x"), 2, "is not NAME=VALUE"),
        (("--board", "host", "--job", "verify", "--option", "x=1"), 2, "no option 'x'"),
        (("--board", "host", "--job", "verify", "--samples", "many"), 2, "not an integer"),
        (("--board", "host", "--job", "verify", "-o", "no/out"), 1, "make it first"),
    ],
)
def test_a_wrong_request(
    shell: App, capsys: Capture, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    assert main(["submit", DIGITS, *arguments]) == code
    assert sentence in capsys.readouterr().err
    assert shell.http.get("/api/v1/jobs").json() == []


def test_models_are_jobs_of_their_own_unless_the_verb_takes_several(
    shell: App, tmp_path: Path
) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes((ROOT / "models" / "cifar10_cnn.tflite").read_bytes())
    models = DIGITS, str(other)
    assert main(["submit", *models, "--board", "host", "--job", "verify", "--wait"]) == 0
    assert [spec.arguments[-1] for spec in shell.cluster.started] == [
        *("./digits.tflite", f"./{other.name}")
    ]
    shell.cluster.started.clear()
    assert (
        main(["submit", *models, "--board", "host", "--job", "tune", "--trials", "4", "--wait"])
        == 0
    )
    (spec,) = shell.cluster.started
    assert spec.arguments[-2:] == ("./digits.tflite", f"./{other.name}")


def test_numbers_are_written_as_for_the_other_verbs(shell: App, capsys: Capture) -> None:
    profile = "submit", DIGITS, "--board", "host", "--job", "profile", "--max-ram", "64K"
    assert main([*profile, "--hot", "3", "--wait"]) == 0
    assert {"--max-ram=65536", "--hot=3"} <= set(shell.cluster.started[0].arguments)
    assert main([*profile, "--hot", "1000000"]) == 2
    assert "hot: 1000000 is not from 1 to 1000" in capsys.readouterr().err


def test_interrupted_while_it_waits(
    shell: App, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(shell)

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    # Only this module's clock: the server's threads sleep, too.
    clock = type("Clock", (), {"sleep": interrupt, "monotonic": time.monotonic})
    monkeypatch.setattr(wait_for_jobs, "time", clock)
    assert main(["submit", DIGITS, "--board", "host", "--job", "verify", "--wait"]) == 130
    (job,) = shell.http.get("/api/v1/jobs").json()
    assert job["state"] in ("queued", "running")
    assert f"`utvm fetch {job['key']}` gets its files" in capsys.readouterr().err


def test_waiting_ends(shell: App, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(shell)
    now = iter(range(0, 10_000, 20))
    clock = type("Clock", (), {"sleep": lambda _: None, "monotonic": lambda: next(now)})
    monkeypatch.setattr(wait_for_jobs, "time", clock)
    wait = "--wait-minutes", "1"
    assert main(["submit", DIGITS, "--board", "host", "--job", "verify", *wait]) == 1
    assert "after 1 minutes; it continues" in capsys.readouterr().err


def test_a_board_that_nobody_offers_is_said_at_once(
    shell: App, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cached, "get", lambda self: self._make())
    facts = shell.cluster.identity["fake"][KEY]
    everything = facts["offers"]
    facts["offers"] = [offer for offer in everything if offer["board"] == "host"]
    submit = ["submit", DIGITS, "--board", "host", "--board", "nucleo_f746zg", "--job", "verify"]
    assert main(submit) == 1
    error = capsys.readouterr().err
    assert "offers nucleo_f746zg now (offered: host); no job was started" in error
    assert error.count("\n") == 1 and shell.cluster.started == []
    # It waits as long as it may, or until a worker comes.
    looks: list[float] = []
    now = iter(range(0, 10_000, 20))
    clock = type("Clock", (), {"sleep": looks.append, "monotonic": lambda: next(now)})
    monkeypatch.setattr(submit_verb, "time", clock)
    wait = ["--wait-for-board", "--wait-minutes", "1"]
    assert main([*submit, *wait]) == 1
    assert "offered nucleo_f746zg in time" in capsys.readouterr().err
    assert looks and shell.cluster.started == []
    clock.sleep = lambda _: facts.update(offers=everything)  # type: ignore[attr-defined]
    assert main([*submit, *wait]) == 0
    assert "waits for a worker that offers nucleo_f746zg" in capsys.readouterr().err


def test_a_job_that_waits_for_hours_is_one_line() -> None:
    lines: list[tuple[str, int, int]] = []
    shown = wait_for_jobs.Shown(lambda *line: lines.append(line))  # type: ignore[misc]
    facts = {"key": "0123456789ab", "verb": "tune", "board": "host", "models": [], "created": 0}
    waiting = job_of({**facts, "state": "queued", "reason": "no worker offers the board"})
    running = job_of({**facts, "state": "running", "progress": {"what": "trial", "done": 3}})
    for job in (waiting, waiting, running, running):
        shown.show([job])
    assert lines == [("queued, no worker offers the board", 0, 0), ("trial", 3, 0)]


def test_jobs_are_listed_shown_and_canceled(shell: App, capsys: Capture) -> None:
    assert main(["jobs"]) == 0
    assert "no jobs" in capsys.readouterr().out
    shell.cluster.run = lambda spec: Outcome(0, b"{}", b"one\x1b[31m\ntwo\n")
    for board in ("host", "mps2_an500"):
        submit = "submit", DIGITS, "--board", board, "--job", "verify", "--wait"
        assert result(capsys, *submit)[0] == 0
    _, found = result(capsys, "jobs", "--board", "host")
    (job,) = found["jobs"]
    assert (job["board"], job["state"], job["models"]) == ("host", "done", ["digits.tflite"])
    assert len(result(capsys, "jobs")[1]["jobs"]) == 2
    assert result(capsys, "jobs", "--state", "running")[1]["jobs"] == []
    assert main(["jobs", "--state", "running"]) == 0
    assert capsys.readouterr().out == "no such jobs\n"
    capsys.readouterr()
    assert main(["jobs", job["job"], "--log"]) == 0
    told = capsys.readouterr().out
    assert "log.txt (" in told and told.endswith("one�[31m\ntwo\n")
    hang(shell)
    _, found = result(capsys, "submit", DIGITS, "--board", "host", "--job", "verify")
    key = found["jobs"][0]["job"]
    assert result(capsys, "jobs", "--cancel", key)[1]["jobs"][0]["state"] == "canceled"
    assert main(["jobs", "--cancel", key, key]) == 2
    assert main(["jobs", "--log"]) == 2
    assert main(["jobs", "../models"]) == 2
    assert main(["jobs", "0123456789ab"]) == 1
    assert "0123456789ab" in capsys.readouterr().err


def test_fetch_writes_what_is_asked_for(shell: App, capsys: Capture, tmp_path: Path) -> None:
    submit = "submit", DIGITS, "--board", "host", "--job", "bundle", "--wait"
    key = result(capsys, *submit)[1]["jobs"][0]["job"]
    code, found = result(capsys, "fetch", key, "bundle.zip", "-o", "here")
    assert code == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["bundle.zip"]
    assert (tmp_path / "here" / "bundle.zip").stat().st_size == found["files"][0]["bytes"]
    assert main(["fetch", key, "other.zip"]) == 2
    assert "it has bundle.zip, " in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert main(["fetch", key, "-o", "file"]) == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_two_jobs_are_compared(shell: App, capsys: Capture, tmp_path: Path) -> None:
    keys = []
    for ticks in (1000, 1100):
        shell.cluster.run = lambda spec, ticks=ticks: Outcome(0, profile(ticks), b"")  # type: ignore[misc]
        submit = "submit", DIGITS, "--board", "mps2_an500", "--job", "profile", "--wait"
        keys.append(result(capsys, *submit)[1]["jobs"][0]["job"])
    before, now = keys
    assert main(["compare", f"job:{before}", now, "--fail-over", "15%"]) == 0
    assert main(["compare", f"job:{before}", now, "--fail-over", "5%"]) == 1
    assert "1,000 to 1,100 cycles (+10.0 %)" in capsys.readouterr().out
    (tmp_path / "now.json").write_bytes(profile(1000))
    assert main(["compare", before, "now.json", "--fail-over", "0"]) == 0
    shell.cluster.run = lambda spec: Outcome(0, b"{}", b"")
    verify = "submit", DIGITS, "--board", "mps2_an500", "--job", "verify", "--wait"
    other = result(capsys, *verify)[1]["jobs"][0]["job"]
    assert main(["compare", before, f"job:{other}"]) == 1
    assert "is of verify" in capsys.readouterr().err


def test_digits_of_no_job_are_those_of_a_run(capsys: Capture) -> None:
    # Without a server nothing is asked for.
    assert main(["compare", "0123456789ab", "0123456789ab"]) == 1
    assert "has no run 0123456789ab" in capsys.readouterr().err
    assert main(["compare", "job:0123456789ab", "0123456789ab"]) == 1
    assert "no server is named" in capsys.readouterr().err


def test_without_the_package_that_speaks_to_servers(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "utvm_deploy.service.client.api", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    assert main(["jobs", "--server", "http://127.0.0.1:1"]) == 1
    assert "pip install 'utvm-deploy[client]'" in capsys.readouterr().err
