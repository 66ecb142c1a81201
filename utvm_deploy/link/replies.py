"""What is in a reply: facts or a refusal. The same for every link to the runtime."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.link.base import Hello, Region
from utvm_deploy.link.messages import (
    BY_NAME,
    MIN_PAYLOAD_BYTES,
    PROTOCOL_VERSION,
    REGION,
    Right,
    Status,
    TickUnit,
)

# A longer table of regions is damaged: no board has this many.
MAX_REGIONS = 1024


def check_version(version: int) -> None:
    """DeviceError if the device speaks another version of the protocol."""
    if version != PROTOCOL_VERSION:
        raise DeviceError(
            f"the image speaks protocol version {version}, this utvm_deploy {PROTOCOL_VERSION}: "
            "build the image again and put it on the board",
            status=Status.VERSION,
            detail=version,
        )


def read_hello(payload: bytes, version: int) -> Hello:
    """OPEN's reply; DeviceError if our runtime cannot have sent it."""
    try:
        facts, image = BY_NAME["OPEN"].unpack_reply(payload)
        unit = TickUnit(facts["tick_unit"])
    except (struct.error, ValueError) as error:
        raise DeviceError(
            f"the device's hello makes no sense ({error}): rebuild its image"
        ) from error
    if min(facts["request_bytes"], facts["reply_bytes"]) < MIN_PAYLOAD_BYTES:
        raise DeviceError(
            f"the device has room for fewer than {MIN_PAYLOAD_BYTES} bytes: rebuild its image"
        )
    if facts["ticks_per_second"] == 0:
        raise DeviceError("the device's timer stands still, it says: rebuild its image")
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


def read_regions(records: bytes) -> Iterator[Region]:
    """The records of a reply to REGIONS."""
    for at in range(0, len(records) - REGION.size_bytes + 1, REGION.size_bytes):
        facts = REGION.unpack(records[at:])
        rights = Right(facts["rights"])
        yield Region(
            facts["address"],
            facts["size"],
            readable=Right.READ in rights,
            writable=Right.WRITE in rights,
            executable=Right.EXECUTE in rights,
        )


def refusal(name: str, outcome: Mapping[str, int], what: str) -> DeviceError:
    """The error for an outcome other than OK of a request called ``name``."""
    status, index, detail = outcome["status"], outcome["index"], outcome["detail"]
    where = f" (task {index} of the batch)" if name == "EXECUTE" else ""
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
