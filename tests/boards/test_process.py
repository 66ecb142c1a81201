"""The gate to child processes: deadlines, clean ends, dry runs."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from utvm_deploy.base import process
from utvm_deploy.base.errors import MissingTool

PATIENCE_S = 60.0
#: Deadlines that pass in a test, in turn: on a loaded machine, a child may not start in the first.
DEADLINES_S = (0.3, 3.0, 30.0)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def wait_for_pid(path: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while not path.is_file() or not path.read_text().strip():
        assert time.monotonic() < deadline, "the child did not start"
        time.sleep(0.02)
    return int(path.read_text())


def test_run_brings_back_both_streams_and_status(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import os,sys; print(input(), os.environ['X']); print('e', file=sys.stderr); exit(3)"
    argv = [sys.executable, "-c", code]
    done = process.run(argv, timeout_s=PATIENCE_S, env={"X": "x"}, stdin=b"in\n", log_path=log)
    assert (done.stdout, done.stderr, done.returncode) == ("in x\n", "e\n", 3)
    assert not done.is_ok and not done.timed_out
    assert log.read_text().startswith("$ ") and "[exit status 3]" in log.read_text()


def run_past_a_deadline(argv: list[str], started: Path) -> process.Completed:
    """The run that the first deadline ended that was late enough for the file to be there."""
    for deadline_s in DEADLINES_S:
        done = process.run(argv, timeout_s=deadline_s)
        assert done.timed_out and not done.is_ok
        if started.is_file() and started.read_text().strip():
            return done
    raise AssertionError("the child did not start")


@pytest.mark.slow
def test_a_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    # The shell ignores SIGTERM; its child would hold the pipes open.
    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait; sleep 600"
    begin = time.monotonic()
    run_past_a_deadline(["sh", "-c", script], tmp_path / "pid")
    assert time.monotonic() - begin < 2 * PATIENCE_S
    wait_until_gone(wait_for_pid(tmp_path / "pid"))


@pytest.mark.slow
def test_a_daemon_that_holds_the_pipes_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "KILL_TIMEOUT_S", 0.2)
    daemon = f"echo $$ > {tmp_path}/pid; exec sleep {10 * PATIENCE_S:g}"
    script = f"echo said; setsid sh -c '{daemon}' & wait"
    done = run_past_a_deadline(["sh", "-c", script], tmp_path / "pid")
    pid = wait_for_pid(tmp_path / "pid")
    try:
        assert done.stdout == "said\n"
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_ctrl_c_ends_the_child(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 600"

    def interrupt() -> None:
        wait_for_pid(tmp_path / "pid")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        process.run(["sh", "-c", script], timeout_s=PATIENCE_S)
    thread.join()
    wait_until_gone(wait_for_pid(tmp_path / "pid"))


def test_ctrl_c_while_a_child_starts_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        """Is interrupted when the child runs, before anybody knows of it."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            wait_for_pid(tmp_path / "pid")
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"], timeout_s=PATIENCE_S)
    wait_until_gone(wait_for_pid(tmp_path / "pid"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
@pytest.mark.parametrize("has_setpriv", [True, False])
@pytest.mark.parametrize("begin", ["start(", "run(timeout_s=600, argv="])
def test_a_killed_parent_leaves_no_child(begin: str, has_setpriv: bool, tmp_path: Path) -> None:
    code = (
        "import time; from utvm_deploy.base import process;"
        f"child = process.{begin}['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 600']);"
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    if not has_setpriv:
        for name in ("sh", "sleep"):
            (tmp_path / name).symlink_to(str(shutil.which(name)))
        environment["PATH"] = str(tmp_path)
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        child = wait_for_pid(tmp_path / "pid")
        assert is_running(child)
    finally:
        parent.kill()
        parent.wait()
    wait_until_gone(child)


def test_an_exiting_parent_leaves_no_child(tmp_path: Path) -> None:
    code = (
        "from utvm_deploy.base import process; import pathlib, time\n"
        f"pid = pathlib.Path('{tmp_path}/pid')\n"
        f"child = process.start(['sh', '-c', f'echo $$ > {{pid}}; exec sleep 600'])\n"
        "while not (pid.is_file() and pid.read_text().strip()): time.sleep(0.02)\n"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=PATIENCE_S)
    wait_until_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
def test_start_gives_pipes_and_last_words() -> None:
    gc.collect()  # images of other tests hold their entries of the cache
    before = set(os.listdir("/proc/self/fd"))
    code = "import sys; sys.stderr.write('x' * 9999 + 'end'); sys.stderr.flush(); input()"
    with process.start([sys.executable, "-c", code]) as child:
        assert child.is_alive() and child.returncode is None
        assert child.popen.stdin is not None
        child.popen.stdin.write(b"\n")
        assert child.popen.wait(PATIENCE_S) == 0
        assert not child.is_alive()
        words = child.last_words()
        assert words.endswith("xend") and len(words) == process.LAST_WORDS_BYTES
    child.close()
    assert child.last_words() == words
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_dry_run_hands_over_commands_and_runs_none(tmp_path: Path) -> None:
    commands: list[object] = []
    touch = ["touch", str(tmp_path / "x")]
    with process.dry_run(commands.append):
        assert process.is_dry_run()
        assert process.run(touch, timeout_s=PATIENCE_S).is_ok
        with process.start(["no such program"]):
            pass
    assert not process.is_dry_run()
    assert commands == [touch, ["no such program"]]
    assert not (tmp_path / "x").exists()


def test_commands_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "utvm_deploy.base.process"):
        process.run(["true", "two words"], timeout_s=PATIENCE_S)
    assert "run true 'two words'" in caplog.text


def test_every_tool_has_a_purpose_and_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for tool, (purpose, install) in process.TOOLS.items():
        with pytest.raises(MissingTool) as caught:
            process.run([tool], timeout_s=PATIENCE_S)
        assert purpose in str(caught.value) and install in str(caught.value)
    with pytest.raises(MissingTool, match="put oddity on PATH"):
        process.start(["oddity"])


def test_programs_that_pip_installed_are_found_without_an_activated_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "scripts" / "vela"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.parent / "python"))
    for path in ("", "/nowhere"):
        monkeypatch.setenv("PATH", path)
        assert process.which("vela") == str(program)
    # What is on PATH comes first.
    other = tmp_path / "vela"
    shutil.copy(program, other)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process.which("vela") == str(other)
