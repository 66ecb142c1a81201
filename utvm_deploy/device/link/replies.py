"""Reads replies, which are facts or refusals, in the same way for every link to the runtime."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.device.link.base import Hello, Region
from utvm_deploy.device.link.fault import stopped_task
from utvm_deploy.device.link.messages import (
    BY_NAME,
    FAULT,
    MAX_IMAGE_BYTES,
    MIN_PAYLOAD_BYTES,
    OUTCOME,
    PROTOCOL_VERSION,
    REGION,
    Right,
    Status,
    TickUnit,
)

# A longer table of regions is damaged: no board has this many.
MAX_REGIONS = 1024
_ADDRESSES = 1 << 32
_ALL_RIGHTS = sum(Right)


def check_version(version: int) -> None:
    """DeviceError if the device speaks another version of the protocol."""
    if version != PROTOCOL_VERSION:
        update = "update utvm_deploy, or " if version > PROTOCOL_VERSION else ""
        raise DeviceError(
            f"the image speaks protocol version {version}, this utvm_deploy {PROTOCOL_VERSION}: "
            f"{update}build the image again with this version and put it on the board",
            status=Status.VERSION,
            detail=version,
        )


def outcome_of(payload: bytes, what: str) -> dict[str, int]:
    """The outcome with which a reply begins; DeviceError if the reply is too short for it."""
    if len(payload) < OUTCOME.size_bytes:
        raise _malformed(what, len(payload), f"at least {OUTCOME.size_bytes}")
    return OUTCOME.unpack(payload)


def contents(name: str, payload: bytes, what: str, place_of: Callable[[int], str]) -> bytes:
    """The contents of a reply to the request called ``name``, after its outcome.

    A refusal, a task that was stopped, and a reply of another size than the message has, are each
    a DeviceError. Only a message with a tail can have more bytes than its fixed fields.
    """
    outcome, body = outcome_of(payload, what), payload[OUTCOME.size_bytes :]
    status = outcome["status"]
    is_stopped = name == "EXECUTE" and status in (Status.FAULT, Status.TIMEOUT)
    layout = BY_NAME[name].reply
    if status == Status.OK:
        fixed, is_open = layout.size_bytes, bool(layout.tail)
    else:
        fixed, is_open = FAULT.size_bytes if is_stopped else 0, is_stopped
    if len(body) < fixed or (len(body) > fixed and not is_open):
        wanted = f"{'at least ' if is_open else ''}{OUTCOME.size_bytes + fixed}"
        raise _malformed(what, len(payload), wanted)
    if is_stopped:
        raise stopped_task(outcome, body, place_of)
    if status != Status.OK:
        raise refusal(name, outcome, what)
    return body


def check_size(data: bytes, wanted: int, what: str) -> None:
    """DeviceError if a tail has another size than what was asked for."""
    if len(data) != wanted:
        raise DeviceError(
            f"asked {what}, the device sent {len(data)} bytes instead of {wanted}; reset it"
        )


def _malformed(what: str, got: int, wanted: str) -> DeviceError:
    return DeviceError(
        f"asked {what}, the device sent a reply of {got} bytes, and it has {wanted}; reset the "
        "device, or build its image again"
    )


def read_hello(body: bytes, version: int) -> Hello:
    """OPEN's reply after its outcome; DeviceError if our runtime cannot have sent it."""
    layout = BY_NAME["OPEN"].reply
    try:
        facts, image = layout.unpack(body), body[layout.size_bytes :]
        unit = TickUnit(facts["tick_unit"])
        if len(image) > MAX_IMAGE_BYTES or not image.decode("ascii", "replace").isprintable():
            raise ValueError("its image's id is not text")
        if facts["workspace"] + facts["workspace_bytes"] > _ADDRESSES:
            raise ValueError("its workspace is beyond 32 bits")
    except (struct.error, ValueError) as error:
        raise DeviceError(
            f"the device's hello makes no sense ({error}): rebuild its image"
        ) from error
    if min(facts["request_bytes"], facts["reply_bytes"]) < MIN_PAYLOAD_BYTES:
        raise DeviceError(
            f"the device has room for fewer than {MIN_PAYLOAD_BYTES} bytes: rebuild its image"
        )
    if facts["ticks_per_second"] == 0:
        raise DeviceError("the device says that its timer stands still: rebuild its image")
    runtime = facts["runtime_version"]
    return Hello(
        protocol_version=version,
        runtime_version=f"{runtime >> 16}.{runtime & 0xFFFF}",
        nonce=facts["nonce"],
        request_bytes=facts["request_bytes"],
        reply_bytes=facts["reply_bytes"],
        ticks_per_second=facts["ticks_per_second"],
        tick_unit=unit.name.lower(),
        workspace_address=facts["workspace"],
        workspace_size=facts["workspace_bytes"],
        region_count=facts["region_count"],
        image=image.decode("ascii", "replace"),
    )


def check_region_count(count: int) -> None:
    """DeviceError if the device lists more regions than any board has."""
    if count > MAX_REGIONS:
        raise DeviceError(
            f"the device says that it has {count} regions, and at most {MAX_REGIONS} are read; "
            "rebuild its image"
        )


def read_regions(records: bytes, most: int, what: str) -> list[Region]:
    """The records of a reply to REGIONS: at least one, and not more than are left to list."""
    count, rest = divmod(len(records), REGION.size_bytes)
    if rest or not 1 <= count <= most:
        raise DeviceError(
            f"asked {what}, the device sent {len(records)} bytes of regions, and {most} records of "
            f"{REGION.size_bytes} bytes are left to list; reset it, or build its image again"
        )
    return [_region(records[REGION.size_bytes * at :], what) for at in range(count)]


def _region(record: bytes, what: str) -> Region:
    facts = REGION.unpack(record)
    if facts["address"] + facts["size"] > _ADDRESSES or facts["rights"] & ~_ALL_RIGHTS:
        raise DeviceError(
            f"asked {what}, the device sent a region of {facts['size']} bytes at "
            f"{facts['address']:#010x} with rights {facts['rights']:#x}, which none can be; reset "
            "it, or build its image again"
        )
    rights = Right(facts["rights"])
    return Region(
        facts["address"],
        facts["size"],
        readable=Right.READ in rights,
        writable=Right.WRITE in rights,
        executable=Right.EXECUTE in rights,
    )


def refusal(name: str, outcome: Mapping[str, int], what: str) -> DeviceError:
    """The error for an outcome other than OK of a request called ``name``."""
    status, index, detail = outcome["status"], outcome["index"], outcome["detail"]
    where = f" (task {index} of the list)" if name == "EXECUTE" else ""
    reasons = {
        Status.OPCODE: f"it does not know opcode {detail}; rebuild its image",
        Status.LENGTH: f"a message of {detail} bytes is malformed{where}",
        Status.TOO_LARGE: f"only {detail} bytes fit its reply{where}",
        Status.ADDRESS: f"its regions do not allow that at {detail:#010x}{where}; "
        "compare with the board's memory and the image's symbols",
        Status.ARGUMENTS: f"{detail} arguments are too many{where}",
        Status.UNSUPPORTED: "its port cannot do that; reset it by hand or through the probe",
    }
    known = {int(key): text for key, text in reasons.items()}
    reason = known.get(status, f"it gave the unknown status {status}; rebuild its image")
    return DeviceError(
        f"asked {what}, the device refused: {reason}", status=status, index=index, detail=detail
    )


def region_of(regions: Sequence[Region], address: int, size: int, right: str, what: str) -> Region:
    """The region that allows it: the device's rule, for code that bypasses the runtime."""
    for region in regions:
        end = region.address + region.size
        if getattr(region, right) and region.address <= address <= address + size <= end:
            return region
    outcome = {"status": int(Status.ADDRESS), "index": 0, "detail": address}
    raise refusal("", outcome, what)
