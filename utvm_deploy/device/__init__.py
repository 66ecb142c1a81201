"""A connected board: its memory, its functions and the models on it."""

from utvm_deploy.device.device import Device, connect
from utvm_deploy.device.model import DeviceModel, LayerRun

__all__ = ["Device", "DeviceModel", "LayerRun", "connect"]
