"""A Relax module in the forms that leave this package: text in, text out."""

from __future__ import annotations

import json
from dataclasses import dataclass

from utvm_deploy.base.errors import ModelError

#: The message for the user about a model of shorter floats.
HALVES_NOTE = "float16 and bfloat16 tensors are computed as float32"
# The first bytes of the text, by which a reader distinguishes it from a .tflite file.
_FORMAT = "utvm_deploy Relax model 1"


@dataclass(frozen=True)
class RelaxModel:
    """A Relax module as TVM's JSON: as it was given, and lowered to calls of PrimFuncs."""

    given: str
    lowered: str
    # Messages for the user, such as a batch that was bound to 1.
    notes: tuple[str, ...] = ()
    # The names of the outputs, if the source of the module had some.
    outputs: tuple[str, ...] = ()
    # The kinds of operators in the source of the module, in their order.
    kinds: tuple[str, ...] = ()
    # Of each input, the greatest place that it may say; None if it says none.
    places: tuple[int | None, ...] = ()

    def dumped(self) -> bytes:
        """The model as the bytes of a file."""
        parts = {
            "format": _FORMAT,
            "notes": self.notes,
            "outputs": self.outputs,
            "kinds": self.kinds,
            "places": self.places,
            "given": self.given,
            "lowered": self.lowered,
        }
        return json.dumps(parts).encode()


def is_relax(data: bytes) -> bool:
    """Whether bytes are what ``RelaxModel.dumped`` made."""
    return data.startswith(b'{"format": "' + _FORMAT.encode())


def loaded(data: bytes) -> RelaxModel:
    """The model in such bytes; ModelError if they are damaged."""
    try:
        parts = json.loads(data)
        facts = (tuple(parts[one]) for one in ("notes", "outputs", "kinds", "places"))
        return RelaxModel(parts["given"], parts["lowered"], *facts)
    except (ValueError, KeyError, TypeError) as exc:
        raise ModelError(f"the converted model is damaged: {exc}; convert it again") from exc
