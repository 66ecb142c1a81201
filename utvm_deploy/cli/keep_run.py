"""Keeping what a verb found in this computer's store of runs."""

from __future__ import annotations

import argparse
import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_regular, file_digest
from utvm_deploy.base.paths import runs_file
from utvm_deploy.cli.options.option import rows_in
from utvm_deploy.cli.output import Output
from utvm_deploy.compiler.c_text import prefix_from_path
from utvm_deploy.results.runs.origin import git_revision, versions
from utvm_deploy.results.runs.run import Run, figures_of
from utvm_deploy.results.runs.store import RunStore

#: The results that are kept.
SCHEMAS = ("utvm.verify/1", "utvm.profile/1", "utvm.tune/2", "utvm.bench/1")
_KEY_BYTES = 6
#: Options that say nothing about what was done.
_NOT_OPTIONS = frozenset(
    {*("json", "v", "dry-run", "no-store"), *("model", "models", "board", "html", "trace")}
)


def model_digests(args: argparse.Namespace) -> dict[str, str]:
    """SHA-256 of each model's file by the model's name; none of a file that cannot be read.

    Take them before the verb: a file may change while the verb runs.
    """

    paths: list[Path] = args.models if "models" in args else [args.model]
    found = {}
    for path in paths:
        # The verb says what is wrong with a file.
        with contextlib.suppress(OSError, UtvmError):
            check_regular(path)
            name = getattr(args, "name", None) or prefix_from_path(path)
            # tune takes files of one name in several folders.
            found[f"{name} ({path})" if name in found else name] = file_digest(path)
    return found


def keep_run(
    args: argparse.Namespace,
    out: Output,
    digests: Mapping[str, str],
    exit_code: int,
    started: float,
    seconds: float,
) -> None:
    """Keep the verb's result; what prevents it is a line on stderr and not a failure."""
    if out.last_result is None or out.last_result[0] not in SCHEMAS:
        return
    _, result = out.last_result
    if not digests:
        out.note("this run is not kept: the model's file could not be read before it")
        return
    try:
        run = Run(
            secrets.token_hex(_KEY_BYTES),
            args.verb,
            started,
            seconds,
            exit_code,
            str(result.get("board", args.board)),
            git_revision(Path.cwd()),
            figures_of(args.verb, result, digests),
            _options(args),
            versions(),
            result,
        )
        with RunStore(runs_file()) as store:
            store.add(run)
    except (UtvmError, OSError) as error:
        out.note(f"this run is not kept: {error}")


def _options(args: argparse.Namespace) -> Mapping[str, Any]:
    """The options that were given, or have a default."""
    found = {
        # Of a flag that says False, the name says what was left out.
        row.name.replace("-", "_"): getattr(args, row.attribute) is not (row.default is True)
        if row.is_alone
        else getattr(args, row.attribute)
        for row in rows_in(args.row.rows)
        if row.name not in _NOT_OPTIONS
    }
    return {
        name: value if isinstance(value, bool | int | float) else str(value)
        for name, value in found.items()
        if value is not None and value is not False
    }
