"""How large a model file may be. A file is untrusted, so everything is bounded before it is used.

Real models for microcontrollers stay far below. The import of a file within these limits takes less
than 1 GiB of memory and a minute. docs/reference/operators.md lists the limits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from utvm_deploy.base.errors import ModelError

#: What the import of one file may take, of memory and of the processor's time.
IMPORT_BYTES = 1024 * 1024 * 1024
IMPORT_SECONDS = 60
#: Names another number of seconds: large models of PyTorch take long.
SECONDS_VARIABLE = "UTVM_IMPORT_SECONDS"
_MOST_SECONDS = 24 * 3600
#: A .tflite file, or one that is converted into it.
MAX_FILE_BYTES = 128 * 1024 * 1024
MAX_OPERATORS = 4_096
MAX_TENSORS = 16_384
#: All lists of a file together: shapes, operands, scales, zero points. They may share bytes of the
#: file, so the file's size does not bound them.
MAX_NUMBERS = 4 * 1024 * 1024
#: Elements of all constants that are copied: of int4, of booleans, and stored without zeros. They
#: may share bytes, too.
MAX_COPIED = 64 * 1024 * 1024
#: Stored elements of a sparse tensor: the place of each is computed, in eight bytes.
MAX_STORED = 8 * 1024 * 1024
#: Names repeat in every message and report; the converter's longest are a few hundred bytes.
MAX_NAME_BYTES = 4_096
#: The largest rank that any TFLite kernel takes.
MAX_RANK = 8
#: Elements of a tensor: offsets in the generated code are int32 of bytes.
MAX_TENSOR_ELEMENTS = 64 * 1024 * 1024
#: Extents of all dimensions of all operators' tensors together: what moves elements is described
#: by a position for each.
MAX_EXTENTS = 4 * 1024 * 1024
#: Operators that cannot be imported, in one message.
MAX_TOLD = 50

#: What each limit is on, for people.
LIMITS: tuple[tuple[str, int], ...] = (
    ("bytes of a file", MAX_FILE_BYTES),
    ("operators", MAX_OPERATORS),
    ("tensors, and buffers", MAX_TENSORS),
    ("numbers in all lists (shapes, operands, scales, zero points) together", MAX_NUMBERS),
    ("bytes of a name", MAX_NAME_BYTES),
    ("dimensions of a tensor", MAX_RANK),
    ("elements of a tensor", MAX_TENSOR_ELEMENTS),
    ("elements of all constants of int4, of booleans, and without zeros, together", MAX_COPIED),
    ("stored elements of a sparse tensor", MAX_STORED),
    ("extents of all operators' inputs and outputs, added up", MAX_EXTENTS),
)


def import_seconds() -> int:
    """What the import of a file may take of the processor's time, by the user or by default."""
    given = os.environ.get(SECONDS_VARIABLE) or str(IMPORT_SECONDS)
    seconds = int(given) if given.isascii() and given.isdigit() else 0
    if not 1 <= seconds <= _MOST_SECONDS:
        raise ModelError(
            f"{SECONDS_VARIABLE} is {given!r}; give it an integer from 1 to {_MOST_SECONDS}"
        )
    return seconds


@dataclass
class Budget:
    """What may still be read; one for each file."""

    numbers: int = MAX_NUMBERS
    copied: int = MAX_COPIED

    def take(self, count: int, where: str) -> None:
        """Count the numbers of a list before anything is made of them."""
        self.numbers -= count
        if self.numbers < 0:
            raise ModelError(
                f"the lists of the file hold more than {MAX_NUMBERS:,} numbers (at {where}); "
                "choose a model for microcontrollers"
            )

    def copy(self, count: int, where: str) -> None:
        """Count the elements of a constant before they are copied."""
        self.copied -= count
        if self.copied < 0:
            raise ModelError(
                f"the constants of int4, of booleans, and without zeros, have more than "
                f"{MAX_COPIED:,} elements (at {where}); choose a model for microcontrollers"
            )
