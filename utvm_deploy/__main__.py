"""``python -m utvm_deploy`` and the ``utvm`` command."""

import sys

from utvm_deploy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
