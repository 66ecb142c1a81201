"""What is chosen for each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.records import DEFAULT
from utvm_deploy.records.candidate import Candidate


@dataclass(frozen=True)
class Pick:
    """How a kernel is compiled, and what said so."""

    candidate: Candidate | None = None  # None: the family's own choice
    origin: str = DEFAULT


#: Kernel's key -> how it is compiled.
Picks = Mapping[str, Pick]
