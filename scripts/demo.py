"""The main job in a minute: a small CNN reads handwritten digits on an emulated Cortex-M7.

Compiles models/digits.tflite, runs the 360 held-out images of scikit-learn's digits set on the
board and in the reference interpreter, compares every answer, and writes the firmware bundle.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from utvm_deploy.base.paths import data_dir
from utvm_deploy.cli.entry import as_process

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from utvm_deploy.results.profiling.layer_costs import Profile

MODEL = data_dir("models") / "digits.tflite"
HELD_OUT = data_dir("models") / "digits_test.npz"
BUNDLE = Path(__file__).resolve().parents[1] / "build" / "digits_bundle"
#: Ink of a pixel, from 0 to 16.
SHADES = " .:-=+*#%@"
SHOWN = 4
#: Golden vectors in the bundle's self-test.
BUNDLE_SAMPLES = 4


def main() -> int:
    """0 if the board's answers equal the reference interpreter's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", default="mps2_an500", help="default: %(default)s")
    args = parser.parse_args()

    # Late, so that Ctrl-C while they load is not a traceback.
    from utvm_deploy.cli.main import reported
    from utvm_deploy.cli.output import Output

    return reported(lambda: demonstrate(args.board), Output())


def demonstrate(board_name: str) -> int:
    """The demo itself."""
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress as Bar

    import utvm_deploy
    from utvm_deploy.base.progress import no_progress
    from utvm_deploy.bundling import write_bundle
    from utvm_deploy.frontend.tflite import load_model
    from utvm_deploy.oracle.reference import REFERENCE, run_reference
    from utvm_deploy.oracle.samples import load_golden
    from utvm_deploy.results.profiling.layer_costs import profile
    from utvm_deploy.results.profiling.summary import profile_summary

    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()

    board = utvm_deploy.load_board(board_name)
    console.rule(f"handwritten digits on {board.name}")
    console.print(board.description)
    samples = load_golden(HELD_OUT, load_model(MODEL))
    with np.load(HELD_OUT) as held_out:
        images, labels = held_out["images"], held_out["labels"]

    console.print(f"compiling {MODEL.name} ...")
    compiled = utvm_deploy.compile(MODEL, board)
    console.print("building the image, starting the board ...")
    bar = Bar(console=console, transient=True, disable=not console.is_terminal)
    with utvm_deploy.connect(board) as device, bar:
        model = device.load(compiled)
        task = bar.add_task("classifying on the device", total=len(images))
        answers = []
        for inputs in samples.inputs:
            (answer,), _ = model.run(inputs)
            answers.append(answer)
            bar.advance(task)
        cost = profile(model, samples, no_progress)
    console.print(f"running {REFERENCE} ...")
    reference = run_reference(MODEL, samples.inputs)
    expected = np.array([outputs[0] for outputs in reference.outputs])
    got = np.array(answers)

    predictions = got.reshape(len(images), -1).argmax(axis=1)
    wrong = np.flatnonzero(predictions != labels)
    show = [*range(SHOWN - 1), *wrong[:1]]
    draw(console, images[show], labels[show], predictions[show])
    right = int((predictions == labels).sum())
    theirs = int((expected.reshape(len(images), -1).argmax(axis=1) == labels).sum())
    equal = np.array_equal(got, expected)
    console.print(f"accuracy on {board.name}: {right} of {len(images)} ({right / len(images):.2%})")
    console.print(f"accuracy of {REFERENCE}: {theirs} of {len(images)}")
    console.print(f"outputs: {got.size:,} bytes, {'all equal' if equal else 'NOT EQUAL'}")
    console.print(latency(cost))
    console.print(
        f"RAM: {cost.ram_bytes:,} bytes, of which arena {cost.arena_bytes:,}; "
        f"flash: {cost.flash_bytes:,} bytes, of which weights {cost.weights_bytes:,}"
    )
    if not equal:
        return 1

    few = range(BUNDLE_SAMPLES)
    BUNDLE.parent.mkdir(exist_ok=True)
    path = write_bundle(
        compiled,
        board,
        MODEL,
        BUNDLE,
        inputs=[samples.inputs[i] for i in few],
        expected=[reference.outputs[i] for i in few],
        oracle=REFERENCE,
        report=profile_summary(cost),
    )
    console.print(f"firmware bundle: {path} (start with its README.md)")
    console.print(f"done in {time.monotonic() - began:.1f} s")
    return 0


def draw(console: Console, images: np.ndarray, labels: np.ndarray, predictions: np.ndarray) -> None:
    """The images side by side, with what the board read and, if that is wrong, what it is."""
    for row in range(images.shape[1]):
        lines = ("".join(shade(pixel) for pixel in image[row]) for image in images)
        console.print("  " + "   ".join(lines), markup=False)
    captions = (
        f"{p}" if p == label else f"{p}, is {label}"
        for p, label in zip(predictions, labels, strict=True)
    )
    console.print("  " + "   ".join(f"{'reads ' + text:<16}" for text in captions) + "\n")


def shade(pixel: int) -> str:
    """Two characters for one pixel: characters are about twice as high as wide."""
    return 2 * SHADES[int(pixel) * (len(SHADES) - 1) // 16]


def latency(cost: Profile) -> str:
    """One line: time for one image, and whether it was measured; else a count."""
    from utvm_deploy.results.profiling.summary import latency_line, profile_summary

    if cost.seconds is None:
        return f"{cost.ticks:,} {cost.tick_unit} for one image"
    return f"{latency_line(profile_summary(cost))}, {cost.ticks:,} {cost.unit_label} for one image"


if __name__ == "__main__":
    sys.exit(as_process(main))
