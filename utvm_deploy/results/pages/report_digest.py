"""The digest of a report: whether it holds what `utvm report` wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGEST = "digest"
#: Keys that the digest leaves out: its own, and the place of the page, which the verb adds.
_APART = (DIGEST, "output")


def content_digest(report: Mapping[str, Any]) -> str:
    """SHA-256 of all that a report's object holds, however it is laid out."""
    held = {key: value for key, value in report.items() if key not in _APART}
    text = json.dumps(held, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_as_written(report: Mapping[str, Any]) -> bool:
    """Whether nothing in it was edited since."""
    return report.get(DIGEST) == content_digest(report)
