"""What the command line shows: results on stdout, prose and progress on stderr.

With ``--json`` the result is one JSON object on stdout and everything else goes to stderr, so that
scripts can pipe stdout without filtering.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from utvm_deploy.base import process
from utvm_deploy.base.files import write_text
from utvm_deploy.base.progress import Progress
from utvm_deploy.base.readable import readable
from utvm_deploy.base.results import plain_value

#: Names the file of events.
EVENTS_VARIABLE = "UTVM_EVENTS"
#: Without a terminal, each new step is a line, and a long step is one more this often.
PLAIN_PROGRESS_INTERVAL_S = 5.0
#: A table that changes is shown again this often, so that a user sees that the verb still works.
REPEAT_S = 1.0
#: Of prose when stdout is a file or a pipe.
PLAIN_WIDTH = 160
#: No table needs more; rows of tables in a file or a pipe are as long.
WIDEST = 1000


class LiveTable(Protocol):
    """Shows other rows, and a line below them."""

    def __call__(self, rows: Sequence[Sequence[object]], caption: str) -> None: ...


class Output:
    """Where a verb puts what it has to say."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._stdout = _console(sys.stdout)
        self._stderr = _console(sys.stderr)
        self._prose = self._stderr if as_json else self._stdout
        self._last_plain: tuple[str, float] = ("", 0.0)
        #: The schema and data of the last result, whether it was printed or not.
        self.last_result: tuple[str, Mapping[str, Any]] | None = None

    def result(self, schema: str, data: Mapping[str, Any]) -> None:
        """The verb's result as JSON; says nothing unless ``--json`` was given."""
        self.last_result = schema, data
        if self.as_json:
            json.dump({"schema": schema, **data}, sys.stdout, indent=2, default=plain_value)
            sys.stdout.write("\n")

    def found(self, data: Mapping[str, Any]) -> None:
        """The same of an object that says its schema, as ``to_dict`` of results gives it."""
        rest = dict(data)
        self.result(rest.pop("schema"), rest)

    def line(self, text: str = "") -> None:
        """A line for a person to read."""
        self._prose.print(readable(text), markup=False, highlight=False, soft_wrap=True)

    def part(self, text: str) -> None:
        """A part of a line, shown at once; ``line`` ends it."""
        self._prose.print(readable(text), end="", markup=False, highlight=False, soft_wrap=True)

    def file(self, path: Path | None, text: Callable[[], str]) -> None:
        """Write a file that was asked for, and say so; not in a dry run."""
        if path is not None and not process.is_dry_run():
            write_text(path, text())
            self.line(f"wrote {path}")

    def page(self, markdown: str) -> None:
        """A page in Markdown: laid out on a terminal, and as it is in a pipe or a file."""
        if self._prose.is_terminal:
            self._prose.print(Markdown(readable(markdown), hyperlinks=False))
        else:
            self.line(markdown.rstrip("\n"))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str | None = None,
        is_wide: bool = False,
    ) -> None:
        """Columns whose name begins with ``>`` hold numbers and are aligned to the right.

        A wide table may be wider than the terminal. In a pipe or a file each row is one line, so
        that ``grep`` finds whole rows.
        """
        shown = None if title is None else readable(title)
        table = Table(title=shown, title_justify="left", box=None, pad_edge=False)
        _fill(table, columns, rows)
        # A table is padded to its console's width only as far as its columns need.
        is_wide = is_wide or not self._prose.is_terminal
        console = Console(file=self._prose.file, width=WIDEST) if is_wide else self._prose
        console.print(table)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Gives a ``progress.Progress`` that shows one line on stderr while the block runs."""
        if self._stderr.is_terminal:
            with self._stderr.status("") as status:
                yield lambda what, done, total: status.update(escape(_step(what, done, total)))
        else:
            yield self._plain_progress

    @contextmanager
    def live_table(self, columns: Sequence[str]) -> Iterator[LiveTable]:
        """Gives a ``LiveTable``: on a terminal a table on stderr that changes, else its caption.

        What was shown last is shown again each second, with the seconds since then.
        """
        if not self._stderr.is_terminal:
            with _repeated(self._plain_table) as show:
                yield show
            return
        with Live(console=self._stderr, auto_refresh=False, transient=True) as live:

            def once(rows: Sequence[Sequence[object]], caption: str, waited: str) -> None:
                text = readable(caption + waited)
                table = Table(box=None, pad_edge=False, caption=text, caption_justify="left")
                _fill(table, columns, rows)
                live.update(table, refresh=True)

            with _repeated(once) as show:
                yield show

    def _plain_table(self, rows: Sequence[Sequence[object]], caption: str, waited: str) -> None:
        """The caption of a table; programs that follow hear it once."""
        if waited:
            self._stderr.print(readable(caption + waited), markup=False, highlight=False)
        else:
            self._plain_progress(caption, 0, 1)

    def error(self, kind: str, text: str) -> None:
        """The one sentence of a failure."""
        with suppress(OSError):  # stdout remembers it (cli/entry.py)
            self.result("utvm.error/1", {"kind": kind, "error": text})
        told = escape(readable(text))
        self._stderr.print(f"[bold red]error:[/] {told}", highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line on stderr, for every form of the result."""
        self._stderr.print(readable(text), markup=False, highlight=False, soft_wrap=True)

    def event(self, kind: str, **facts: Any) -> None:
        """Append a line of JSON to the file that a program which follows this one reads.

        If there is none, or it cannot be written, the verb continues.
        """
        if path := os.environ.get(EVENTS_VARIABLE):
            with suppress(OSError), open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"event": kind, **facts}) + "\n")

    def _plain_progress(self, what: str, done: int, total: int) -> None:
        self.event("progress", what=what, done=done, total=total)
        what_before, then = self._last_plain
        now = time.monotonic()
        if what != what_before or now - then >= PLAIN_PROGRESS_INTERVAL_S:
            self._last_plain = (what, now)
            self._stderr.print(_step(what, done, total), markup=False, highlight=False)


@contextmanager
def _repeated(
    show: Callable[[Sequence[Sequence[object]], str, str], None],
) -> Iterator[LiveTable]:
    """Call ``show`` with what is given, and again each second with how long ago that was."""
    lock, ended = threading.Lock(), threading.Event()
    last: list[tuple[Sequence[Sequence[object]], str, float]] = []

    def given(rows: Sequence[Sequence[object]], caption: str) -> None:
        with lock:
            last[:] = [(rows, caption, time.monotonic())]
            show(rows, caption, "")

    def repeat() -> None:
        while not ended.wait(REPEAT_S):
            with lock:
                for rows, caption, then in last:
                    waited = round(time.monotonic() - then)
                    if waited and not ended.is_set():
                        show(rows, caption, f" (for {waited} s)")

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield given
    finally:
        ended.set()
        thread.join()


def _fill(table: Table, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=right
        )
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row))


def _console(stream: Any) -> Console:
    console = Console(file=stream, stderr=stream is sys.stderr)
    return console if console.is_terminal else Console(file=stream, width=PLAIN_WIDTH)


def _step(what: str, done: int, total: int) -> str:
    told = readable(what)
    return f"{told} {done}/{total}" if total > 1 else told


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "" if value is None else readable(str(value), kept="")


def when(seconds: float) -> str:
    """A time in the past, or nothing where a clock was wrong."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""
