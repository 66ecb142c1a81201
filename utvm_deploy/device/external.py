"""Asks a loaded model's library whether its scratch is enough, and whether a call failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.kernels.contract.call import GUARD_BYTES, OTHER_STATUS, SCRATCH_OVERRUN
from utvm_deploy.kernels.contract.external_library import BLOB_STATUSES, LAYER_STATUS

if TYPE_CHECKING:
    from utvm_deploy.device.model import DeviceModel

#: Asking a library for its buffer sizes takes it a few thousand instructions.
CHECK_TIMEOUT_S = 20.0

_STATUS_NAMES = {
    -1: "argument error",
    -2: "no implementation",
    -3: "failure",
    OTHER_STATUS: "instead of a status that is not in -100 to 100",
}


def initialize(model: DeviceModel) -> None:
    """Run what prepares the device for the backend; DeviceError if it reports a failure."""
    device, compiled = model.device, model.compiled
    if not compiled.initialized:
        return
    try:
        status = _answer(model, f"{compiled.name}_initialize", model.arena_address)
    except DeviceError as error:
        names = " or ".join(one.name for one in compiled.initialized)
        raise DeviceError(f"{names} prepares {device.board.name}: {error}") from error
    if LAYER_STATUS <= status < LAYER_STATUS + 256 * len(compiled.layers):
        layer = compiled.layers[(status - LAYER_STATUS) // 256]
        raw = status % 256
        cause = BLOB_STATUSES.get(raw, f"its engine returned {raw - 256 if raw > 127 else raw}")
        raise DeviceError(
            f"{layer.engine} refused to prepare layer {layer.index} ({layer.kind} {layer.name}): "
            f"{cause}"
        )
    if status != 0:
        tried = " or ".join(
            f"{one.initialize} of {one.name}" for one in compiled.initialized if one.initialize
        )
        raise DeviceError(
            f"{tried}, which prepares {device.board.name}, returned {status}; see what this status "
            "means there"
        )


def _answer(model: DeviceModel, function: str, *arguments: int) -> int:
    """The int32 that a function of the image writes."""
    device = model.device
    answer = device.allocate(4, "the library's answer")
    model.call_function(function, *arguments, answer, timeout_s=CHECK_TIMEOUT_S)
    value = int.from_bytes(device.read(answer, 4), "little", signed=True)
    device.free(answer)
    return value


def check_scratch(model: DeviceModel) -> None:
    """DeviceError if the library wants more scratch for a layer than it was given."""
    compiled = model.compiled
    if compiled.external is None:
        return
    index = _answer(model, f"{compiled.name}_check_library")
    if index >= 0:
        layer = compiled.layers[index]
        built = next(one.built_with for one in compiled.externals if one.name == layer.engine)
        raise DeviceError(
            f"{layer.engine} wants more than the {layer.scratch_bytes} bytes of scratch "
            f"planned for layer {index} ({layer.why}); its version or build is one whose sizes are "
            f"not known here ({built})"
        )


def check_statuses(model: DeviceModel) -> None:
    """DeviceError if a function of the library returned an error in the latest run."""
    compiled = model.compiled
    if compiled.external is None:
        return
    assert compiled.status_offset is not None
    address = model.arena_address + compiled.status_offset
    raw = model.device.read(address, len(compiled.layers))
    for layer, status in zip(compiled.layers, np.frombuffer(raw, np.int8).tolist(), strict=True):
        if layer.is_external and status == SCRATCH_OVERRUN:
            raise DeviceError(
                f"{layer.engine} wrote beyond the scratch of layer {layer.index} "
                f"({layer.kind} {layer.name}): {layer.why} has {layer.scratch_bytes} bytes with "
                f"{2 * GUARD_BYTES} of guards; ask for more scratch_bytes in the plug-in, or "
                "correct its C"
            )
        if layer.is_external and status != 0:
            meaning = _STATUS_NAMES.get(status, "which only its code explains")
            raise DeviceError(
                f"{layer.engine} refused layer {layer.index} ({layer.kind} "
                f"{layer.name}): {layer.why} returned {status}, {meaning}"
            )
