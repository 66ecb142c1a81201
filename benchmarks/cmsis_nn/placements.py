"""How far a CMSIS-NN layer's cache misses follow from where its data lie, beside the recorded row.

    python benchmarks/cmsis_nn/placements.py --cmsis-nn DIR [LAYER...]

Each layer runs alone, from a cold cache, at many placements: input and output move in cached RAM,
the weights and each table in cached memory at 0x60000000, where the recording had its weights.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from utvm_deploy.backends.cmsis_nn import CmsisNn
from utvm_deploy.base import process
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.project import find_cmsis_nn
from utvm_deploy.targets.emulator import Counters, CycleModel, arguments, counters
from utvm_deploy.targets.emulator.model import CachedRange
from utvm_deploy.targets.emulator.plugin import build_plugin, installed_qemu_version

HERE = Path(__file__).resolve().parent
BOARD = "mps2_an500"
TOOL_TIMEOUT_S = 120.0
LINE_BYTES = 32
RECORDED = HERE.parents[1] / "utvm_deploy" / "bench" / "data" / "cmsis_nn_m7.csv"
#: Addresses this far apart meet in the same set of the data cache.
WAY_BYTES = 1024
PLACEMENTS = 64
# Of the recording: activations, weights.
_RAM = CachedRange(0x20010000, 0x40000, "ram")
_WEIGHTS = CachedRange(0x60000000, 0x100000, "flash")
_CODE = CachedRange(0, 0x100000, "flash")

Row = dict[str, str]


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split("x")]


def c_layer(row: Row) -> tuple[str, list[int]]:
    """C that calls the layer; bytes of input, output, weights and of each of three tables."""
    if row["operator"] == "FULLY_CONNECTED":
        inputs, outputs = int(row["input"]), int(row["output"])
        sizes = [inputs, outputs, inputs * outputs, *[4 * outputs] * 3]
        return (
            "    (void)multiplier;\n    (void)shift;\n"
            "    const cmsis_nn_fc_params p = {.input_offset = 3, .output_offset = -5,\n"
            "        .activation = {-128, 127}};\n"
            "    const cmsis_nn_per_tensor_quant_params q = {0x50000000, -7};\n"
            f"    const cmsis_nn_dims in = {{1, 1, 1, {inputs}}},\n"
            f"        f = {{{inputs}, 1, 1, {outputs}}},\n"
            f"        b = {{1, 1, 1, {outputs}}}, out = {{1, 1, 1, {outputs}}};\n"
            "    return arm_fully_connected_s8(\n"
            "        &context, &p, &q, &in, input, &f, weights, &b, bias, &out, output);\n"
        ), sizes
    (height, width, channels), kernel = numbers(row["input"]), numbers(row["kernel"])
    (rows, columns, outputs), stride = numbers(row["output"]), numbers(row["stride"])
    pad = [
        max(0, (out - 1) * step + size - extent) // 2
        for out, step, size, extent in zip(
            (rows, columns), stride, kernel, (height, width), strict=True
        )
    ]
    is_depthwise = row["operator"].startswith("DEPTHWISE")
    function = "depthwise_conv_wrapper_s8" if is_depthwise else "convolve_wrapper_s8"
    kind = "dw_conv_params" if is_depthwise else "conv_params"
    filters = (1, *kernel, outputs) if is_depthwise else (outputs, *kernel, channels)
    weights = kernel[0] * kernel[1] * outputs * (1 if is_depthwise else channels)
    sizes = [height * width * channels, rows * columns * outputs, weights, *[4 * outputs] * 3]
    return (
        f"    const cmsis_nn_{kind} p = {{.input_offset = 3, .output_offset = -5,\n"
        f"        {f'.ch_mult = {outputs // channels}, ' if is_depthwise else ''}"
        f".stride = {{{stride[1]}, {stride[0]}}}, .padding = {{{pad[1]}, {pad[0]}}},\n"
        "        .dilation = {1, 1}, .activation = {-128, 127}};\n"
        "    const cmsis_nn_per_channel_quant_params q = {multiplier, shift};\n"
        f"    const cmsis_nn_dims in = {{1, {height}, {width}, {channels}}},\n"
        f"        f = {{{', '.join(map(str, filters))}}}, b = {{1, 1, 1, {outputs}}},\n"
        f"        out = {{1, {rows}, {columns}, {outputs}}};\n"
        f"    return arm_{function}(\n"
        "        &context, &p, &q, &in, input, &f, weights, &b, bias, &out, output);\n"
    ), sizes


def placements(sizes: Sequence[int]) -> list[list[int]]:
    """Offsets of what ``sizes`` lists: packed at first, then moved apart by whole lines."""
    rng = random.Random(1)
    found = []
    for number in range(PLACEMENTS):
        offsets, ends = [], [0, 0]
        for index, size in enumerate(sizes):
            memory = 0 if index < 2 else 1
            gap = rng.randrange(0, WAY_BYTES, LINE_BYTES) if number else 0
            offsets.append(ends[memory] + gap)
            ends[memory] = -(-(offsets[-1] + size) // LINE_BYTES) * LINE_BYTES
        found.append(offsets)
    return found


def measure(row: Row, board: Board, library: CmsisNn) -> list[Counters]:
    """What the layer took at each placement."""
    assert board.emulator is not None
    body, sizes = c_layer(row)
    at = ", ".join(f"{{{', '.join(map(str, one))}}}" for one in placements(sizes))
    header = (
        f"#define CHANNELS {sizes[-1] // 4}\n#define INPUT_BYTES {sizes[0]}\n"
        f"#define WEIGHTS_BYTES {sizes[2]}\n#define PLACEMENTS {at}\n"
        "static arm_cmsis_nn_status layer(const int8_t *input, int8_t *output,\n"
        "    const int8_t *weights, const int32_t *bias, int32_t *multiplier, int32_t *shift) {\n"
        f"    const cmsis_nn_context context = {{scratch, sizeof scratch}};\n{body}}}\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "layer.h").write_text(header)
        elf = folder / "layer.elf"
        built = process.run(
            [
                *(board.cpu.toolchain.compiler, *board.cpu.compiler_flags, "-O2", "-std=gnu99"),
                *("-ffunction-sections", "-Wl,--gc-sections", "-nostartfiles"),
                *("-specs=nosys.specs", f"-I{folder}", f"-I{library.include_dirs[0]}"),
                *("-T", str(HERE / "placements.ld"), "-o", str(elf)),
                *(str(HERE / "placements.c"), library.library),
            ],
            timeout_s=TOOL_TIMEOUT_S,
        )
        if not built.is_ok:
            sys.exit(built.output[:4000])
        plugin = build_plugin(installed_qemu_version(board.emulator.program))
        model = replace(CycleModel.for_board(board), cached=(_CODE, _RAM, _WEIGHTS))
        snapshots = folder / "snapshots"
        done = process.run(
            [
                *(board.emulator.program, "-machine", board.emulator.machine),
                *(*board.emulator.arguments, "-nographic", "-monitor", "none", "-serial", "none"),
                *("-semihosting-config", "enable=on,target=native", "-kernel", str(elf)),
                *arguments(plugin, model, snapshots=snapshots),
            ],
            timeout_s=TOOL_TIMEOUT_S,
        )
        if not done.is_ok or done.output.strip():
            sys.exit(f"{row['layer']}: {done.output[:4000]}")
        taken = counters.read_snapshots(snapshots)
    return [b - a for a, b in zip(taken[::2], taken[1::2], strict=True)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layers", metavar="LAYER", nargs="*", help="default: all that are recorded")
    parser.add_argument("--cmsis-nn", type=Path, required=True)
    parser.add_argument("--cmsis-nn-library", type=Path, help="which, if the folder holds several")
    options = parser.parse_args()
    board = load_board(BOARD)
    library = find_cmsis_nn(options.cmsis_nn, board, options.cmsis_nn_library)
    with RECORDED.open(encoding="utf-8") as file:
        rows = {
            row["layer"]: row
            for row in csv.DictReader(line for line in file if not line.startswith("#"))
        }
    print(
        "| layer | core | recorded | | misses flash | recorded "
        "| misses RAM | of stores | recorded | waits |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.layers or rows:
        if name not in rows:
            sys.exit(f"no recorded layer {name!r}; there are {', '.join(rows)}")
        row = rows[name]
        found = measure(row, board, library)
        cells = [
            _range([one[figure] for one in found])
            for figure in (
                *("core", "dcache_misses_flash", "dcache_misses_ram"),
                *("dcache_store_misses", "linefill_waits"),
            )
        ]
        known = int(row["m7_core_cycles"])
        error = max((one["core"] / known - 1 for one in found), key=abs)
        print(
            f"| {name} | {cells[0]} | {known} | {100 * error:+.1f} % | {cells[1]} | "
            f"{row['dcache_misses_flash']} | {cells[2]} | {cells[3]} | {row['dcache_misses_ram']} "
            f"| {cells[4]} |"
        )
    return 0


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


if __name__ == "__main__":
    sys.exit(main())
