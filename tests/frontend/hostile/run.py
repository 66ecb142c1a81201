"""The parent: gives each hostile file a deadline, and outlives children that do not."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base import process

#: The import of a file, on a machine that does other things too; alone it takes milliseconds.
IMPORT_DEADLINE_S = 10.0
#: Compiling what was imported.
COMPILE_DEADLINE_S = 120.0
#: Until the first file: TVM is loaded.
START_DEADLINE_S = 120.0
_DEADLINES_S = {
    "begin": IMPORT_DEADLINE_S,
    "imported": COMPILE_DEADLINE_S,
    "end": START_DEADLINE_S,  # the next file is made
}
_CHILD = str(Path(__file__).with_name("attempt.py"))


@dataclass(frozen=True)
class Attempt:
    """What came of one file."""

    number: int
    verdict: str  # compiled, refused; unclear, traceback, hung or crashed are bugs
    detail: str

    @property
    def is_fault(self) -> bool:
        """Whether it is a bug."""
        return self.verdict not in ("compiled", "refused")


def attempts(first: int, count: int) -> Iterator[Attempt]:
    """Try files ``first`` and following."""
    number, last = first, first + count
    while number < last:
        with process.start([sys.executable, _CHILD, str(number), str(last)]) as child:
            for attempt in _listen(child, number):
                yield attempt
                number = attempt.number + 1


def _listen(child: process.Child, number: int) -> Iterator[Attempt]:
    pipe = child.popen.stdout
    assert pipe is not None
    deadline_s = START_DEADLINE_S
    said = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], deadline_s)
        if not ready:
            yield Attempt(number, "hung", f"more than {deadline_s:g} s")
            return
        # Not readline: what waits in a buffer, select does not see.
        more = os.read(pipe.fileno(), 65_536)
        if not more:
            if child.popen.wait(START_DEADLINE_S) != 0:
                yield Attempt(number, "crashed", child.last_words())
            return
        *lines, said = (said + more).split(b"\n")
        for line in lines:
            what, at, *rest = line.decode("utf-8", "replace").split(" ", 3)
            number = int(at)
            if what == "end":
                yield Attempt(number, rest[0], rest[1])
                number += 1
            deadline_s = _DEADLINES_S[what]
