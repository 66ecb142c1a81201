"""utvm init: write utvm.toml, so that the verbs need no MODEL, --board and options each time."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import write_text
from utvm_deploy.base.readable import utf8
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.project_file import FILE

#: Arguments that become lines of the file: those before its table [options], and those in it.
_TOP = ("model", "board", "records")
_OPTIONS = ("optimize", "ram_budget")
_HEAD = """\
# What verbs of utvm take in this folder where the command line does not say it.
# Options of the command line, and UTVM_BOARD, count more than this file.
"""


def run(args: argparse.Namespace, out: Output) -> int:
    """Write the file, unless there is one."""
    file = Path(FILE)
    if file.exists() or file.is_symlink():
        raise UtvmError(f"{FILE} exists, and init never replaces it; {_what_to_write(args)}")
    if args.model is not None and not args.model.is_file():
        raise UtvmError(f"{args.model} is not a file; give the model that verbs should take")
    if args.board is not None:
        load_board(args.board)
    for path in (args.model, args.records):
        if path is not None and utf8(str(path)) != os.fsencode(path):
            raise UtvmError(f"{FILE} is UTF-8, and {path} is not; rename that file")
    text = _HEAD + "\n".join(
        [
            _line("model", args.model, "model.tflite"),
            _line("board", args.board, "my_board"),
            _line("records", args.records, "records.jsonl"),
            "",
            "[options]",
            _line("optimize", args.optimize, "time"),
            _line("ram-budget", args.ram_budget, "32K"),
            "",
        ]
    )
    if not args.dry_run:
        write_text(file, text)
    out.line(text.rstrip("\n") if args.dry_run else f"wrote {FILE}")
    out.result("utvm.init/1", {"file": FILE, "text": text})
    return 0


def _what_to_write(args: argparse.Namespace) -> str:
    """How the file that is there gets what was given."""
    top = [_line(key, value, "") for key in _TOP if (value := getattr(args, key)) is not None]
    options = [
        _line(key.replace("_", "-"), value, "")
        for key in _OPTIONS
        if (value := getattr(args, key)) is not None
    ]
    told = " and ".join(top)
    if options:
        told += f"{' and ' if top else ''}{' and '.join(options)} below [options]"
    if not told:
        return "change it with an editor, or remove it first"
    return f"write {told} into it with an editor, or remove it first"


def _line(key: str, value: object, example: str) -> str:
    """A line of the file; one that is not set shows an example as a comment."""
    # A string of JSON is one of TOML.
    shown = json.dumps(str(example if value is None else value), ensure_ascii=False)
    return f"{'# ' if value is None else ''}{key} = {shown}"
