"""What kernels cost on a core, where no record says it: the constants of the planner's estimate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostTable:
    """Costs in one unit. The defaults are those of plain C on cores with 32 bits, about."""

    #: ``cycles`` where they were counted.
    unit: str = "instructions"
    #: Of a pass through all weights of a layer, for each weight and each output channel.
    per_weight: float = 0.75
    per_channel: float = 24.0
    #: A pass of a depthwise convolution costs this many times as much.
    depthwise_pass: float = 1.4
    #: Of a layer: for each MAC in plain C and in a native kernel, and for each byte of the output.
    per_portable_mac: float = 3.5
    per_native_mac: float = 0.7
    per_output_byte: float = 8.0
    #: Plain C costs this many times as much as a native kernel.
    portable_factor: float = 5.0
    #: For each MAC, what the largest convolutions cost at least without Winograd's method.
    least_per_mac: float = 0.62
    #: For each row of a window whose pixels are gathered one by one.
    per_gathered_row: float = 35.0
    #: A depthwise convolution without scratch costs this share more, and less with more scratch. It
    #: has enough with this share of what it asks for.
    depthwise_loss: float = 0.5
    depthwise_enough: float = 0.4
    #: For each MAC of a fully connected layer that widens its inputs for each group of outputs.
    per_rewidened_mac: float = 0.03
    #: Of a call, and of a byte that is moved.
    per_call: float = 100.0
    per_moved_byte: float = 1.0
    #: Of a line that the cache does not hold any more, and the MACs that read one line.
    per_miss: float = 26.0
    macs_per_line: int = 32


#: Of cores whose costs nobody counted.
ESTIMATED = CostTable()
