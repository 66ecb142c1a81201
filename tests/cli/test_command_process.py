"""The ``utvm`` command as a process: signals, closed and full streams, and who is left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from utvm_deploy.base.paths import data_dir

ROOT = Path(__file__).parents[2]
DIGITS = str(data_dir("models") / "digits.tflite")
#: How long anything here may take on a loaded machine.
PATIENCE_S = 240.0
POLL_S = 0.02
#: Each process started by a test inherits this variable, whatever its group or session.
MARK = "UTVM_TEST_MARK"

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks into Linux's /proc"
)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), MARK: uuid.uuid4().hex, **more}


def marked(mark: str) -> dict[int, str]:
    """The running processes that carry the mark, and their command lines."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    # Without a Path for each: this is called fifty times a second.
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                is_marked = wanted in file.read()
            if is_marked:
                folder = Path("/proc", name)
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = line.decode(errors="replace")
    return found


def wait_until(what: str, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
        time.sleep(POLL_S)


@contextlib.contextmanager
def running(env: dict[str, str], *argv: str) -> Iterator[subprocess.Popen[str]]:
    """``python ARGV`` in a group of its own, as a shell starts it."""
    with subprocess.Popen(
        [sys.executable, *argv],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as command:
        try:
            yield command
        finally:
            for pid in marked(env[MARK]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def long_verify(board: str) -> tuple[str, ...]:
    """Half of a minute on the board; the reference, which runs first, takes a second."""
    return ("-m", "utvm_deploy", "verify", DIGITS, "--board", board, "--samples", "500")


def wait_for_program(env: dict[str, str], program: str) -> None:
    wait_until(
        f"{program} runs", lambda: any(program in line for line in marked(env[MARK]).values())
    )


@pytest.mark.emulator
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_its_emulator(number: signal.Signals) -> None:
    env = environment()
    with running(env, *long_verify("mps2_an500")) as command:
        wait_for_program(env, "qemu-system-arm")
        os.killpg(command.pid, number)
        _, said = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 128 + number
        assert "Traceback" not in said
        wait_until("every child is gone", lambda: not marked(env[MARK]))


@pytest.mark.emulator
def test_a_killed_command_leaves_no_emulator() -> None:
    env = environment()
    with running(env, *long_verify("mps2_an500")) as command:
        wait_for_program(env, "qemu-system-arm")
        command.kill()
        command.wait(PATIENCE_S)
        wait_until("every child is gone", lambda: not marked(env[MARK]))


@pytest.mark.tools
def test_ctrl_c_while_building_leaves_a_cache_that_works(tmp_path: Path) -> None:
    env = environment(UTVM_CACHE=str(tmp_path / "cache"))
    verify = ("-m", "utvm_deploy", "verify", DIGITS, "--board", "host", "--samples", "1")
    for program in ("cmake", "cc1"):  # the second begins with what the first left
        with running(env, *verify) as command:
            wait_for_program(env, program)
            os.killpg(command.pid, signal.SIGINT)
            _, said = command.communicate(timeout=PATIENCE_S)
            assert command.returncode == 130, said
            assert "Traceback" not in said
            wait_until("every child is gone", lambda: not marked(env[MARK]))
    with running(env, *verify) as command:
        out, said = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 0, said
        assert "all equal" in out


def test_ctrl_c_while_modules_load_is_no_traceback() -> None:
    # Stands for Ctrl-C at any line of any module that the command loads.
    code = (
        "import os, signal, sys, types\n"
        "class Loading:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'utvm_deploy.cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Loading())\n"
        "from utvm_deploy.__main__ import main\n"
        "sys.exit(main())"
    )
    with running(environment(), "-c", code) as command:
        _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (130, "interrupted\n")


def test_next_to_nothing_is_loaded_before_ctrl_c_has_its_handler() -> None:
    # What loads before that takes time in which Ctrl-C would be a traceback.
    code = (
        "import sys\n"
        "import __future__, collections.abc, contextlib, gc, io, signal, types\n"
        "before = set(sys.modules)\n"
        "import utvm_deploy.__main__\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    with running(environment(), "-c", code) as command:
        out, _ = command.communicate(timeout=PATIENCE_S)
    assert out.split() == [
        "utvm_deploy",
        "utvm_deploy.__main__",
        "utvm_deploy.cli",
        "utvm_deploy.cli.entry",
    ]


@pytest.mark.parametrize("delay_s", [0.1, 0.15, 0.2, 0.3, 0.5])
def test_ctrl_c_early_in_a_verb_is_no_traceback(delay_s: float) -> None:
    # Before it has its handler, Ctrl-C is Python's: on a loaded machine, that may last long.
    code = (
        "import runpy\n"
        "from utvm_deploy.cli import entry\n"
        "handle = entry.quiet_until_loaded\n"
        "def handle_and_tell():\n"
        "    handle()\n"
        "    print(flush=True)\n"
        "entry.quiet_until_loaded = handle_and_tell\n"
        "runpy.run_module('utvm_deploy', run_name='__main__')"
    )
    with running(environment(), "-c", code, "inspect", DIGITS) as command:
        assert command.stdout is not None
        command.stdout.readline()
        time.sleep(delay_s)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    # On a fast machine it may be through already.
    assert (command.returncode, said) in ((130, "interrupted\n"), (130, ""), (0, ""))


@pytest.mark.tools
@pytest.mark.parametrize(
    ("verb", "is_unbuffered"),
    [
        (["boards"], False),
        (["boards", "--json"], True),
        (["boards", "--help"], False),
        (["nonsense", "--json"], True),
    ],
)
@pytest.mark.parametrize(
    ("stdout", "words"), [("/dev/full", "No space left on device"), (None, "Bad file descriptor")]
)
def test_a_stdout_that_takes_nothing_is_one_sentence(
    verb: list[str], is_unbuffered: bool, stdout: str | None, words: str
) -> None:
    with open(stdout or os.devnull, "w") as given:
        done = subprocess.run(
            [sys.executable, "-m", "utvm_deploy", *verb],
            env=environment(PYTHONUNBUFFERED="1" if is_unbuffered else ""),
            stdout=given,
            preexec_fn=None if stdout else lambda: os.close(1),
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == (2 if "nonsense" in verb else 1)
    *prose, said = done.stderr.splitlines()
    assert said.startswith(f"error: the result cannot be written to stdout: {words}; ")
    assert "Traceback" not in "".join(prose)


@pytest.mark.tools
@pytest.mark.parametrize("verb", [["boards"], ["docs", "--help"]])
def test_a_stderr_that_takes_nothing_does_not_end_the_work(verb: list[str]) -> None:
    done = [
        subprocess.run(
            [sys.executable, "-m", "utvm_deploy", *verb],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=os.open(place, os.O_WRONLY),
            timeout=PATIENCE_S,
        )
        for place in ("/dev/full", os.devnull)
    ]
    assert [one.returncode for one in done] == [0, 0]
    assert done[0].stdout == done[1].stdout != b""


@pytest.mark.tools
def test_a_reader_that_went_away_is_no_error_to_tell() -> None:
    with running(environment(), "-m", "utvm_deploy", "boards") as command:
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        assert command.stderr.read() == ""
        assert command.wait(PATIENCE_S) == 1


@pytest.mark.parametrize("error", ["MemoryError", "AttributeError"])
def test_the_end_of_memory_is_one_sentence(error: str) -> None:
    code = (
        "import resource, sys\n"
        "from utvm_deploy.cli.entry import as_process\n"
        "def work():\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n"
        f"    raise {error}('no function')\n"
        "sys.exit(as_process(work))"
    )
    with running(environment(), "-c", code) as command:
        _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 1
    assert said.startswith(f"error: the system refused more memory ({error}); ")
    assert said.count("\n") == 1


def small_files_only() -> None:
    """In the child: a file that grows beyond 4 KiB meets what a full disk would be."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.tools
@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (["compile", DIGITS, "--board", "host", "-o", "x.tar"], "cannot write x.tar: "),
        (["project", "create", DIGITS, "tree", "--board", "host"], "cannot write tree/"),
        (["bundle", DIGITS, "--board", "host", "-o", "x.zip"], ""),
        (["run", DIGITS, "--board", "host"], "cannot write cache/images/new.utvm-tmp-"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_full_disk_behind_a_file_is_one_sentence(
    verb: list[str], words: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "utvm_deploy", *verb],
        env=environment(UTVM_CACHE="cache"),
        cwd=tmp_path,
        preexec_fn=small_files_only,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"error: {words}"), said
    assert os.strerror(errno.EFBIG) in said
    left = {path.name for path in tmp_path.iterdir()} - {"tree"}
    assert left <= {"cache"}
    assert not any(tmp_path.glob("cache/images/*"))


@pytest.mark.tools
@pytest.mark.parametrize("verb", [["boards"], ["boards", "--json"], ["inspect", "--supported"]])
def test_a_reader_that_goes_away_is_not_an_error_to_talk_about(verb: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "utvm_deploy", *verb],
            env=environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert "error" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.tools
def test_a_locale_without_the_characters_is_no_error() -> None:
    # inspect writes multiplication signs.
    env = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    with running(env, "-m", "utvm_deploy", "inspect", DIGITS) as command:
        out, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (0, "")
    assert "3\\xd73" in out


@pytest.mark.slow
def test_a_verb_loads_no_other_verb() -> None:
    code = (
        "import sys\n"
        "from utvm_deploy.cli.main import main\n"
        "main(['boards'])\n"
        "print(*(name for name in sys.modules if name.endswith('_verb')))"
    )
    with running(environment(), "-c", code) as command:
        out, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, said
    assert out.splitlines()[-1] == "utvm_deploy.cli.board_verbs.boards_verb"
