"""Modelled cycles of every layer of a model, by family of kernels, on an emulated board.

    python benchmarks/kernels/run.py MODEL.tflite... --board BOARD [--baseline FILE.csv]

Each layer runs once, with inputs and outputs in cached RAM, tables in cached flash and scratch in
the tightly coupled RAM where the board has one. Every output is compared with the reference's.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utvm_deploy.base import process
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.arena.plan import is_view
from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records.candidate import GENERIC
from utvm_deploy.targets.emulator import Counters, CycleModel, arguments, counters
from utvm_deploy.targets.emulator.model import REF_MISS_CYCLES
from utvm_deploy.targets.emulator.plugin import build_plugin, installed_qemu_version

HERE = Path(__file__).resolve().parent
TOOL_TIMEOUT_S = 120.0
RUN_TIMEOUT_S = 120.0
FIGURES = ("instructions", "core", "memory", "pessimistic", "dcache_misses_flash",
           "dcache_misses_ram")  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer as it runs in the image."""

    call: KernelCall
    function: CFunction
    kind: str
    outputs: int  # channels
    why: str


def compiled_layers(graph: Graph, core: str) -> list[Layer]:
    """The layers that compute something."""
    functions: dict[object, tuple[CFunction, str]] = {}
    layers = []
    for operator in graph.operators:
        if is_view(graph, operator):
            continue
        call = lower(graph, operator, core)
        if call.kernel not in functions:
            made = lower_kernel(call.kernel, f"k{len(functions)}_{call.kernel.name}", core)
            functions[call.kernel] = (made.function, made.why)
        function, why = functions[call.kernel]
        outputs = graph.tensors[operator.outputs[0]].shape[-1]
        layers.append(Layer(call, function, operator.kind, outputs, call.why_not or why))
    return layers


def image_source(graph: Graph, layers: Sequence[Layer], values: dict[int, Array]) -> str:
    """C: kernels, tables, inputs, expected outputs, and a function for each layer."""
    functions = {layer.function.name: layer.function for layer in layers}
    parts = ["#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n", header()]
    parts += dict.fromkeys(text for f in functions.values() for text in f.imports)
    parts += [f"static {f.text}" for f in functions.values()]
    most_scratch = max((sum(-(-s.size_bytes // 8) * 8 for s in f.scratch)
                        for f in functions.values()), default=0)  # fmt: skip
    parts.append(
        f'__attribute__((section(".fast"), aligned(32))) static char scratch[{most_scratch + 8}];'
    )
    table = []
    for index, layer in enumerate(layers):
        texts, at, copies = [], 0, []
        for number, argument in enumerate(layer.call.arguments):
            if isinstance(argument, ScalarArgument):
                texts.append(f"({argument.value})")
            elif isinstance(argument, ConstantArgument):
                name = f"layer_{index}_{number}"
                parts.append(_array(f"static const {{}} {name}", argument.data))
                texts.append(name)
            else:
                tensor = graph.tensors[argument.tensor]
                is_last = number == len(layer.call.arguments) - 1
                data = tensor.data if tensor.data is not None else values[argument.tensor]
                name = f"layer_{index}_{number}"
                parts.append(_array(f"static const {{}} {name}", data))
                texts.append(f"(void *)(activations + {at})")
                copies.append((name, at, data.nbytes, is_last))
                at += -(-data.nbytes // 32) * 32 + 64
        offset = 0
        for scratch in layer.function.scratch:
            texts.append(f"(void *)(scratch + {offset})")
            offset += -(-scratch.size_bytes // 8) * 8
        before = "".join(f"    memcpy(activations + {a}, {n}, {b});\n"
                         for n, a, b, last in copies if not last)  # fmt: skip
        name, a, count, _ = copies[-1]
        parts.append(
            f"static int run_{index}(void) {{\n{before}    memset(activations + {a}, 0xA5, "
            f"{count} + 32);\n    mark();\n    {layer.function.name}({', '.join(texts)});\n"
            f"    mark();\n    return memcmp(activations + {a}, {name}, {count}) == 0\n"
            f"        && guard(activations + {a} + {count});\n}}\n"
        )
        table.append(f"run_{index}")
    parts.append(f"static int (*const layers[])(void) = {{{', '.join(table)}}};")
    return "\n".join([(HERE / "start.c").read_text(), *parts, (HERE / "main.c").read_text()])


def _array(declaration: str, data: Array) -> str:
    flat = np.ascontiguousarray(data).reshape(-1)
    values = ",".join(
        map(float.hex, flat.tolist()) if flat.dtype.kind == "f" else map(str, flat.tolist())
    )
    kind = declaration.format(c_type(flat.dtype.name))
    return f"__attribute__((aligned(32))) {kind}[{flat.size}] = {{{values}}};"


def run(board: Board, source: str, folder: Path) -> list[Counters]:
    """What each layer took; the image says so if an output is wrong."""
    assert board.emulator is not None
    (folder / "image.c").write_text(source)
    regions = {r.kind: r for r in board.memory}
    fast = regions.get("tcm", regions["ram"])
    ram, flash = regions["ram"], regions["flash"]
    start, size = (ram.address, ram.size) if "tcm" in regions else (
        ram.address + 0x20000, ram.size - 0x20000)  # fmt: skip
    script = (HERE / "link.ld.in").read_text()
    for key, value in {
        "@flash@": f"ORIGIN = {flash.address:#x}, LENGTH = 0x400000",
        "@fast@": f"ORIGIN = {fast.address:#x}, LENGTH = {min(fast.size, 0x20000):#x}",
        "@ram@": f"ORIGIN = {start:#x}, LENGTH = {size:#x}",
    }.items():
        script = script.replace(key, value)
    (folder / "link.ld").write_text(script)
    elf = folder / "kernels.elf"
    done = process.run(
        [board.cpu.toolchain.compiler, *board.cpu.compiler_flags,
         "-O3", "-std=gnu99", "-ffunction-sections", "-Wl,--gc-sections", "-nostartfiles",
         "-specs=nosys.specs", "-T", str(folder / "link.ld"), "-o", str(elf),
         str(folder / "image.c")],
        timeout_s=TOOL_TIMEOUT_S,
    )  # fmt: skip
    if not done.is_ok:
        sys.exit(done.stderr[:4000])
    plugin = build_plugin(installed_qemu_version(board.emulator.program))
    snapshots = folder / "snapshots"
    done = process.run(
        [board.emulator.program, "-machine", board.emulator.machine, *board.emulator.arguments,
         "-nographic", "-monitor", "none", "-serial", "none", "-semihosting-config",
         "enable=on,target=native", "-kernel", str(elf),
         *arguments(plugin, CycleModel.for_board(board), snapshots=snapshots)],
        timeout_s=RUN_TIMEOUT_S,
    )  # fmt: skip
    if "wrong" in done.output or "fault" in done.output or not done.is_ok:
        print(f"FAILED ({done.returncode}): {done.output}", file=sys.stderr)
    taken = counters.read_snapshots(snapshots)
    return [b - a for a, b in zip(taken[::2], taken[1::2], strict=False)]


def measure(path: Path, board: Board, core: str) -> list[tuple[Layer, Counters]]:
    """Every layer of a model with one family."""
    graph = simplify(load_model(path))
    layers = compiled_layers(graph, core)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-128, 128, graph.tensors[i].shape, dtype=np.int8) for i in graph.inputs]
    (sample,) = run_reference(path, [inputs]).tensors
    values = {i: sample[t.source] for i, t in enumerate(graph.tensors)
              if t.data is None and t.source in sample}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        found = run(board, image_source(graph, layers, values), Path(folder))
    return list(zip(layers, found, strict=False))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--baseline", type=Path, help="CSV of another engine's layers, by MACs")
    parser.add_argument("--only", choices=("generic", "best"))
    options = parser.parse_args()
    board = load_board(options.board)
    baseline = _baseline(options.baseline) if options.baseline else {}
    families = {"generic": GENERIC, "best": board.cpu.kernel_core}
    for path in options.models:
        totals: dict[str, float] = {}
        columns = {n: measure(path, board, c) for n, c in families.items()
                   if options.only in (None, n)}  # fmt: skip
        print(f"\n{path.stem} on {board.name} (modelled)")
        head = f"{'layer':52} {'MACs':>9}"
        for name in columns:
            head += f" | {name}: {'instr':>8} {'core':>9} {'memory':>9} {'pessim.':>9} {'c/MAC':>6}"
        print(head + " | why")
        for row in zip(*columns.values(), strict=True):
            layer = row[-1][0]
            macs = layer.call.macs
            line = f"{layer.function.name[:52]:52} {macs:9d}"
            for name, (_, one) in zip(columns, row, strict=True):
                for figure in FIGURES:
                    totals[f"{name} {figure}"] = totals.get(f"{name} {figure}", 0) + one[figure]
                figures = ("instructions", "core", "memory", "pessimistic")
                line += " | " + " ".join(f"{one[figure]:9d}" for figure in figures)
                line += f" {one['memory'] / max(macs, 1):6.2f}"
            other = baseline.get((macs, layer.outputs))
            if other:
                line += f" | {other / row[-1][1]['memory']:.2f}x"
            print(f"{line} | {layer.why}")
        for name, total in totals.items():
            print(f"{name:30} {total / 1e6:8.3f} M")
    return 0


def _baseline(path: Path) -> dict[tuple[int, int], float]:
    """MACs and output channels -> cycles with memory: together they tell the layers apart."""
    found = {}
    with path.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            outputs = int(re.findall(r"(?:x|dw)(\d+)", row["layer"])[-1])
            misses = int(row["dcache_misses_flash"]) + int(row["dcache_misses_ram"])
            found[int(row["macs"]), outputs] = int(row["m7_core_cycles"]) + REF_MISS_CYCLES * misses
    return found


if __name__ == "__main__":
    sys.exit(main())
