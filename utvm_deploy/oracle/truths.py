"""The table of truth: operators that LiteRT's reference kernels compute wrongly, or not at all.

For these, other kernels say which bytes are right, and the emitted C computes those bytes. The
other kernels get what the reference computed before, and the reference continues with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: LiteRT's resolvers of operators, as ``OpResolverType`` calls them, and their names for people.
REFERENCE_KERNELS, DEFAULT_KERNELS = "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
#: What is right where no kernel of LiteRT's takes the operator as it is.
AS_DENSE, AS_INT8, OF_MICRO = "FULLY_CONNECTED", "int8", "TFLite Micro"
NAMES = {
    REFERENCE_KERNELS: "its reference kernels",
    DEFAULT_KERNELS: "its default kernels",
    AS_DENSE: "its reference kernels of FULLY_CONNECTED",
    AS_INT8: "its reference kernels on weights widened to int8",
    OF_MICRO: "the formula of TFLite Micro",
}


@dataclass(frozen=True)
class Node:
    """An operator of a model, by the numbers of its tensors."""

    position: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[str, ...]  # of the inputs; empty of one that is absent
    scales: tuple[int, ...]  # how many each input has

    @property
    def dtype(self) -> str:
        """The type of the first input; empty if there is none."""
        return self.dtypes[0] if self.dtypes else ""


@dataclass(frozen=True)
class Truth:
    """An operator on some types, and whose kernel is right."""

    kind: str
    dtypes: tuple[str, ...]  # of its first input
    resolver: str  # a resolver of LiteRT's, ``AS_DENSE``, ``AS_INT8`` or ``OF_MICRO``
    reason: str
    # Of these operators, those that it is about.
    applies: Callable[[Node], bool] = lambda node: True
    #: Whether LiteRT does not start a file that has the operator.
    is_refused: bool = False


TRUTHS = (
    *(
        Truth(kind, dtypes, AS_INT8, reason, lambda node: "int4" in node.dtypes)
        for kind, dtypes, reason in (
            (
                "BATCH_MATMUL",
                ("int8", "int16"),
                "of constants of int4, which the kernels of BATCH_MATMUL do not take",
            ),
            (
                "DEPTHWISE_CONV_2D",
                ("int16",),
                "of weights of int4: the reference kernel of int16 reads their bytes as int8",
            ),
            (
                "UNIDIRECTIONAL_SEQUENCE_LSTM",
                ("int8",),
                "of weights of int4, which the kernels do not take",
            ),
        )
    ),
    Truth(
        "BATCH_MATMUL",
        ("int8", "int16"),
        AS_DENSE,
        "of a constant matrix with a scale for each column: the kernels of BATCH_MATMUL read one "
        "scale, which is not there, and make zeros",
        lambda node: node.scales[1] > 1,
    ),
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
        ("int8", "int16"),
        DEFAULT_KERNELS,
        "the reference kernel reads and writes unsigned bytes; the default kernels, XNNPACK and "
        "TFLite Micro add up what the elements mean",
    ),
    Truth(
        "SVDF",
        ("int8",),
        OF_MICRO,
        "of a state of int8: LiteRT's kernels take its bytes for int16, and write beyond its end",
        lambda node: node.dtypes[4] == "int8",
    ),
    Truth(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ("int16",),
        OF_MICRO,
        "LiteRT has no kernel of int16 by int8 weights, and refuses the file",
        is_refused=True,
    ),
)


def truth_of(node: Node) -> Truth | None:
    """The row of an operator; None if the reference is right."""
    of_kind = (one for one in TRUTHS if one.kind == node.kind and node.dtype in one.dtypes)
    return next((one for one in of_kind if one.applies(node)), None)


def named(reference: str, truths: Sequence[Truth]) -> str:
    """A reference's name for reports, with the operators that other kernels computed."""
    for resolver in dict.fromkeys(one.resolver for one in truths):
        kinds = dict.fromkeys(one.kind for one in truths if one.resolver == resolver)
        reference += f", and {NAMES[resolver]} for {', '.join(kinds)}"
    return reference
