"""Modelled cycles of layers of a Relax module: float32, ``--float-math fast``, and float16.

    python benchmarks/float/vectors.py [--board BOARD]

Prints a row for each layer: cycles, and those of a product. The peak is what vectors give, each in
two cycles: of four products of float32, or of eight of float16.
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


#: Products in a cycle, of float32 and of float16.
PEAKS = (2.0, 4.0)


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


def layers(made: Any, board: str, **options: str) -> list[tuple[int, int]]:
    """Products and modelled cycles of each layer with products, in the module's order."""
    compiled = utvm_deploy.compile(made, board, name="vectors", **options)  # type: ignore[arg-type]
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
    args = parser.parse_args()
    made = module()
    forms: list[dict[str, str]] = [
        {"float_math": "exact"},
        {"float_math": "fast"},
        {"number_format": "float16_arithmetic"},
    ]
    found = [layers(made, args.board, **form) for form in forms]
    print("| layer | products | exact | fast | of the peak | float16 | of the peak |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for label, *each in zip([*CONVOLUTIONS, *DENSE], *found, strict=True):
        macs = each[0][0]
        exact, fast, half = (f"{cycles:,} ({cycles / macs:.2f})" for _, cycles in each)
        of_fast, of_half = (
            f"{macs / cycles / peak:.0%}" for (_, cycles), peak in zip(each[1:], PEAKS, strict=True)
        )
        print(f"| {label} | {macs:,} | {exact} | {fast} | {of_fast} | {half} | {of_half} |")


if __name__ == "__main__":
    main()
