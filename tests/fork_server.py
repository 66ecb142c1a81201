"""Processes that have packages loaded, and fork for each run that a test asks for.

Loading takes 0.3 s for LiteRT and 6 s for PyTorch, and the tests ask hundreds of times. Each run
still has its own process and its own limit of memory. A crash in it is reported as it is to users.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TypeAlias

from utvm_deploy.base import process
from utvm_deploy.frontend import conversion
from utvm_deploy.frontend.relax.facts import is_relax
from utvm_deploy.frontend.relax.road import load_tvm
from utvm_deploy.frontend.torch import export as torch_export
from utvm_deploy.oracle import origin, reference
from utvm_deploy.quality.quantizing.onnx import child as onnx_child
from utvm_deploy.quality.quantizing.tflite import child as tflite_child
from utvm_deploy.quality.quantizing.torch import child as torch_child
from utvm_deploy.service.server.jobs import upload_check

#: The time for the server itself, in addition to a run: a start on a loaded machine, and a fork.
PATIENCE_S = 120.0
POLL_S = 0.002
#: For runs that are started without a deadline of their own.
RUN_TIMEOUT_S = 240.0
_OUT, _ERR = "forked_stdout.txt", "forked_stderr.txt"
# Linux: PR_SET_PDEATHSIG of prctl(2).
_PR_SET_PDEATHSIG = 1

#: What a program does with its two arguments; the exit status.
Work: TypeAlias = Callable[[str, str], int]


@dataclass(frozen=True)
class Program:
    """What one server loads, and the modules that it runs as ``python -m MODULE ONE FOLDER``."""

    load: Callable[[], None]
    works: Mapping[ModuleType, Work]

    def work(self, module: str) -> Work | None:
        """What the module of this name does; None if it is another program's."""
        return next((do for one, do in self.works.items() if one.__name__ == module), None)


class EndedRun:
    """Stands in for the child of a run that has ended; a context manager."""

    def __init__(self, ended: process.Completed) -> None:
        self.returncode = ended.returncode
        # What it told of its progress can be read as from a pipe.
        output = tempfile.TemporaryFile()  # noqa: SIM115
        output.write(ended.stdout.encode())
        output.seek(0)
        self.popen = SimpleNamespace(stdout=output, wait=lambda _s: None)
        self._words = ended.stderr

    def __enter__(self) -> EndedRun:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.popen.stdout.close()

    def last_words(self) -> str:
        """What it wrote to standard error."""
        return self._words.strip()


class ForkServer:
    """Serves one of PROGRAMS; starts with the first question; a context manager."""

    def __init__(self, program: str) -> None:
        self._name = program
        self._program = PROGRAMS[program]
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
        return _stand_in(self.run)

    def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str]
    ) -> process.Completed:
        """As ``process.run``, for the command lines of the program only."""
        _, _, module, first, folder = argv
        assert list(argv[:2]) == [sys.executable, "-m"] and self._program.work(module), argv
        if process.is_dry_run():
            return process.run(argv, timeout_s=timeout_s, env=env)
        with self._lock:
            try:
                return self._ask(tuple(argv), [module, first, folder], timeout_s, env)
            except BaseException:
                # Its answer would be taken for that of the next question.
                self.__exit__()
                raise

    def start(self) -> process.Child:
        """Start the server; it ends with the thread that does this."""
        if self._child is None or not self._child.is_alive():
            self.__exit__()
            command = [sys.executable, __file__, self._name]
            self._child = process.start(command, env=process.child_environment())
        return self._child

    def _ask(
        self,
        argv: tuple[str, ...],
        words: list[str],
        timeout_s: float,
        env: Mapping[str, str],
    ) -> process.Completed:
        child = self.start()
        pipes = child.popen
        assert pipes.stdin is not None and pipes.stdout is not None
        outputs = [Path(words[-1], name) for name in (_OUT, _ERR)]
        for one in outputs:
            one.touch()  # the run may be killed before it opens them
        question = [words, timeout_s, os.getcwd(), {**os.environ, **env}]
        pipes.stdin.write((json.dumps(question) + "\n").encode())
        pipes.stdin.flush()
        ready, _, _ = select.select([pipes.stdout], [], [], timeout_s + PATIENCE_S)
        answer = pipes.stdout.readline() if ready else b""
        assert answer, f"the fork server is silent: {child.last_words()}"
        status, timed_out = json.loads(answer)
        out, err = (one.read_text("utf-8", "replace") for one in outputs)
        return process.Completed(argv, status, out, err, timed_out)


class ForkServers:
    """A server for each of PROGRAMS that is asked for; a context manager."""

    def __init__(self) -> None:
        self._servers = {name: ForkServer(name) for name in PROGRAMS}

    def __enter__(self) -> ForkServers:
        return self

    def __exit__(self, *_exc: object) -> None:
        for server in self._servers.values():
            server.__exit__()

    def stand_in(self) -> SimpleNamespace:
        """What takes the place of ``process`` in any module that starts one of the programs."""
        return _stand_in(self.run)

    def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str]
    ) -> process.Completed:
        """As ``process.run``, for the command lines of the programs only."""
        name = program_of(argv[2], argv[3])
        return self._servers[name].run(argv, timeout_s=timeout_s, env=env)


def program_of(module: str, first: str) -> str:
    """Which of PROGRAMS runs a module with this first argument."""
    names = [name for name, one in PROGRAMS.items() if one.work(module)]
    assert names, f"no fork server runs {module}"
    if module == reference.__name__:
        with Path(first).open("rb") as file:
            return "relax_oracle" if is_relax(file.read(64)) else "oracle"
    if len(names) > 1:  # the module reads files of several formats
        return "torch" if first.lower().endswith(".pt2") else "onnx"
    return names[0]


def _stand_in(run: Callable[..., process.Completed]) -> SimpleNamespace:
    def start(argv: Sequence[str], *, env: Mapping[str, str]) -> EndedRun:
        """As ``process.start``, but the run has ended."""
        return EndedRun(run(argv, timeout_s=RUN_TIMEOUT_S, env=env))

    return SimpleNamespace(
        run=run,
        start=start,
        child_environment=process.child_environment,
        Completed=process.Completed,
        is_dry_run=process.is_dry_run,
    )


def _load_oracle() -> None:
    import ai_edge_litert.interpreter  # noqa: F401


def _load_relax_oracle() -> None:
    load_tvm()
    import utvm_deploy.oracle.relax_reference  # noqa: F401


def _load_onnx() -> None:
    import ai_edge_litert.interpreter  # noqa: F401
    import onnxruntime.quantization.shape_inference  # noqa: F401

    for one in (".onnx", ".relax"):
        conversion.CONVERTERS[one].load(Path(f"any{one}"))
    # What lowers a model and imports it loads the rest.
    import tvm.relax.frontend.onnx  # noqa: F401


def _load_tflite() -> None:
    import ai_edge_litert.interpreter  # noqa: F401
    import ai_edge_quantizer.quantizer  # noqa: F401


def _load_torch() -> None:
    import ai_edge_litert.interpreter  # noqa: F401

    torch = torch_export.load_torch()
    # The first export loads what every export takes.
    torch.export.export(torch.nn.ReLU(), (torch.zeros(1),))


def _convert(model: str, folder: str) -> int:
    return conversion.main(Path(model), Path(folder))


def _interpret(model: str, folder: str) -> int:
    return reference.interpret_or_explain(model, Path(folder))


#: Name -> what one server serves.
PROGRAMS: Mapping[str, Program] = {
    "oracle": Program(_load_oracle, {reference: _interpret}),
    "relax_oracle": Program(_load_relax_oracle, {reference: _interpret}),
    "onnx": Program(
        _load_onnx, {conversion: _convert, origin: origin.main, onnx_child: onnx_child.main}
    ),
    "tflite": Program(_load_tflite, {tflite_child: tflite_child.main}),
    "torch": Program(
        _load_torch, {conversion: _convert, origin: origin.main, torch_child: torch_child.main}
    ),
    "uploads": Program(
        lambda: None,
        {upload_check: lambda model, folder: upload_check.main(Path(model), Path(folder))},
    ),
}


def _serve(program: Program) -> None:
    """In the server: fork for each line, and answer with the status."""
    program.load()
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in iter(sys.stdin.readline, ""):
        words, timeout_s, folder, environment = json.loads(line)
        child = os.fork()
        if child == 0:
            if prctl is not None:
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            tempfile.tempdir = None  # that of the environment
            os._exit(_forked(program, words))
        os.write(answers, (json.dumps(_end_of(child, timeout_s)) + "\n").encode())


def _forked(program: Program, words: list[str]) -> int:
    """In the fork: the status that the program ends with."""
    module, first, folder = words
    for descriptor, name in ((1, _OUT), (2, _ERR)):
        file = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    work = program.work(module)
    assert work is not None
    try:
        status = work(first, folder)
    except BaseException:  # as Python does at the end of a program
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


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
    _serve(PROGRAMS[sys.argv[1]])
