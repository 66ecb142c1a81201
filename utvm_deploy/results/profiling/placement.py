"""Where a loaded model's data lie: the board's memory regions by name."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.boards.board import Region
from utvm_deploy.device import Device, DeviceModel


@dataclass(frozen=True)
class Placement:
    """Names of memory regions, with their kind."""

    inputs: str
    outputs: str
    activations: str
    scratch: str
    weights: str
    stack: str

    def __str__(self) -> str:
        return (
            f"inputs, outputs and activations in {self.activations}, scratch in {self.scratch}, "
            f"weights in {self.weights}, stack in {self.stack}"
        )


def placement_of(model: DeviceModel) -> Placement:
    """By the addresses that the model's data have."""
    device = model.device
    arena = _region(device, model.arena_address)
    weights = model.weights_address
    return Placement(
        inputs=arena,
        outputs=arena,
        activations=arena,
        scratch=_scratch_place(model, arena),
        weights="none" if weights is None else _weights_place(model, weights),
        stack=_stack_place(device),
    )


def _scratch_place(model: DeviceModel, arena: str) -> str:
    """The arena's region, a pool's, or the stack's if the model was compiled so and needs any."""
    device, compiled = model.device, model.compiled
    for pool, address in zip(compiled.pools, model.pool_addresses, strict=True):
        if pool.scratch_bytes:
            return _region(device, address)
    if not compiled.stack_bytes:
        return arena
    stack = f"{_stack_place(device)}, on the stack"
    # Some may be too large for it.
    larger = sum(1 for layer in compiled.layers if layer.scratch_bytes > compiled.stack_bytes)
    return f"{stack} (of {larger} layers in {arena})" if larger else stack


def _weights_place(model: DeviceModel, address: int) -> str:
    place = _region(model.device, address)
    for pool, start in zip(model.compiled.pools, model.pool_addresses, strict=True):
        size = sum(one.constant.size_bytes for one in pool.residents)
        if size:
            place += f", copies of {size:,} bytes in {_region(model.device, start)}"
    return place


def _stack_place(device: Device) -> str:
    return "memory" if device.board.is_host else _name(device.board.data_ram)


def _region(device: Device, address: int) -> str:
    if device.board.is_host:
        return "memory"
    for region in device.board.memory:
        if region.address <= address < region.end:
            return _name(region)
    return f"0x{address:08x}"


def _name(region: Region) -> str:
    return region.name if region.name == region.kind else f"{region.name} ({region.kind})"
