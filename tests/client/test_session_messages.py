"""Messages of sessions: what was encoded comes back, and anything else is one error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm_deploy.base.errors import (
    BoardError,
    BuildError,
    DeviceError,
    DeviceFault,
    DeviceReset,
    LinkError,
    LinkTimeout,
    MissingTool,
    ProbeError,
    TaskTimeout,
    UtvmError,
)
from utvm_deploy.service.client.session_errors import error_fields, error_of, mark_place
from utvm_deploy.service.client.session_messages import (
    MESSAGE_BYTES,
    PART_BYTES,
    REQUESTS,
    Message,
    check_request,
    decode,
    encode,
    pack_words,
    unpack_words,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
RIGHT: dict[str, dict[str, Any]] = {
    "open": {
        "version": 1,
        "digest": "d",
        "template": "host",
        "link": "monitor",
        "cycle_model": True,
        "image_bytes": 5,
    },
    "read": {"address": 1 << 40, "size": PART_BYTES},
    "write": {"address": 0},
    "execute": {"tasks": [[8, [-1, 5], 3, None], [9, [], 1, 0.5]], "timeout_s": 2},
    "checksum": {"address": 0, "size": 1 << 24},
}


def name_of(address: int) -> str:
    return f"f+{address}"


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_one_error(data: bytes) -> None:
    try:
        message = decode(data)
    except LinkError:
        return
    assert isinstance(message.fields, dict) and data.endswith(message.body)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=8), JSON), st.binary(max_size=32))
def test_what_was_encoded_is_decoded(fields: dict[str, Any], body: bytes) -> None:
    assert decode(encode(fields, body)) == Message(fields, body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\xff\xff\xff\xff{}",
        b"\x03\x00\x00\x00[1]",
        b'\x09\x00\x00\x00{"a":NaN}',
        (100_000).to_bytes(4, "little") + b"[" * 100_000,
        bytes(MESSAGE_BYTES + 1),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(LinkError):
        decode(data)


@given(st.sampled_from(sorted(REQUESTS)), st.dictionaries(st.text(max_size=8), JSON), st.data())
def test_a_request_has_the_right_fields_or_is_refused(
    op: str, other: dict[str, Any], data: st.DataObject
) -> None:
    right = {"op": op, "id": 1, **RIGHT.get(op, {})}
    check_request(Message(right))
    name = data.draw(st.sampled_from(sorted(right)))
    value = data.draw(JSON)
    for wrong in ({**right, name: value}, {**right, **other}):
        try:
            check_request(Message(wrong))
        except LinkError:
            continue
        # What passes has the fields of a request, with values of their types.
        assert wrong.keys() == {"op", "id", *REQUESTS[wrong["op"]]}
    with pytest.raises(LinkError):
        check_request(Message({key: one for key, one in right.items() if key != name}))


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        ("read", "size", PART_BYTES + 1),
        ("read", "address", -1),
        ("read", "address", True),
        ("write", "address", 1 << 64),
        ("execute", "timeout_s", float("1e9")),
        ("execute", "tasks", [[8, [], 1]]),
        ("execute", "tasks", [[8, ["x"], 1, None]]),
        ("open", "image_bytes", 1 << 40),
        ("open", "link", "m" * 1000),
    ],
)
def test_values_beyond_the_limits_are_refused(op: str, name: str, value: object) -> None:
    right = {"op": op, "id": 1, **RIGHT[op]}
    with pytest.raises(LinkError, match=name):
        check_request(Message({**right, name: value}))


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=20))
def test_words_come_back(words: list[int]) -> None:
    assert list(unpack_words(pack_words(words))) == words
    with pytest.raises(LinkError):
        unpack_words(pack_words(words) + b"\x00")


@pytest.mark.parametrize(
    "error",
    [
        UtvmError("text"),
        BoardError("text"),
        LinkTimeout("text"),
        DeviceError("text", status=3, index=2, detail=17),
        DeviceReset("text"),
    ],
)
def test_errors_come_back_as_they_were(error: UtvmError) -> None:
    made = error_of(json.loads(json.dumps(error_fields(error))), name_of)
    assert type(made) is type(error) and vars(made) == vars(error) and str(made) == str(error)


@pytest.mark.parametrize("kind", [DeviceFault, TaskTimeout])
def test_stopped_tasks_come_back_with_names_for_addresses(kind: type[DeviceFault]) -> None:
    error = kind(
        f"it was in {mark_place(80)}", status=9, index=1, detail=4, pc=80, lr=None, address=12
    )
    made = error_of(json.loads(json.dumps(error_fields(error))), name_of)
    assert isinstance(made, kind) and made.cause == "it was in f+80"
    assert (made.index, made.detail, made.pc, made.lr, made.address) == (1, 4, 80, None, 12)


def test_errors_with_facts_of_the_other_computer_keep_their_text() -> None:
    missing = MissingTool("qemu", "run boards", "apt install qemu")
    made = error_of(error_fields(missing), name_of)
    assert type(made) is ProbeError and str(made) == str(missing)
    assert str(error_of(error_fields(BuildError("no", None)), name_of)) == "no"


def test_texts_of_the_server_move_no_cursor() -> None:
    fields = {"kind": "ProbeError", "text": "two\nlines \x1b[2J\x07 and \x0280\x03"}
    assert str(error_of(fields, name_of)) == "two\nlines [2J and f+128"


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["kind", "text", "status", "index", "pc"]), JSON))
def test_any_fields_are_an_error_of_ours(fields: dict[str, Any]) -> None:
    assert isinstance(error_of(fields, name_of), UtvmError)
    assert isinstance(
        error_of({**fields, "kind": "DeviceFault", "text": "t"}, name_of), DeviceFault
    )
