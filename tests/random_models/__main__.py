"""Many random models against the oracle.

    python -m tests.random_models --count 2000 --board host --seed 0 --coverage coverage.md

Exit 1 if a byte is wrong, a task faults or an error is unexpected; each kind of failure is reduced
to its smallest model, which is stored among the regressions.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Tests import each other from this folder; pytest puts it there by itself.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from random_models.command import main

    sys.exit(main())
