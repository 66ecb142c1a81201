"""What a loaded model's external library reports: is its scratch enough, did a call fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from utvm_deploy.base.errors import DeviceError

if TYPE_CHECKING:
    from utvm_deploy.device.model import DeviceModel

#: Asking a library for its buffer sizes takes it a few thousand instructions.
CHECK_TIMEOUT_S = 20.0

_STATUS_NAMES = {-1: "argument error", -2: "no implementation", -3: "failure"}


def check_scratch(model: DeviceModel) -> None:
    """DeviceError if the library wants more scratch for a layer than it was given."""
    device, compiled = model.device, model.compiled
    if compiled.external is None:
        return
    answer = device.allocate(4, "the library's answer")
    device.call(f"{compiled.name}_check_library", answer, timeout_s=CHECK_TIMEOUT_S)
    index = int.from_bytes(device.read(answer, 4), "little", signed=True)
    device.free(answer)
    if index >= 0:
        layer = compiled.layers[index]
        raise DeviceError(
            f"{compiled.external.name} wants more than the {layer.scratch_bytes} bytes of scratch "
            f"planned for layer {index} ({layer.why}); its version or build is one whose sizes are "
            f"not known here ({compiled.external.built_with})"
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
        if layer.is_external and status != 0:
            meaning = _STATUS_NAMES.get(status, "unknown")
            raise DeviceError(
                f"{compiled.external.name} refused layer {layer.index} ({layer.kind} "
                f"{layer.name}): {layer.why} returned {status}, {meaning}"
            )
