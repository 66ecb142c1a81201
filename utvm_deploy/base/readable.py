"""Text from outside as people can read it: file names, names in models, words of a server.

A terminal obeys control characters, and bidirectional overrides show a name as another one.
"""

from __future__ import annotations

import unicodedata

#: What nobody should print: controls, formats such as overrides, halves of pairs, line separators.
_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
#: Joiners, which scripts and emoji need.
_JOINERS = "\u200c\u200d"
#: Python keeps a byte of a file name that is not UTF-8 as this plus the byte.
_BYTE = 0xDC00
#: Letters of a tensor's or an operator's name that people are shown; a file may hold longer ones.
MOST_OF_NAMES = 60
_DOTS = "..."


def readable(text: str, *, kept: str = "\n\t") -> str:
    r"""``text`` with escapes for what cannot be read; of control characters those in ``kept`` stay.

    ``\x1b`` and ``\xff`` are bytes of a file's name, and ``\u202e`` is a character, as in bash's
    ``$'...'``. Backslashes stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else _escaped(c) for c in text)


def counted(count: int, what: str) -> str:
    """A count of things, such as "1 layer" or "1,024 layers"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def utf8(text: str) -> bytes:
    """``text`` for a file, with escapes where it has no UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        halves = {c for c in text if unicodedata.category(c) == "Cs"}
        return text.translate({ord(c): _escaped(c) for c in halves}).encode()


def is_c_text(text: str) -> bool:
    """Whether a C file can have the text: UTF-8 without zero bytes."""
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def short(text: str, most: int = MOST_OF_NAMES) -> str:
    """The text; "..." is in the middle instead of what makes it longer than ``most`` letters."""
    if len(text) <= most:
        return text
    kept = most - len(_DOTS)
    return text[: kept - kept // 2] + _DOTS + text[-(kept // 2) :]


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _UNPRINTABLE or character in _JOINERS:
        return character
    code = ord(character)
    if _BYTE + 0x80 <= code <= _BYTE + 0xFF:
        return f"\\x{code - _BYTE:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
