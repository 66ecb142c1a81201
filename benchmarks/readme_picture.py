"""The picture of the README: latency, RAM and flash of five models, ours beside CMSIS-NN's.

python benchmarks/readme_picture.py [--svg FILE]

It draws the figures of docs/reference/benchmarks.md, which `utvm bench` counted. In each row, the
bar of CMSIS-NN has the same length.
"""

from __future__ import annotations

import argparse
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
PICTURE = ROOT / "docs" / "images" / "beside-cmsis-nn.svg"
CLOCK_HZ = 216_000_000
#: Each model of the page, and the name that people know.
MODELS = {
    "ad01_int8": "anomaly detection",
    "kws_ref_model": "keyword spotting",
    "vww_96_int8": "person detection",
    "pretrainedResnet_quant": "ResNet-8",
    "cifar10_cnn": "CIFAR-10 CNN",
}
#: Pixels: of the names, of a panel, of CMSIS-NN's bars, and of a row.
NAMES, PANEL, UNIT, ROW = 130, 240, 72, 40
TOP = 52
#: The picture has its own ground: a page may be dark where the reader's system is not.
STYLE = """
.ground { fill: #ffffff }
text { font: 12px system-ui, sans-serif; fill: #24292f }
.head { font-weight: 600 }
.small { font-size: 10px; fill: #57606a }
.ours { fill: #3f51b5 }
.other { fill: #b4bac2 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117 }
  text { fill: #e6edf3 }
  .small { fill: #9da7b1 }
  .ours { fill: #8c9eff }
  .other { fill: #6e7681 }
}
"""


@dataclass(frozen=True)
class Pair:
    """A figure of ours and the same of CMSIS-NN."""

    ours: float
    other: float


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    decimals: int
    pairs: Mapping[str, Pair]


def panels(page: str) -> list[Panel]:
    """The figures of the page's first tables: of cycles, and of RAM and flash."""
    cycles = _rows(page, "| model | ours | CMSIS-NN | ratio")
    sizes = _rows(page, "| model | RAM ours | RAM CMSIS-NN | flash ours")
    ms = {name: Pair(*(1e3 * n / CLOCK_HZ for n in row[:2])) for name, row in cycles.items()}
    ram = {name: Pair(*(n / 1024 for n in row[:2])) for name, row in sizes.items()}
    flash = {name: Pair(*(n / 1024 for n in row[2:4])) for name, row in sizes.items()}
    return [
        Panel("latency", "ms", 1, ms),
        Panel("RAM of the image", "KiB", 0, ram),
        Panel("flash of the image", "KiB", 0, flash),
    ]


def _rows(page: str, heading: str) -> dict[str, list[int]]:
    lines = page[page.index(heading) :].splitlines()[2:]
    found = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found[name] = [
            int(cell.replace(",", "")) for cell in cells if re.fullmatch(r"[\d,]+", cell)
        ]
    return found


def picture(shown: Sequence[Panel]) -> str:
    """The panels as SVG."""
    width, height = NAMES + PANEL * len(shown), TOP + ROW * len(MODELS) + 22
    title = "Latency, RAM and flash of five models: utvm_deploy beside CMSIS-NN"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 -12 {width + 24} {height + 24}" '
        f'role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="-12" y="-12" width="{width + 24}" height="{height + 24}"/>',
        '<rect class="ours" x="0" y="4" width="18" height="10"/>',
        *_text(24, 14, "utvm_deploy", "head"),
        '<rect class="other" x="130" y="4" width="18" height="10"/>',
        *_text(154, 14, "CMSIS-NN", "head"),
    ]
    for row, name in enumerate(MODELS.values()):
        lines += _text(0, TOP + ROW * row + 18, name)
    for place, panel in enumerate(shown):
        left = NAMES + PANEL * place
        lines += _text(left, 38, f"{panel.title}, {panel.unit}", "head")
        for row, name in enumerate(MODELS):
            lines += _bars(left, TOP + ROW * row, panel, panel.pairs[name])
    about = "Emulated Cortex-M7 at 216 MHz, modelled cycles: nothing here was measured on silicon."
    lines += _text(0, height - 6, about, "small")
    return "\n".join((*lines, "</svg>", ""))


def _bars(left: int, top: int, panel: Panel, pair: Pair) -> Iterator[str]:
    for below, kind, value in ((2, "ours", pair.ours), (17, "other", pair.other)):
        length = UNIT * value / pair.other
        yield (
            f'<rect class="{kind}" x="{left}" y="{top + below}" width="{length:.1f}" height="12"/>'
        )
        number = f"{value:,.{panel.decimals}f}"
        yield from _text(left + length + 5, top + below + 10, number)


def _text(x: float, y: float, text: str, kind: str = "") -> Iterator[str]:
    name = f' class="{kind}"' if kind else ""
    yield f'<text{name} x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--svg", type=Path, default=PICTURE)
    args = parser.parse_args()
    args.svg.write_text(picture(panels(PAGE.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
