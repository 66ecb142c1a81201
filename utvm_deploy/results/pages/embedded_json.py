"""The JSON that a report's page holds, so that one file is both."""

from __future__ import annotations

import re

#: The page's element with the report's JSON.
ELEMENT = "utvm-report"
_EMBEDDED = re.compile(
    rf'<script type="application/json" id="{ELEMENT}">\n?(.*?)\n?</script>', re.DOTALL
)


def embedded_json(text: str) -> str:
    """The JSON in a page; any other text as it is."""
    found = _EMBEDDED.search(text)
    return found[1] if found else text
