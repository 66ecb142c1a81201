"""What kernels cost on RISC-V cores: a fit to modelled cycles.

The layers are those of AD, KWS, VWW and ResNet-8, without Winograd's method. Each is within a
third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from utvm_deploy.targets.contract.costs import CostTable

CV32E40P = CostTable(
    unit="cycles",
    # A pass of KWS's first layer and of one of ResNet-8, with 6, 12 and 24 pixels gathered at a
    # time.
    per_weight=0.2,
    per_channel=3.0,
    # As on the Cortex-M7, until it is counted.
    depthwise_pass=1.4,
    per_portable_mac=3.7,
    per_native_mac=2.4,
    per_output_byte=30.0,
    # Cycles of an instruction in convolutions of digits, of int4 and int8: 1.2 to 1.3.
    per_estimated=1.22,
    portable_factor=1.6,
    least_per_mac=2.2,
    # The next three are as on the Cortex-M7, too.
    per_gathered_row=35.0,
    depthwise_loss=0.5,
    depthwise_enough=0.4,
    per_rewidened_mac=0.0,
    per_call=100.0,
    per_moved_byte=1.0,
    # Instructions of ResNet-8 on a core without a table, 1.8, and as on the Cortex-M7.
    per_unpacked=1.8,
    per_other_mac=1.1,
    # No core here has a cache.
    per_miss=0.0,
    macs_per_line=32,
)
IBEX = replace(
    CV32E40P,
    per_weight=0.3,
    per_channel=4.0,
    per_portable_mac=6.5,
    per_native_mac=3.9,
    per_output_byte=33.0,
    per_estimated=1.85,
    portable_factor=1.7,
    least_per_mac=3.7,
    # Words are loaded and stored in four cycles.
    per_moved_byte=1.5,
)
IBEX_SINGLE_CYCLE = replace(
    IBEX,
    per_portable_mac=4.5,
    per_native_mac=2.9,
    per_estimated=1.42,
    portable_factor=1.6,
    least_per_mac=2.7,
)

#: Of cores without a table of timing, what they execute is counted.
INSTRUCTIONS = replace(CV32E40P, unit="instructions", per_estimated=1.0)

#: Core -> its costs.
COSTS: Mapping[str, CostTable] = {
    "rv32imc": INSTRUCTIONS,
    "rv32imafc": INSTRUCTIONS,
    "cv32e40p": CV32E40P,
    "ibex": IBEX,
    "ibex-single-cycle": IBEX_SINGLE_CYCLE,
}
