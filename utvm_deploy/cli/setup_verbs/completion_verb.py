"""utvm completion: the script with which a shell completes verbs, options, boards and files."""

from __future__ import annotations

import argparse

from argcomplete.shell_integration import shellcode

from utvm_deploy.cli.output import Output


def run(args: argparse.Namespace, out: Output) -> int:
    """Print the script alone, so that `eval` can read it."""
    script = shellcode(["utvm"], shell=args.shell)
    if not out.as_json:
        out.line(script)
    out.result("utvm.completion/1", {"shell": args.shell, "script": script})
    return 0
