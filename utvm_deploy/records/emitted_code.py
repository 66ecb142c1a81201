"""Whether a record's kernel is the one that today's generators emit.

A record's ``code`` is a digest of the kernel's C (``compiler.kernel_function.record_code``). Only a
compile that emits the kernel shows whether it still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from utvm_deploy.records.candidate import Candidate

#: The code of a candidate that no C can be generated for.
NO_CODE = "none"
#: Family -> what version 0.2.0 wrote as ``code``: a digest of the family's generators, not of C.
CODES_OF_0_2_0 = {
    "generic": "ca5c0dbab7fd",
    "dsp": "4606d6c0215a",
    "mve": "26b08d8e961b",
    "thumb": "f7f05f95607b",
}
# Nobody knows which C these were measured with.
_UNKNOWN = frozenset({"", *CODES_OF_0_2_0.values()})


@dataclass(frozen=True)
class EmittedCode:
    """What a compile has found out about the C of kernels; it checks only those that it emits."""

    # Kernel's key and candidate -> digests; the kernel may differ between layers of one shape.
    codes: Mapping[tuple[str, Candidate], frozenset[str]] = field(default_factory=dict)
    # Kernels whose records all count as stale.
    changed: frozenset[str] = frozenset()

    def agrees(self, key: str, candidate: Candidate, code: str) -> bool:
        """Whether a record of this code may be of today's kernel."""
        if code in _UNKNOWN or key in self.changed:
            return False
        return code in self.codes.get((key, candidate), (code,))
