"""What a target's fault records mean: words of the wire in, a ``Fault`` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Why code was stopped, and where. None: the device does not know."""

    phrase: str
    #: What was accessed.
    address: int | None = None
    pc: int | None = None
    #: Where the code at ``pc`` would have returned to.
    called_from: int | None = None
    #: Whether there is no code at ``pc``: who jumped there is of more use.
    is_astray: bool = False


def _unknown(words: Mapping[str, int]) -> Fault:
    return Fault("cause unknown", pc=words.get("pc") or None, called_from=words.get("lr") or None)


@dataclass(frozen=True)
class FaultWords:
    """The words of a target's fault records."""

    #: In their order. New ones may follow at the end: a host takes a word that is missing as 0,
    #: and ignores those that it does not know.
    names: tuple[str, ...] = ()
    #: Gets each word by its name; 0: not known.
    meaning: Callable[[Mapping[str, int]], Fault] = _unknown

    def decode(self, words: Sequence[int]) -> Fault:
        """The fault that a record describes."""
        known = words[: len(self.names)]
        missing = len(self.names) - len(known)
        return self.meaning(dict(zip(self.names, (*known, *[0] * missing), strict=True)))


#: Of a target whose ports stop no task.
NO_WORDS = FaultWords()
