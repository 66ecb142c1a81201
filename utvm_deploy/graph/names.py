"""Names of tensors and operators as people are shown them: a file may hold very long ones."""

from __future__ import annotations

from collections.abc import Iterable

#: Longer names are cut in the middle.
MOST_SHOWN = 60
_DOTS = "..."


def short_name(name: str) -> str:
    """The name, with '...' in the middle instead of what makes it longer than MOST_SHOWN."""
    if len(name) <= MOST_SHOWN:
        return name
    kept = MOST_SHOWN - len(_DOTS)
    return name[: kept - kept // 2] + _DOTS + name[-(kept // 2) :]


def with_short_names(text: str, names: Iterable[str]) -> str:
    """The text with each of these names shortened."""
    # The longest first: others may be parts of it.
    for name in sorted({name for name in names if len(name) > MOST_SHOWN}, key=len, reverse=True):
        text = text.replace(name, short_name(name))
    return text


def shape_text(dtype: str, shape: Iterable[int]) -> str:
    """A tensor's type and shape, such as "int8 1x8x8x1"."""
    return f"{dtype} {'x'.join(map(str, shape))}".rstrip()
