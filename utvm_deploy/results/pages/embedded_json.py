"""The JSON that a report's page holds, so that one file is both; the digest of what it holds."""

from __future__ import annotations

import hashlib
import json
import re
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


#: The page's element with the report's JSON.
ELEMENT = "utvm-report"
_EMBEDDED = re.compile(
    rf'<script type="application/json" id="{ELEMENT}">\n?(.*?)\n?</script>', re.DOTALL
)


def embedded_json(text: str) -> str:
    """The JSON in a page; any other text as it is."""
    found = _EMBEDDED.search(text)
    return found[1] if found else text
