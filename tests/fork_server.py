"""A process that has a program's packages loaded, and forks for each run that a test asks for.

Loading takes 0.3 s, and the tests ask hundreds of times. Each run still has its own process and
its own limit of memory. A crash in it is reported as it is to users.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

from utvm_deploy.base import process
from utvm_deploy.frontend import formats
from utvm_deploy.oracle import reference
from utvm_deploy.quantizing import onnx_child
from utvm_deploy.service import upload_check

#: The time for the server itself, in addition to a run: a start on a loaded machine, and a fork.
PATIENCE_S = 60.0
POLL_S = 0.002
#: For runs that are started without a deadline of their own.
RUN_TIMEOUT_S = 240.0
_WORDS = "words.txt"


class EndedRun:
    """Stands in for the child of a run that has ended; a context manager."""

    def __init__(self, ended: process.Completed) -> None:
        self.returncode = ended.returncode
        self.popen = SimpleNamespace(
            stdout=os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb"), wait=lambda _s: None
        )
        self._words = ended.stdout

    def __enter__(self) -> EndedRun:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.popen.stdout.close()

    def last_words(self) -> str:
        """What it printed."""
        return self._words


class ForkServer:
    """Serves one module that is a program, too; starts with the first question; a context manager.

    ``module`` is run as ``python -m MODULE FILE FOLDER``.
    """

    def __init__(self, module: ModuleType) -> None:
        assert module in PROGRAMS
        self._module = module
        self._child: process.Child | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None

    def stand_in(self) -> SimpleNamespace:
        """What takes the place of ``process`` in the module."""
        return SimpleNamespace(
            run=self.run,
            child_environment=process.child_environment,
            Completed=process.Completed,
            is_dry_run=process.is_dry_run,
            start=self.start_run,
        )

    def start_run(self, argv: Sequence[str], *, env: Mapping[str, str]) -> EndedRun:
        """As ``process.start``, but the run has ended, and its progress is lost."""
        return EndedRun(self.run(argv, timeout_s=RUN_TIMEOUT_S, env=env))

    def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str]
    ) -> process.Completed:
        """As ``process.run``, for the module's command line only."""
        assert list(argv[:3]) == [sys.executable, "-m", self._module.__name__], argv
        model, folder = argv[3:]
        if process.is_dry_run():
            return process.run(argv, timeout_s=timeout_s, env=env)
        with self._lock:
            return self._ask(tuple(argv), model, folder, timeout_s)

    def start(self) -> process.Child:
        """Start the server; it ends with the thread that does this."""
        if self._child is None or not self._child.is_alive():
            command = [sys.executable, __file__, self._module.__name__]
            self._child = process.start(command, env=process.child_environment())
        return self._child

    def _ask(
        self, argv: tuple[str, ...], model: str, folder: str, timeout_s: float
    ) -> process.Completed:
        child = self.start()
        pipes = child.popen
        assert pipes.stdin is not None and pipes.stdout is not None
        words = Path(folder, _WORDS)
        words.touch()
        question = json.dumps([model, folder, timeout_s]) + "\n"
        pipes.stdin.write(question.encode())
        pipes.stdin.flush()
        ready, _, _ = select.select([pipes.stdout], [], [], timeout_s + PATIENCE_S)
        answer = pipes.stdout.readline() if ready else b""
        assert answer, f"the fork server is silent: {child.last_words()}"
        status, timed_out = json.loads(answer)
        output = words.read_text(errors="replace")
        return process.Completed(argv, status, output, "", timed_out)


def _oracle() -> Callable[[str, Path], int]:
    import ai_edge_litert.interpreter  # noqa: F401

    return reference.interpret_or_explain


def _formats() -> Callable[[str, Path], int]:
    for one in (".onnx", ".relax"):
        formats.CONVERTERS[one].load(Path(f"any{one}"))
    return lambda model, folder: formats.main(Path(model), folder)


def _onnx_quantizer() -> Callable[[str, Path], int]:
    import ai_edge_litert.interpreter  # noqa: F401
    import onnxruntime.quantization.shape_inference  # noqa: F401

    formats.CONVERTERS[".onnx"].load(Path("any.onnx"))
    return lambda step, folder: onnx_child.main(step, str(folder))


def _uploads() -> Callable[[str, Path], int]:
    return lambda model, folder: upload_check.main(Path(model), folder)


#: Module -> loads what its runs need, and gives the function that does the work of a run.
PROGRAMS = {
    reference: _oracle,
    formats: _formats,
    onnx_child: _onnx_quantizer,
    upload_check: _uploads,
}


def _serve(module: str) -> None:
    """In the server: fork for each line, and answer with the status."""
    (load,) = [load for one, load in PROGRAMS.items() if one.__name__ == module]
    work = load()
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in iter(sys.stdin.readline, ""):
        model, folder, timeout_s = json.loads(line)
        child = os.fork()
        if child == 0:
            words = os.open(Path(folder, _WORDS), os.O_WRONLY)
            os.dup2(words, 1)
            os.dup2(words, 2)
            os._exit(work(model, Path(folder)))
        os.write(answers, (json.dumps(_end_of(child, timeout_s)) + "\n").encode())


def _end_of(child: int, timeout_s: float) -> tuple[int, bool]:
    """Its exit status, and whether it was killed for taking too long."""
    deadline, timed_out = time.monotonic() + timeout_s, False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), timed_out
        if time.monotonic() > deadline and not timed_out:
            os.kill(child, signal.SIGKILL)
            timed_out = True
        time.sleep(POLL_S)


if __name__ == "__main__":
    _serve(sys.argv[1])
