"""Events for a program that follows a verb: JSON lines in the file that UTVM_EVENTS names.

    {"event": "progress", "what": "layer", "done": 3, "total": 12}
    {"event": "tuning", "trials": 40, "wanted": 200, "before": 912345, "best": 800123}

Without the variable nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

VARIABLE = "UTVM_EVENTS"


def write_event(kind: str, facts: Mapping[str, Any]) -> None:
    """Append one line. If the file cannot be written, the verb continues."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    line = json.dumps({"event": kind, **facts}) + "\n"
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
        file.write(line)
