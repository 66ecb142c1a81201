"""A connected board: its memory, its functions, modules and the models on it."""

from utvm_deploy.boards.facts import CYCLES, INSTRUCTIONS
from utvm_deploy.device.calls import Call, Ticks
from utvm_deploy.device.counts import Figures
from utvm_deploy.device.device import Device, connect
from utvm_deploy.device.layer_runs import LayerRun, LayerRuns, checked_inputs
from utvm_deploy.device.model import DeviceModel
from utvm_deploy.device.module import Function, Module
from utvm_deploy.device.tensor import Tensor

__all__ = [
    "CYCLES",
    "INSTRUCTIONS",
    "Call",
    "Device",
    "DeviceModel",
    "Figures",
    "Function",
    "LayerRun",
    "LayerRuns",
    "Module",
    "Tensor",
    "Ticks",
    "checked_inputs",
    "connect",
]
