"""Operators that keep a state themselves, in a stream: it continues from hop to hop."""

from __future__ import annotations

from utvm_deploy.frontend.streams.rules import Place, Rule, as_it_is, write
from utvm_deploy.frontend.streams.writer import Writer


def lstm(w: Writer, at: Place) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM along time: its steps are the columns of a run."""
    flow = w.flows[at.inputs[0]]
    if flow.axis != (0 if at.options.timeMajor else 1) or flow.unit > 1:
        raise w.refusal(at.position, f"does not step along axis {flow.axis}, which is time")
    x = w.settled(at.inputs[0])
    flow = w.flows[x]
    if flow.first:
        raise w.refusal(
            at.position,
            "would begin with columns that come before the recording, because layers in front of "
            f"it are late by {flow.first}; pad these before the first column only",
        )
    w.has_states = True
    write(w, at, [x, *at.inputs[1:]], flow)


def svdf(w: Writer, at: Place) -> None:
    """SVDF takes all that a run gives it as one step; its memory is full some runs later."""
    if at.inputs[0] in w.flows:
        raise w.refusal(at.position, "takes a run as one step, and not columns over time")
    memory = w.shapes[at.inputs[2]][1]
    w.filling += memory - 1
    w.has_states = True
    as_it_is(w, at)


def behind_a_window(w: Writer, at: Place) -> None:
    """Refuse an LSTM that does not step along time: a stream has no first window for it."""
    raise w.refusal(at.position, "keeps a state, and takes whole windows, which a stream has not")


def bidirectional(w: Writer, at: Place) -> None:
    """Refuse what runs backwards."""
    raise w.refusal(at.position, "also begins at the recording's end, which a stream does not know")


#: By kind, the rule for an input of columns over time, and the one for others.
STATEFUL: dict[str, tuple[Rule, Rule]] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (lstm, behind_a_window),
    "SVDF": (svdf, svdf),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (bidirectional, bidirectional),
    "BIDIRECTIONAL_SEQUENCE_RNN": (bidirectional, bidirectional),
}
