"""utvm models: the networks that ship, and copies of them."""

from __future__ import annotations

import argparse

from utvm_deploy import models
from utvm_deploy.base.errors import UsageError
from utvm_deploy.cli.output import Output


def run(args: argparse.Namespace, out: Output) -> int:
    """List all, or copy one."""
    if args.action is None:
        return _list(out)
    if args.name is None:
        raise UsageError(f"models get needs the name of a model: {', '.join(models.names())}")
    if args.dry_run:
        copies = [args.output / file.name for file in models.find(args.name).files]
    else:
        copies = models.get(args.name, args.output)
    for copy in copies:
        out.line(str(copy))
    out.result("utvm.models.get/1", {"model": args.name, "files": [str(copy) for copy in copies]})
    return 0


def _list(out: Output) -> int:
    found = [models.find(name) for name in models.names()]
    out.table(
        ["model", "weights", ">bytes", "description", "other files"],
        [
            (
                one.name,
                one.weights,
                one.files[0].stat().st_size,
                one.description,
                ", ".join(file.name for file in one.files[1:]),
            )
            for one in found
        ],
    )
    out.line("`utvm models get NAME` copies one into the current folder")
    out.result(
        "utvm.models/1",
        {
            "models": [
                {
                    "name": one.name,
                    "description": one.description,
                    "weights": one.weights,
                    "files": [
                        {"name": file.name, "bytes": file.stat().st_size} for file in one.files
                    ],
                }
                for one in found
            ]
        },
    )
    return 0
