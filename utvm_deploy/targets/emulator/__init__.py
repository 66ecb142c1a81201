"""The cycle model for QEMU: a TCG plugin, its parameters and its counters.

Modelled cycles, never measured ones: docs/reference/cycle-model.md says what is modelled, and
docs/internals/cycle-model-accuracy.md how well.
"""

from utvm_deploy.targets.emulator.counters import Counters
from utvm_deploy.targets.emulator.digest import cycle_model_digest
from utvm_deploy.targets.emulator.model import CycleModel, arguments

__all__ = ["Counters", "CycleModel", "arguments", "cycle_model_digest"]
