"""What to do about an operator that cannot be imported: a phrase for the message."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.frontend.files.source import CUSTOM

_HOST = "cut the model before it and compute it in your own code"
_LOOP = "export a constant number of steps, or one step whose state is an input and an output"
_BRANCH = "compute both branches and select (tf.where)"
_STATIC = "convert the model with a fixed input shape"
_NORMALIZE = "fold the normalization into the layer before it when converting"
_MULTIPLY = "multiply by the inverse instead"
_RECURRENT = "use UNIDIRECTIONAL_SEQUENCE_LSTM or SVDF, or unroll it"

#: Kind -> what to do instead, where that is more than computing it elsewhere. Some of these
#: operators are imported on float32.
SUGGESTIONS: Mapping[str, str] = {
    "COS": _HOST,
    "SIN": _HOST,
    "FLOOR_DIV": _MULTIPLY,
    "SQUARE": "multiply the tensor by itself instead",
    "LOCAL_RESPONSE_NORMALIZATION": "train without it, or with batch normalization",
    "POW": _MULTIPLY,
    "NON_MAX_SUPPRESSION_V4": _HOST,
    "NON_MAX_SUPPRESSION_V5": _HOST,
    "IF": _BRANCH,
    "WHILE": _LOOP,
    "SHAPE": _STATIC,
    "RANGE": _STATIC,
    "RANK": _STATIC,
    "ZEROS_LIKE": _STATIC,
    "LSTM": _RECURRENT,
    "RNN": _RECURRENT,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _RECURRENT,
    "BIDIRECTIONAL_SEQUENCE_LSTM": _RECURRENT,
    "BIDIRECTIONAL_SEQUENCE_RNN": _RECURRENT,
    "HASHTABLE": "look up in your own code",
    "WHERE": f"its output has no fixed shape: {_HOST}",
}


def suggestion(kind: str) -> str:
    """What to do instead of an operator that has no row in the import table."""
    if kind.startswith(CUSTOM):
        return (
            f"custom operators are not part of the format: {_HOST}, or give a backend that "
            "computes it (--plugin; utvm docs backends)"
        )
    if kind.startswith("STABLEHLO_"):
        return "convert the model to TFLite's own operators"
    return SUGGESTIONS.get(kind, _HOST)
