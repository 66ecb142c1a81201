"""The oracle in one child for many models: restarted when it dies, given a deadline for each."""

from __future__ import annotations

import select
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from utvm_deploy.base import process
from utvm_deploy.oracle import reference

# A model here takes milliseconds; the child's start, with LiteRT's import, is the longest.
DEADLINE_S = 60.0
# LiteRT leaks a little with each interpreter.
MODELS_PER_CHILD = 500
_CHILD = str(Path(__file__).with_name("oracle_child.py"))


class OracleRefuses(Exception):
    """The oracle says that the model is none."""


class OracleDies(Exception):
    """The oracle crashed on the model, or did not come to an end."""


class Oracle:
    """LiteRT's reference kernels in a child; a context manager."""

    def __init__(self) -> None:
        self._child: process.Child | None = None
        self._served = 0

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child; another one starts when it is needed."""
        if self._child is not None:
            self._child.close()
        self._child = None

    def run(self, model: Path, samples: Sequence[Sequence[np.ndarray]]) -> reference.ReferenceRun:
        """What the reference computes; OracleRefuses or OracleDies if it does not."""
        with tempfile.TemporaryDirectory(prefix="utvm-oracle-") as name:
            folder = Path(name)
            reference.save_samples(folder, samples)
            said = self._ask(f"{model}\t{name}\n")
            if said == b"refused\n":
                raise OracleRefuses(reference.read_refusal(folder))
            return reference.load_results(model, folder, len(samples))

    def _ask(self, question: str) -> bytes:
        if self._child is None or self._served >= MODELS_PER_CHILD:
            self.close()
            self._child = process.start([sys.executable, _CHILD], env=process.child_environment())
            self._served = 0
        self._served += 1
        pipes = self._child.popen
        assert pipes.stdin is not None and pipes.stdout is not None
        try:
            pipes.stdin.write(question.encode())
            pipes.stdin.flush()
        except BrokenPipeError:
            pass  # it died between two models; the answer, which is none, tells
        ready, _, _ = select.select([pipes.stdout], [], [], DEADLINE_S)
        said = pipes.stdout.readline() if ready else b""
        if said:
            return said
        how = f"no answer within {DEADLINE_S:g} s"
        if ready:
            code = pipes.wait(DEADLINE_S)
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        words = self._child.last_words().splitlines()
        self.close()
        raise OracleDies(f"{how} ({words[-1] if words else 'without a word'})")
