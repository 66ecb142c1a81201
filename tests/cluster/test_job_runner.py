"""Jobs on a worker: what they may write, how long they may take, and how they end."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from utvm_deploy.service.cluster import job_output, job_runner
from utvm_deploy.service.cluster.job import JobSpec, Outcome
from utvm_deploy.service.cluster.lease import held

#: How long a step may take on a loaded machine.
PATIENCE_S = 60.0


#: What a verb wrote, what other programs wrote, and half a line.
EVENTS = (
    '{"event": "progress", "what": "w", "done": 1, "total": 2}\n'
    '[]\n{"event": 7}\nno JSON\n' + "[" * 100_000 + '\n{"event": "tuning"}\n{"ev'
)


class FakeWorker:
    """What a job uses of Dask's worker."""

    name = "desk-1"

    def __init__(self, task: str) -> None:
        self.status = SimpleNamespace(name="running")
        self.task = SimpleNamespace(state="executing")
        self.state = SimpleNamespace(tasks={task: self.task})
        self.news: list[dict[str, Any]] = []

    def log_event(self, topic: str, news: dict[str, Any]) -> None:
        assert topic == "utvm-jobs"
        self.news.append(news)

    def told(self, kind: str) -> str:
        return "".join(news.get(kind, "") for news in self.news)

    def events(self) -> list[dict[str, Any]]:
        return [event for news in self.news for event in news.get("events", ())]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeWorker]:
    """A worker whose jobs are Python texts instead of verbs, and whose folders are ours."""
    one = FakeWorker("job-0123456789ab-1")
    monkeypatch.setattr(job_runner, "get_worker", lambda: one)
    monkeypatch.setattr(job_runner, "COMMAND", (sys.executable, "-c"))
    monkeypatch.setattr(job_runner, "_LOOK_S", 0.01)
    monkeypatch.setattr(job_runner, "_TELL_S", 0.02)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("UTVM_BENCH", "")
    yield one
    # After any end, the job's folder is removed.
    assert not [path for path in tmp_path.iterdir() if "utvm-job" in path.name]


def spec_of(code: str, **more: Any) -> JobSpec:
    return JobSpec("0123456789ab", 1, "host", (code,), **{"files": {}, **more})


def outcome_of(code: str, **more: Any) -> Outcome:
    outcome = job_runner.run_job(spec_of(code, **more))
    assert outcome is not None
    return outcome


def test_a_job_gets_its_files_and_gives_its_outputs_back(worker: FakeWorker) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "Path('out').mkdir(); Path('out/a').write_bytes(Path('in.bin').read_bytes() * 2)\n"
        "Path('out/link').symlink_to('/etc/passwd'); Path('one').write_text('1')\n"
        "Path(os.environ['UTVM_RUNS']).write_text('run')\n"
        "print('{}'); print('said', file=sys.stderr); sys.exit(3)"
    )
    found = outcome_of(code, files={"in.bin": b"\x00\xff"}, outputs=("out", "one", "none"))
    assert (found.exit_code, found.result, found.log) == (3, b"{}\n", b"said\n")
    assert (found.runs, found.worker, found.reason) == (b"run", "desk-1", "")
    assert set(found.files) == {"out.zip", "one"}
    with zipfile.ZipFile(BytesIO(found.files["out.zip"])) as archive:
        # A link would give away what the worker's user may read.
        assert archive.namelist() == ["out/a"]
        assert archive.read("out/a") == b"\x00\xff\x00\xff"
    assert worker.news[0]["worker"] == "desk-1"
    assert all((news["job"], news["attempt"]) == ("0123456789ab", 1) for news in worker.news)
    assert worker.told("log") == "said\n"


def test_lines_and_events_arrive_while_the_job_runs(worker: FakeWorker) -> None:
    code = (
        "import os, time; from pathlib import Path\n"
        "records = open('records.jsonl', 'a'); events = open(os.environ['UTVM_EVENTS'], 'a')\n"
        "records.write('new 1\\nnew'); records.flush()\n"
        f"events.write({EVENTS!r})\n"
        "events.flush()\n"
        "while not Path('go').exists(): time.sleep(0.01)\n"
        "records.write(' 2\\n')"
    )
    spec = spec_of(
        code,
        files={"records.jsonl": b"old\n"},
        outputs=("records.jsonl",),
        followed="records.jsonl",
    )
    results: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: results.append(job_runner.run_job(spec)))
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    # What the server gave it does not come back, and no half lines come.
    while worker.told("lines") != "new 1\n" or len(worker.events()) < 2:
        assert time.monotonic() < deadline, worker.news
        time.sleep(0.01)
    (folder,) = {child.cwd() for child in psutil.Process().children() if "utvm-job" in child.cwd()}
    (Path(folder) / "go").touch()
    thread.join(PATIENCE_S)
    (found,) = results
    assert found is not None and found.files["records.jsonl"] == b"old\nnew 1\nnew 2\n"
    assert worker.told("lines") == "new 1\nnew 2\n"
    assert sorted(worker.events(), key=str) == [
        {"event": "progress", "what": "w", "done": 1, "total": 2},
        {"event": "tuning"},
    ]


def test_a_flood_of_log_is_bounded_and_blocks_nobody(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_output, "LOG_FILE_BYTES", 1 << 20)
    code = (
        "import os, sys, time\n"
        "for n in range(40_000): print(f'line {n:09}', 'x' * 200, file=sys.stderr)\n"
        "# What is written while the log is emptied may be lost. A small one is not emptied.\n"
        "while os.fstat(2).st_size > 1 << 20: time.sleep(0.01)\n"
        "print('the end', file=sys.stderr)"
    )
    found = outcome_of(code)
    assert found.exit_code == 0
    assert found.log.endswith(b"the end\n")
    assert len(found.log) <= job_output.LOG_BYTES
    told = worker.told("log")
    assert "bytes are left out here]\n" in told
    assert len(told) < 2 << 20
    assert max(len(news.get("log", "")) for news in worker.news) <= job_output.MESSAGE_BYTES


def test_what_is_lost_when_a_log_is_emptied_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_output, "LOG_FILE_BYTES", 10)
    log = job_output.Log(tmp_path / "log.txt")
    log.path.write_text("first\n")
    assert log.tail.read() == "first\n"
    log.path.write_text("first\nnever read\n")
    log.bound()
    log.path.write_text("last\n")
    assert log.tail.read() == "[11 bytes are left out here]\n"
    assert log.tail.read() == "last\n"


def test_a_job_is_ended_at_its_time_limit_and_keeps_what_it_made(worker: FakeWorker) -> None:
    code = "open('records.jsonl', 'w').write('one\\n'); import time; time.sleep(1000)"
    found = outcome_of(code, outputs=("records.jsonl",), time_limit_s=3.0)
    assert found.reason.startswith("it took longer than its time limit of 0.05 minutes")
    assert found.exit_code == 1
    assert found.files == {"records.jsonl": b"one\n"}


@pytest.mark.parametrize("makes", ["file", "folder"])
def test_an_output_that_is_too_large_is_named(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, makes: str
) -> None:
    monkeypatch.setattr(job_output, "FILE_BYTES", 1000)
    code = "open('small', 'w').write('s'); open('large', 'w').write('x' * 1001)"
    if makes == "folder":
        code = "open('small', 'w').write('s'); import os; os.mkdir('large')\n" + (
            "for n in range(11): open(f'large/{n}', 'w').write('x' * 100)"
        )
    found = outcome_of(code, outputs=("small", "large"))
    assert found.reason.startswith(f"large has 1,{'001' if makes == 'file' else '100'} bytes")
    assert found.files == {"small": b"s"}


def test_a_result_that_is_too_large_ends_the_job(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "RESULT_BYTES", 100_000)
    found = outcome_of("while True: print('x' * 1000)")
    assert found.reason == "it printed more than 100,000 bytes"
    assert found.result == b""


@pytest.mark.parametrize("why", ["canceled", "forgotten", "worker closes"])
@pytest.mark.slow
def test_a_job_that_nobody_wants_ends_with_its_processes(
    worker: FakeWorker, tmp_path: Path, why: str
) -> None:
    # The child's child ignores SIGTERM.
    code = (
        "import signal, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import signal, time; "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(1000)'],"
        f" stdout=open({str(tmp_path / 'started')!r}, 'w'))\n"
        "time.sleep(1000)"
    )
    # This process may have children of other tests.
    others = set(psutil.Process().children(recursive=True))
    results: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: results.append(job_runner.run_job(spec_of(code))))
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    started = tmp_path / "started"
    while not (started.exists() and started.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    below = set(psutil.Process().children(recursive=True)) - others
    assert len(below) >= 2
    if why == "canceled":
        worker.task.state = "cancelled"
    elif why == "forgotten":
        worker.state.tasks.clear()
    else:
        worker.status.name = "closing"
    thread.join(PATIENCE_S)
    assert results == [None]
    _, alive = psutil.wait_procs(below, PATIENCE_S)
    assert not alive


@pytest.mark.parametrize(
    ("number", "was_killed"),
    [(signal.SIGKILL, True), (signal.SIGTERM, True), (signal.SIGSEGV, False)],
)
def test_who_ended_a_job_decides_whether_another_attempt_may_help(
    worker: FakeWorker, number: signal.Signals, was_killed: bool
) -> None:
    found = outcome_of(f"import os; os.kill(os.getpid(), {int(number)})")
    assert found.exit_code == -number
    assert found.was_killed == was_killed


def test_a_full_disk_of_the_worker_is_told(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    found = outcome_of("pass", files={"model.tflite": b"x"})
    assert found.exit_code == 1
    assert found.reason == (
        "desk-1 could not keep the job's files: No space left on device; make room there"
    )


def test_boards_of_one_kind_are_held_one_by_one(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = tmp_path / "bench.toml"
    bench.write_text(
        "".join(f'[[boards.nucleo_f446re]]\nprobe_serial = "{serial}"\n' for serial in "AB")
    )
    monkeypatch.setenv("UTVM_BENCH", str(bench))
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(job_runner, "_LEASE_S", 0.1)
    monkeypatch.setattr(job_runner, "_LEASE_LOOK_S", 0.05)
    spec = JobSpec(
        *("0123456789ab", 1, "nucleo_f446re"),
        ("import os; print(os.environ.get('UTVM_SERIAL'))",),
        {},
        runs_on_board=True,
    )
    with held("nucleo_f446re", "A", 1.0, "somebody's shell"):
        found = job_runner.run_job(spec)
        assert found is not None and found.result == b"B\n"
        with held("nucleo_f446re", "B", 1.0, "somebody's shell"):
            found = job_runner.run_job(spec)
            assert found is not None and found.exit_code == 1
            assert "nucleo_f446re is in use by" in found.reason
            assert "somebody's shell" in found.reason
            # A job that only compiles needs no board.
            spec = JobSpec(*("0123456789ab", 1, "nucleo_f446re", ("print(1)",), {}))
            found = job_runner.run_job(spec)
            assert found is not None and found.result == b"1\n"
