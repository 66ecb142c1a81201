"""utvm init: write utvm.toml, so that the verbs need no MODEL, --board and options each time."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import write_text
from utvm_deploy.base.readable import utf8
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.project_file import FILE

#: Lines of the file, with an example of each: those before its table [options], and those in it.
_TOP = {"model": "model.tflite", "board": "my_board", "records": "records.jsonl"}
_OPTIONS = {"optimize": "time", "ram-budget": "32K"}
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
    lines = [*_lines(args, _TOP), "", "[options]", *_lines(args, _OPTIONS), ""]
    text = _HEAD + "\n".join(lines)
    if not args.dry_run:
        write_text(file, text)
    out.line(text.rstrip("\n") if args.dry_run else f"wrote {FILE}")
    out.result("utvm.init/1", {"file": FILE, "text": text})
    return 0


def _what_to_write(args: argparse.Namespace) -> str:
    """How the file that is there gets what was given."""
    top, options = (
        [line for line in _lines(args, keys) if line[0] != "#"] for keys in (_TOP, _OPTIONS)
    )
    told = " and ".join([*top, *options]) + (" below [options]" if options else "")
    if not told:
        return "change it with an editor, or remove it first"
    return f"write {told} into it with an editor, or remove it first"


def _lines(args: argparse.Namespace, keys: Mapping[str, str]) -> list[str]:
    """A line for each key; one that was not given shows an example as a comment."""
    found = {key: getattr(args, key.replace("-", "_")) for key in keys}
    # A string of JSON is one of TOML.
    return [
        f"# {key} = {json.dumps(keys[key])}"
        if value is None
        else f"{key} = {json.dumps(str(value), ensure_ascii=False)}"
        for key, value in found.items()
    ]
