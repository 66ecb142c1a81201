"""utvm submit: let a server do a verb, on its boards."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.base.errors import ServerError, UsageError, UtvmError
from utvm_deploy.base.files import check_regular
from utvm_deploy.cli.options.kinds import number_or_word
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.server_arguments import facts, fetched, folder_for, label, open_server
from utvm_deploy.cli.server_verbs.job_options import PREFIX
from utvm_deploy.service.server.jobs.options import NO_PLUGIN, names_a_file
from utvm_deploy.service.server.jobs.verbs import VERBS

if TYPE_CHECKING:
    from utvm_deploy.service.client.api import Server
    from utvm_deploy.service.client.facts import RemoteJob

_WAIT_MINUTES = 24 * 60
#: How often the server is asked whether a board is there.
_LOOK_S = 2.0


def run(args: argparse.Namespace, out: Output) -> int:
    """The exit code of the worst job with --wait, else 0 if the server took them."""
    verb, boards, options = _request(args)
    data = _data_of(verb, options)
    for path in (*args.models, *data.values()):
        _check_readable(path)
    if args.dry_run:
        out.line(
            f"would submit {verb} of {', '.join(map(str, args.models))} on {', '.join(boards)}"
        )
        return 0
    folder = None if args.output is None else folder_for(args.output)
    waits = args.wait or folder is not None
    # With --wait-for-board, the limit may be meant for the board alone.
    waits = waits or (args.wait_minutes is not None and not args.wait_for_board)
    deadline = time.monotonic() + (args.wait_minutes or _WAIT_MINUTES) * 60
    results: dict[str, Any] = {}
    with open_server(args, out) as server:
        _check_offered(server, boards, deadline if args.wait_for_board else None, out)
        options |= zip(data, _uploaded(server, list(data.values()), out), strict=True)
        models = _uploaded(server, args.models, out)
        jobs = _start(server, models, verb, boards, options, out)
        if waits:
            from utvm_deploy.cli.wait_for_jobs import ended, going_on, told

            with going_on(jobs):
                jobs = ended(server, jobs, max(deadline - time.monotonic(), 0.0), out)
                for job, name in zip(jobs, _folders(jobs), strict=True):
                    results[job.key] = told(server, job, out)
                    if folder is not None:
                        place = folder / name if len(jobs) > 1 else folder
                        fetched(server, job, job.files, place, out)
    out.result(
        "utvm.submit/1",
        {
            "server": server.url,
            "jobs": [facts(job) | {"result": results.get(job.key)} for job in jobs],
        },
    )
    return max(job.status for job in jobs) if waits else 0


def _request(args: argparse.Namespace) -> tuple[str, list[str], dict[str, Any]]:
    """The verb, the boards and the options."""
    if args.plugin is not None:
        raise UsageError(NO_PLUGIN)
    boards = list(dict.fromkeys(args.board or [os.environ.get("UTVM_BOARD") or ""]))
    has_board = args.job not in VERBS or VERBS[args.job].has_board
    if has_board and not boards[0]:
        raise UsageError(f"{args.job} runs on a board; give --board B, or several")
    options = {
        name.removeprefix(PREFIX): value
        for name, value in vars(args).items()
        if name.startswith(PREFIX) and value not in (None, False)
    }
    for text in args.option:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--option {text!r} is not NAME=VALUE, such as trials=200")
        options[name] = number_or_word(value)
    return args.job, boards if has_board else [], options


def _check_offered(
    server: Server, boards: Sequence[str], deadline: float | None, out: Output
) -> None:
    """ServerError if no worker offers one of the boards: at once, or at the deadline."""
    with out.progress() as progress:
        while True:
            known = server.boards() if boards else {}
            # The server itself refuses a name that it does not know.
            missing = [board for board in boards if known.get(board) == 0]
            if not missing or not all(board in known for board in boards):
                return
            offered = [name for name, count in known.items() if count]
            names = ", ".join(missing)
            if deadline is None:
                raise ServerError(
                    f"no worker of {server.url} offers {names} now (offered: "
                    f"{', '.join(offered) or 'none'}); no job was started: give --wait-for-board, "
                    "or another --board"
                )
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"no worker of {server.url} offered {names} in time; no job was started: give "
                    "more --wait-minutes, or another --board"
                )
            progress(f"waits for a worker that offers {names}", 0, 1)
            time.sleep(min(_LOOK_S, max(deadline - time.monotonic(), 0.0)))


def _data_of(verb: str, options: Mapping[str, Any]) -> dict[str, Path]:
    """The files of this computer that options name, and not the server's by their SHA-256."""
    rows = VERBS[verb].options if verb in VERBS else ()
    names = [row.name for row in rows if row.takes_data and row.name in options]
    return {name: Path(options[name]) for name in names if not names_a_file(options[name])}


def _check_readable(path: Path) -> None:
    try:
        check_regular(path)
        with path.open("rb"):
            pass
    except OSError as error:
        raise UtvmError(f"cannot read {path}: {error.strerror}") from error


def _uploaded(server: Server, paths: Sequence[Path], out: Output) -> list[str]:
    """The SHA-256 of each of these files, which the server then has."""
    digests = []
    with out.progress() as progress:
        for number, path in enumerate(paths):
            progress(f"upload {path.name}", number, len(paths))
            digests.append(server.upload(path))
    return digests


def _start(
    server: Server,
    digests: Sequence[str],
    verb: str,
    boards: Sequence[str],
    options: Mapping[str, Any],
    out: Output,
) -> list[RemoteJob]:
    """A job for each board; and for each model, unless the verb takes several."""
    takes_all = verb in VERBS and VERBS[verb].most_models > 1
    together = [digests] if takes_all else [[digest] for digest in digests]
    jobs = [job for some in together for job in server.start(verb, some, boards or [""], options)]
    if not jobs:
        raise ServerError("the server started no job; see its page")
    for job in jobs:
        out.line(f"job {job.key}: {job.verb} of {label(job)}")
    return jobs


def _folders(jobs: Sequence[RemoteJob]) -> list[str]:
    """A folder's name for each of several jobs: its model and board; its digits if those repeat."""
    from utvm_deploy.service.client.download import safe_name

    names = [
        "-".join(filter(None, (Path(job.models[0]).stem if job.models else "", job.board)))
        for job in jobs
    ]
    return [
        safe_name(name if names.count(name) == 1 else f"{name}-{job.key}")
        for name, job in zip(names, jobs, strict=True)
    ]
