"""The bar chart of microTVM's announcement (2020) again: one network, five ways to compute it.

python benchmarks/five_bars.py --cmsis-nn DIR [--svg FILE]

1. untuned: TVM's C, one output at a time.
2. tuned: TVM's C with the register tile of each layer that was fastest on the board.
3. tuned, SIMD: convolutions and dense layers by the tensor intrinsics, with the batch of pixels
   that was fastest.
4. CMSIS-NN: the calls of the CMSIS-NN in DIR, a build for the Cortex-M7.
5. utvm: the kernels that utvm compiles by default.

Each figure is of a whole image on the emulated board: modelled cycles. Bars 1 to 3 have the same
pools in TVM's C. Their outputs are compared with those of bar 5. CMSIS-NN rounds differently.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import utvm_deploy
from utvm_deploy import intrinsics
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.intrinsics.schedules import PIXELS
from utvm_deploy.kernels.portable.integers.conv2d import Conv2D
from utvm_deploy.kernels.portable.integers.fully_connected import Dense
from utvm_deploy.kernels.portable.schedules.tiling import RegisterTile, tiles
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project.find_cmsis_nn import find_cmsis_nn
from utvm_deploy.results.profiling.layer_costs import Profile, profile

MODEL = Path(__file__).resolve().parents[1] / "models" / "cifar10_cnn.tflite"
BLOCKS: Mapping[Any, str] = {Conv2D: "conv2d", Dense: "fully_connected"}
#: What a kernel is scheduled by: a tile, or a batch of pixels for the intrinsics.
Choice = RegisterTile | int
Chosen = Mapping[str, Choice]


def main() -> None:
    """Measure all bars; print a table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cmsis-nn", type=Path, required=True)
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    bench = Bench(args.board)
    kernels = bench.kernels()
    one = RegisterTile(1, 1)
    bars = {"untuned": bench.cycles({name: one for name in kernels})}
    by_tile = {name: tiles(*kernel.tile_extents) for name, kernel in kernels.items()}
    tile_choices = bench.best(by_tile)
    bars["tuned"] = bench.cycles(tile_choices)
    pixel_choices = bench.best(dict.fromkeys(kernels, PIXELS))
    bars["tuned, SIMD"] = bench.cycles(pixel_choices)
    board = utvm_deploy.load_board(args.board)
    library = find_cmsis_nn(args.cmsis_nn, board)
    bars["CMSIS-NN"] = bench.profile(exact=False, kernels="cmsis-nn", cmsis_nn=library)
    bars["utvm"] = bench.profile()
    print(table(bars))
    for name in kernels:
        print(f"{name}: tile {tile_choices[name]}, {pixel_choices[name]} pixels")
    if args.svg:
        args.svg.write_text(picture({name: found.ticks for name, found in bars.items()}))


class Bench:
    """Compiles the network in different ways, and measures each on the board."""

    def __init__(self, board: str) -> None:
        self.board = board
        self.samples = random_samples(load_model(MODEL), 1)
        self.expected: list[Array] | None = None
        self.profile()

    def kernels(self) -> dict[str, Any]:
        """The convolutions and dense layers in TVM's C."""
        found: dict[str, Any] = {}
        with scheduled({}, found.__setitem__):
            self._compile(kernels="generic")
        return found

    def best(self, choices: Mapping[str, Sequence[Choice]]) -> Chosen:
        """Of each kernel the choice with the fewest cycles of its layers."""
        fits: dict[str, dict[Choice, int]] = {name: {} for name in choices}
        for number in range(max(map(len, choices.values()))):
            tried = {name: each[min(number, len(each) - 1)] for name, each in choices.items()}
            found = self.cycles(tried)
            for name, choice in tried.items():
                fits[name][choice] = sum(
                    layer.ticks for layer in found.layers if name in layer.layer.kernel
                )
        return {name: min(each, key=each.__getitem__) for name, each in fits.items()}

    def cycles(self, chosen: Chosen) -> Profile:
        """The network in TVM's C with these choices; other layers as they are by default."""
        with scheduled(chosen):
            return self.profile(kernels="generic")

    def profile(self, *, exact: bool = True, **options: Any) -> Profile:
        """The network on a newly started board; ``exact``: its outputs must be the first ones."""
        compiled = self._compile(**options)
        with utvm_deploy.connect(self.board) as device:
            return self._measured(device, compiled, exact)

    def _measured(self, device: Device, compiled: CompiledModel, exact: bool) -> Profile:
        model = device.load(compiled)
        outputs, _ = model.run(self.samples.inputs[0])
        if self.expected is None:
            self.expected = outputs
        if exact and any((a != b).any() for a, b in zip(outputs, self.expected, strict=True)):
            raise SystemExit("the outputs of two bars differ")
        return profile(model, self.samples)

    def _compile(self, **options: Any) -> CompiledModel:
        return utvm_deploy.compile(MODEL, self.board, scratch="auto", **options)


@contextlib.contextmanager
def scheduled(
    chosen: Chosen, seen: Callable[[str, Any], None] = lambda name, kernel: None
) -> Iterator[None]:
    """Schedule the kernels in TVM's C as chosen; ``seen`` gets each with its name."""
    with contextlib.ExitStack() as stack:
        for kind, block in BLOCKS.items():
            usual = kind.schedule

            def schedule(
                kernel: Any, sch: Any, core: str, usual: Any = usual, block: str = block
            ) -> str:
                seen(kernel.name, kernel)
                choice = chosen.get(kernel.name)
                if isinstance(choice, int):
                    family = intrinsics.family_of(core)
                    used = intrinsics.tensorize(sch, sch.get_sblock(block), family, pixels=choice)
                    return used.name
                if choice is not None:
                    kernel = dataclasses.replace(kernel, tile=choice)
                return str(usual(kernel, sch, core))

            stack.enter_context(mock.patch.object(kind, "schedule", schedule))
        yield


def table(bars: Mapping[str, Profile]) -> str:
    """The figures as a table in Markdown."""
    lines = ["| | cycles | cycles a MAC | times utvm |", "|---|---|---|---|"]
    least = bars["utvm"].ticks
    for name, found in bars.items():
        share = found.ticks / found.macs
        lines.append(f"| {name} | {found.ticks:,} | {share:.2f} | {found.ticks / least:.2f} |")
    layers = "\n".join(
        f"{name}: {', '.join(f'{layer.ticks:,}' for layer in found.layers)}"
        for name, found in bars.items()
    )
    return "\n".join(lines) + "\n\n" + layers


def picture(bars: Mapping[str, int]) -> str:
    """A bar for each figure, as SVG."""
    height, left, width = 34, 110, 560
    scale = (width - left - 130) / max(bars.values())
    rows = []
    for number, (name, cycles) in enumerate(bars.items()):
        y = 34 + number * height
        length = cycles * scale
        rows.append(
            f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="{left}" y="{y}" width="{length:.0f}" height="24"/>'
            f'<text x="{left + length + 6:.0f}" y="{y + 17}">{cycles / 1e6:.1f} M</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{44 + len(bars) * height}" font-family="sans-serif" font-size="13">\n'
        "<style>text{fill:#333}rect{fill:#4878a8}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n"
        f'<text x="4" y="18">cifar10_cnn, int8, Cortex-M7: modelled cycles</text>\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
