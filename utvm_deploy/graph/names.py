"""Names of tensors and operators as people are shown them: a file may hold very long ones."""

from __future__ import annotations

from collections.abc import Iterable

from utvm_deploy.base.readable import MOST_OF_NAMES, short


def short_name(name: str) -> str:
    """The name; one that is longer than MOST_OF_NAMES has '...' in its middle."""
    return short(name)


def with_short_names(text: str, names: Iterable[str]) -> str:
    """The text with each of these names shortened."""
    # The longest first: others may be parts of it.
    for name in sorted(
        {name for name in names if len(name) > MOST_OF_NAMES}, key=len, reverse=True
    ):
        text = text.replace(name, short_name(name))
    return text


def shape_text(dtype: str, shape: Iterable[int]) -> str:
    """A tensor's type and shape, such as "int8 1x8x8x1"."""
    return f"{dtype} {'x'.join(map(str, shape))}".rstrip()
