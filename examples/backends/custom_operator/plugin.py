"""A custom operator of a .tflite file: the median of neighbours along the second dimension.

    utvm verify model.tflite --board mps2_an500 --plugin plugin.py

The converter wrote the operator "MedianFilter" with an option "window", an odd number. It filters
int8 tensors such as [1, time, channels]. At both ends the outermost value is repeated.
docs/guides/backends.md explains this file.
"""

from collections.abc import Sequence

import numpy as np
from flatbuffers import flexbuffers

from utvm_deploy.backends import (
    Array,
    Backend,
    CText,
    KernelCall,
    Match,
    Pattern,
    Tensor,
    TensorType,
    call,
)

C_TEXT = """\
// The median of the values around each position of a sequence. window is odd, and scratch has
// that many bytes.
static int32_t median_filter_s8(const int8_t *input, int32_t batch, int32_t steps, int32_t inner,
                                int32_t window, int8_t *scratch, int8_t *output) {
    for (int32_t i = 0; i < batch * steps * inner; i++) {
        const int32_t step = i / inner % steps;
        const int8_t *sequence = input + (i - step * inner);
        for (int32_t count = 0; count < window; count++) {
            int32_t at = step + count - window / 2;
            at = at < 0 ? 0 : at >= steps ? steps - 1 : at;
            const int8_t value = sequence[at * inner];
            // Insert it among those that are sorted already.
            int32_t place = count;
            for (; place > 0 && scratch[place - 1] > value; place--) {
                scratch[place] = scratch[place - 1];
            }
            scratch[place] = value;
        }
        output[i] = scratch[window / 2];
    }
    return 0;
}
"""


def window_of(options: bytes) -> int:
    """The option of the operator; the converter stores options as a FlexBuffer."""
    return int(flexbuffers.Loads(options)["window"])


def build(match: Match) -> KernelCall | str:
    """The call of the C function above."""
    batch, steps, *rest = match.first.source.shape
    window = window_of(match.options)
    inner = int(np.prod(rest))
    return call(
        match,
        "median_filter_s8",
        "return median_filter_s8(\n"
        f"    input_0, {batch}, {steps}, {inner}, {window}, scratch, output_0);",
        scratch_bytes=window,
    )


def infer(inputs: Sequence[Tensor | None], options: bytes) -> list[TensorType]:
    """The output has the input's shape and type."""
    (source,) = inputs
    if source is None or source.dtype != "int8" or len(source.shape) < 2:
        raise ValueError("MedianFilter takes one int8 tensor of two or more dimensions")
    if window_of(options) % 2 == 0:
        raise ValueError(f"MedianFilter has the even window {window_of(options)}")
    return [TensorType(source.shape, source.dtype)]


def reference(match: Match, inputs: Sequence[Array | None]) -> list[Array]:
    """The same with NumPy, for `utvm verify` and for the self-test of bundles."""
    (source,) = inputs
    assert source is not None
    window = window_of(match.options)
    edges = [(0, 0)] * source.ndim
    edges[1] = (window // 2, window // 2)
    padded = np.pad(source, edges, mode="edge")
    views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)
    return [np.median(views, axis=-1).astype(source.dtype)]


backend = Backend(
    name="Median filter",
    patterns=(Pattern(("CUSTOM MedianFilter",), build, reference, infer),),
    code=CText(C_TEXT),
)
