"""What a core's family of kernels saves over plain C, layer by layer, on an emulated board.

    python benchmarks/kernels/families.py MODEL.tflite... --board BOARD [--timing instructions]

Every distinct layer runs once with the reference's inputs, in the generic kernel and in the core's
own, and every output is compared with the reference's. ``--core`` compiles for another core than
the board's, as long as the board's can run it (code for a Cortex-M0+ runs on a Cortex-M3).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import utvm_deploy
from utvm_deploy.compiler.arena.plan import is_view
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.device import Device, Module, Tensor
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Operator
from utvm_deploy.graph.passes.dead_channels import drop_dead_channels
from utvm_deploy.graph.passes.simplify import PASSES, simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import (
    KernelCall,
    LibraryKernel,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.tuning.measuring.build import kernel_text

RUN_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Layer:
    """Layers that are the same kernels, and what one of them took."""

    calls: tuple[KernelCall, KernelCall]  # generic, the core's own
    count: int
    ticks: tuple[int, int]

    @property
    def macs(self) -> int:
        return self.calls[0].macs


def measure(path: Path, device: Device, core: str) -> list[Layer]:
    """The distinct layers of a model; says on stderr what is wrong."""
    # The reference's tensors have all channels of the file.
    passes = tuple(entry for entry in PASSES if entry[1] is not drop_dead_channels)
    graph = simplify(load_model(path), passes)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-128, 128, graph.tensors[i].shape, dtype=np.int8) for i in graph.inputs]
    (sample,) = run_reference(path, [inputs]).tensors
    values: dict[int, Array] = {}
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None:
            values[index] = tensor.data
        elif tensor.source in sample:
            values[index] = sample[tensor.source]
    found: dict[object, list[tuple[Operator, tuple[KernelCall, KernelCall]]]] = {}
    for operator in graph.operators:
        if not is_view(graph, operator):
            generic, own = lower(graph, operator), lower(graph, operator, core)
            if generic.macs:
                found.setdefault((generic.kernel, own.kernel), []).append(
                    (operator, (generic, own))
                )
    layers = []
    is_other = core != device.board.cpu.kernel_core
    flags = ("-O3", f"-mcpu={core}") if is_other else ("-O3",)
    for same in found.values():
        operator, calls = same[0]
        ticks = []
        for call in calls:
            assert not isinstance(call.kernel, LibraryKernel)
            function = lower_kernel(call.kernel, "kernel", core).function
            with device.load_module(kernel_text([function]), flags=flags) as module:
                scratch = [device.empty((one.size_bytes,), np.int8) for one in function.scratch]
                ticks.append(_run(device, module, call, scratch, operator.outputs[0], values))
        layers.append(Layer(calls, len(same), (ticks[0], ticks[1])))
    return layers


def _run(
    device: Device,
    module: Module,
    call: KernelCall,
    scratch: Sequence[Tensor],
    output: int,
    values: dict[int, Array],
) -> int:
    arguments: list[object] = []
    result = device.empty(values[output].shape, values[output].dtype)
    tensors = [result, *scratch]
    for argument in call.arguments:
        if isinstance(argument, ScalarArgument):
            arguments.append(argument.value)
        elif isinstance(argument, TensorArgument) and argument.tensor == output:
            arguments.append(result)
        else:
            data = (
                values[argument.tensor] if isinstance(argument, TensorArgument) else argument.data
            )
            tensors.append(device.tensor(np.ascontiguousarray(data)))
            arguments.append(tensors[-1])
    ticks = module["kernel"](*arguments, *scratch, timeout_s=RUN_TIMEOUT_S).ticks.min
    if not np.array_equal(result.numpy(), values[output]):
        print(f"WRONG: {call.kernel.name}", file=sys.stderr)
    for tensor in tensors:
        tensor.free()
    return int(ticks)


def table(layers: Sequence[Layer], unit: str) -> str:
    """Lines for people."""
    lines = [f"{'layer':58} {'x':>2} {'MACs':>9} {'generic':>8} {'own':>8}  {unit} per MAC, ratio"]
    for one in layers:
        generic, own = (t / one.macs for t in one.ticks)
        lines.append(
            f"{one.calls[1].kernel.name[:58]:58} {one.count:2} {one.macs:9} {generic:8.2f} "
            f"{own:8.2f}  {generic / own:.2f}  {one.calls[1].why_not}"
        )
    totals = [sum(one.ticks[n] * one.count for one in layers) for n in (0, 1)]
    lines.append(f"{'all of them':71} {totals[0]:,} -> {totals[1]:,}: {totals[0] / totals[1]:.2f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--core", help="whose kernels and code, if not the board's")
    parser.add_argument("--timing", choices=("cycles", "instructions"), default="cycles")
    options = parser.parse_args()
    with utvm_deploy.connect(options.board, timing=options.timing) as device:
        core = options.core or device.board.cpu.kernel_core
        for path in options.models:
            layers = measure(path, device, core)
            unit = "modelled cycles" if device.is_modelled else "instructions"
            print(f"\n{path.stem}, {core} on {device.board.name}\n{table(layers, unit)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
