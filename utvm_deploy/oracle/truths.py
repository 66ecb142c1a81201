"""The table of truth: operators that LiteRT's reference kernels compute wrongly, or not at all.

For these, other kernels say which bytes are right, and the emitted C computes those bytes. The
other kernels get what the reference computed before, and the reference continues with theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: LiteRT's resolvers of operators, as ``OpResolverType`` calls them, and their names for people.
REFERENCE_KERNELS, DEFAULT_KERNELS = "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
NAMES = {REFERENCE_KERNELS: "reference kernels", DEFAULT_KERNELS: "default kernels"}


@dataclass(frozen=True)
class Truth:
    """An operator on some types, and the resolver whose kernel is right."""

    kind: str
    dtypes: tuple[str, ...]  # of its first input
    resolver: str
    reason: str


TRUTHS = (
    *(
        Truth(kind, dtypes, DEFAULT_KERNELS, "there is no reference kernel of it")
        for kind, dtypes in (
            ("CEIL", ("float32",)),
            ("ELU", ("int8", "float32")),
            ("ROUND", ("float32",)),
        )
    ),
    Truth(
        "SUM",
        ("int8",),
        DEFAULT_KERNELS,
        "the reference kernel reads and writes int8 as unsigned bytes; the default kernels, "
        "XNNPACK and TFLite Micro add up what the bytes mean",
    ),
)


def truth_of(kind: str, dtype: str) -> Truth | None:
    """The row of an operator whose first input has this type; None if the reference is right."""
    return next((one for one in TRUTHS if kind == one.kind and dtype in one.dtypes), None)


def named(reference: str, truths: Sequence[Truth]) -> str:
    """A reference's name for reports, with the operators that other kernels computed."""
    for resolver in dict.fromkeys(one.resolver for one in truths):
        kinds = dict.fromkeys(one.kind for one in truths if one.resolver == resolver)
        reference += f", and its {NAMES[resolver]} for {', '.join(kinds)}"
    return reference
