"""What kernels cost on a core, where no record says it: the constants of the planner's estimate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostTable:
    """Costs in one unit."""

    #: ``cycles`` where they were counted.
    unit: str
    #: Of a pass through all weights of a layer, for each weight and each output channel.
    per_weight: float
    per_channel: float
    #: A pass of a depthwise convolution costs this many times as much.
    depthwise_pass: float
    #: Of a layer: for each MAC in plain C and in a native kernel, and for each byte of the output.
    per_portable_mac: float
    per_native_mac: float
    per_output_byte: float
    #: For each cycle that a native kernel itself estimates; 0: its estimate has another unit.
    per_estimated: float
    #: Plain C costs this many times as much as a native kernel.
    portable_factor: float
    #: For each MAC, what the largest convolutions cost at least without Winograd's method.
    least_per_mac: float
    #: For each row of a window whose pixels are gathered one by one.
    per_gathered_row: float
    #: A depthwise convolution without scratch costs this share more, and less with more scratch. It
    #: has enough with this share of what it asks for.
    depthwise_loss: float
    depthwise_enough: float
    #: For each MAC of a fully connected layer that widens its inputs for each group of outputs.
    per_rewidened_mac: float
    #: Of a call, and of a byte that is moved.
    per_call: float
    per_moved_byte: float
    #: What native kernels take more than with weights of int8. The first is for each weight of int4
    #: that they unpack into scratch, the other for each MAC if int8 has a kernel of another family.
    per_unpacked: float
    per_other_mac: float
    #: Of a line that the cache does not hold any more, and the MACs that read one line.
    per_miss: float
    macs_per_line: int
