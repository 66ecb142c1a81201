"""What kernels cost on Cortex-M cores: cycles that were counted on a Cortex-M7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from utvm_deploy.targets.contract.costs import CostTable

CORTEX_M7 = CostTable(
    unit="cycles",
    # Of convolutions with less and less scratch: between 0.45 and 0.8 cycles a weight.
    per_weight=0.75,
    per_channel=24.0,
    depthwise_pass=1.4,
    per_portable_mac=3.5,
    per_native_mac=0.7,
    per_output_byte=8.0,
    per_estimated=0.0,
    portable_factor=5.0,
    # Of the benchmarks' ResNet-8.
    least_per_mac=0.62,
    # Of first layers with 3 channels: 27 to 39.
    per_gathered_row=35.0,
    # 25x5x64 takes 158,000 cycles with 1,280 bytes of the 3,072 that it asks for, and 192,000 with
    # 512. A row of it takes 9,100 with 1,344 bytes, 10,700 with 768 and 12,900 without. All that it
    # asks for is enough for a strip, and two fifths of that for a whole layer.
    depthwise_loss=0.5,
    depthwise_enough=0.4,
    # 640 inputs and 128 outputs take 50,687 cycles instead of 48,344.
    per_rewidened_mac=0.03,
    # A strip of a convolution takes 800 to 3,000 cycles more than its share of the whole layer. The
    # rest of that is the one pass that a strip takes at least.
    per_call=100.0,
    per_moved_byte=1.0,
    # 1.6 to 2.4 were measured, and 1.1 of dense layers.
    per_unpacked=2.4,
    per_other_mac=1.1,
    per_miss=26.0,
    macs_per_line=32,
)

#: Core -> its costs. All but the Cortex-M7 use its costs until theirs are counted.
COSTS: Mapping[str, CostTable] = {
    "cortex-m7": CORTEX_M7,
    **dict.fromkeys(
        (
            *("cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4"),
            "cortex-m33",
        ),
        CORTEX_M7,
    ),
    # Convolutions of KWS and ResNet-8 take 0.45 to 0.9 cycles for a weight that they unpack.
    "cortex-m55": replace(CORTEX_M7, per_unpacked=0.6),
}
