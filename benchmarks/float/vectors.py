"""Modelled cycles of float32 layers of a Relax module, with ``--float-math`` exact and fast.

    python benchmarks/float/vectors.py [--board BOARD] [--macs-per-cycle PEAK]

Prints a row for each layer. The peak is what vectors of four products, each in two cycles, give.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import utvm_deploy

#: Label -> shape of the input, of the filters [outputs, inputs of a group, rows, columns], stride;
#: of a dense layer its inputs and outputs.
CONVOLUTIONS = {
    "1x1, 16x16, 32 to 64": ((1, 32, 16, 16), (64, 32, 1, 1), 1),
    "1x1, 6x6, 128 to 128": ((1, 128, 6, 6), (128, 128, 1, 1), 1),
    "3x3, 16x16, 32 to 32": ((1, 32, 16, 16), (32, 32, 3, 3), 1),
    "3x3, 32x32, 3 to 16": ((1, 3, 32, 32), (16, 3, 3, 3), 1),
    "depthwise 3x3, 16x16, 32": ((1, 32, 16, 16), (32, 1, 3, 3), 1),
    "depthwise 3x3, stride 2, 16x16, 32": ((1, 32, 16, 16), (32, 1, 3, 3), 2),
    "3x3, 16x16, 16 to 2": ((1, 16, 16, 16), (2, 16, 3, 3), 1),
    "depthwise 5x5, 16x16, 32": ((1, 32, 16, 16), (32, 1, 5, 5), 1),
}
DENSE = {
    "dense, 256 to 128": (1, 256, 128),
    "dense, 64 to 10": (1, 64, 10),
    "dense, 16 rows, 64 to 64": (16, 64, 64),
}


def module() -> Any:
    """A module with all layers, each with an input, a bias and RELU."""
    from tvm import relax

    rng = np.random.default_rng(55)

    def weights(*shape: int) -> Any:
        return relax.const(rng.standard_normal(shape).astype(np.float32))

    shapes = [*(shape for shape, _, _ in CONVOLUTIONS.values())]
    shapes += [(rows, inputs) for rows, inputs, _ in DENSE.values()]
    sources = [
        relax.Var(f"x{n}", relax.TensorType(shape, "float32")) for n, shape in enumerate(shapes)
    ]
    op, builder, found = relax.op, relax.BlockBuilder(), []
    with builder.function("main", sources):
        with builder.dataflow():
            for source, (shape, filters, stride) in zip(
                sources, CONVOLUTIONS.values(), strict=False
            ):
                last: Any = op.nn.conv2d(
                    source,
                    weights(*filters),
                    padding=(filters[2] // 2, filters[3] // 2),
                    strides=(stride, stride),
                    groups=shape[1] // filters[1],
                )
                found.append(op.nn.relu(op.add(last, weights(1, filters[0], 1, 1))))
            for source, (_, inputs, outputs) in zip(
                sources[len(CONVOLUTIONS) :], DENSE.values(), strict=True
            ):
                last = op.add(op.matmul(source, weights(inputs, outputs)), weights(outputs))
                found.append(op.nn.relu(last))
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    return builder.finalize()


def layers(made: Any, board: str, float_math: str) -> list[tuple[int, int]]:
    """Products and modelled cycles of each layer with products, in the module's order."""
    compiled = utvm_deploy.compile(made, board, name="vectors", float_math=float_math)
    shapes = [one.shape for one in compiled.inputs]
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    with utvm_deploy.connect(board) as device:
        ticks = device.load(compiled).run_timed(inputs)
    pairs = zip(compiled.layers, ticks, strict=True)
    return [(layer.macs, cycles) for layer, cycles in pairs if layer.macs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", default="mps3_an547")
    parser.add_argument("--macs-per-cycle", type=float, default=2.0)
    args = parser.parse_args()
    made = module()
    found = [layers(made, args.board, float_math) for float_math in ("exact", "fast")]
    print("| layer | products | exact | a product | fast | a product | of the peak |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for label, exact, fast in zip([*CONVOLUTIONS, *DENSE], *found, strict=True):
        (macs, before), (_, after) = exact, fast
        share = macs / after / args.macs_per_cycle
        print(
            f"| {label} | {macs:,} | {before:,} | {before / macs:.2f} | {after:,} "
            f"| {after / macs:.2f} | {share:.0%} |"
        )


if __name__ == "__main__":
    main()
