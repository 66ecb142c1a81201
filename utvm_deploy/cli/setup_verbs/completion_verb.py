"""utvm completion: the script with which a shell completes verbs, options, boards and files."""

from __future__ import annotations

import argparse

from argcomplete.shell_integration import shellcode

from utvm_deploy.cli.arguments import Verbs, add_verb
from utvm_deploy.cli.output import Output

#: Shell -> what makes it read the script in each session.
SHELLS = {
    "bash": "echo 'eval \"$(utvm completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(utvm completion zsh)\"' >> ~/.zshrc (after compinit)",
    "fish": "utvm completion fish > ~/.config/fish/completions/utvm.fish",
}


def add_parser(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs, common, "completion", "print the script that completes command lines", run
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "once for each user:\n" + "\n".join(f"  {line}" for line in SHELLS.values())
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace, out: Output) -> int:
    """Print the script alone, so that `eval` can read it."""
    script = shellcode(["utvm"], shell=args.shell)
    if not out.as_json:
        out.line(script)
    out.result("utvm.completion/1", {"shell": args.shell, "script": script})
    return 0
