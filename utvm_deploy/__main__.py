"""``python -m utvm_deploy`` and the ``utvm`` command."""

import os
import sys

from utvm_deploy.cli.entry import as_process


def main() -> int:
    """The whole command, from the process's arguments to its exit code."""
    return as_process(_command)


def _command() -> int:
    if "_ARGCOMPLETE" in os.environ:  # for a shell: what can follow on its line
        from utvm_deploy.cli.completing import complete

        complete()
    from utvm_deploy.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
