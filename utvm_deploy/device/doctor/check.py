"""One thing that was looked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """What was looked for, what was found, and what brings it if it is missing."""

    what: str
    purpose: str
    found: str | None  # version or a similar text; None if it is missing
    fix: str  # the command that installs it, or what else to do
    needed: bool  # False: only some boards, or some verbs, need it

    @property
    def ok(self) -> bool:
        """Whether nothing must be done about it."""
        return self.found is not None or not self.needed
