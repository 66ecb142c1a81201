"""The JSON that a page holds, so that one file is both."""

from __future__ import annotations

import json
import re

#: The elements of pages that hold JSON: a report, and a model that runs in the page.
ELEMENT, MODEL = "utvm-report", "utvm-model"


def embedded_json(text: str, element: str = ELEMENT) -> str:
    """The JSON in an element of a page; any other text as it is."""
    pattern = rf'<script type="application/json" id="{element}">\n?(.*?)\n?</script>'
    found = re.search(pattern, text, re.DOTALL)
    return found[1] if found else text


def for_page(value: object) -> str:
    """JSON that an HTML page may hold in a script: no "<" ends the script early."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("&", "\\u0026").replace(">", "\\u003e")
