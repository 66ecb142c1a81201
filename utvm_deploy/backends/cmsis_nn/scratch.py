"""How much scratch CMSIS-NN's functions want: the arithmetic of its get_buffer_size family.

The library answers only on the device, and the arena is planned here, so the sums are computed
again. They are a forecast: the generated C asks the library itself at start-up
(``NAME_check_library``), and may get less, never more.
"""

from __future__ import annotations

from collections.abc import Sequence

from utvm_deploy.backends import Window
from utvm_deploy.backends.cmsis_nn.library import MURISCV_NN, CmsisNn

_INT16_BYTES = 2
_INT32_BYTES = 4
# The Helium kernels take 16 bytes at a time, convolutions 4 columns, depthwise ones 124 channels.
_MVE_LANES = 16
_MVE_COLUMNS = 4
_MVE_DEPTHWISE_CHANNELS = 124
# The vector kernels of muRISCV-NN take 4 columns, and 8 bytes at a time.
_VECTOR_BYTES = 8
# Transposed convolutions of more channels, and of small strides, are convolutions of the input
# with zeros between its pixels; weights in reverse.
_TRANSPOSED_CHANNELS = 16
_TRANSPOSED_STRIDE = 2
# Depthwise convolutions of int16 with fewer taps take the fast kernel, whose Helium variant reads a
# few bytes too far.
_INT16_DEPTHWISE_TAPS = 512
_INT16_DEPTHWISE_BEYOND = 8


def convolution(
    library: CmsisNn, window: Window, channels: int, groups: int = 1, *, is_int16: bool = False
) -> int:
    """arm_convolve_wrapper_s8, or of int16 _s16."""
    column = window.kernel[0] * window.kernel[1] * channels
    if is_int16:
        if library.has_mve:
            return _MVE_COLUMNS * _round_up(column * _INT16_BYTES, _MVE_LANES)
        return 2 * column * _INT16_BYTES
    is_plain = not window.is_padded and window.dilations == (1, 1) and groups == 1
    if window.kernel == (1, 1) and is_plain and _has_1x1(library, window, channels):
        # Only with armclang the 1x1 kernel without strides expands two columns.
        expands = library.is_armclang and not library.has_mve and window.strides == (1, 1)
        return 2 * channels * _INT16_BYTES if expands else 0
    general = _columns(library, column)
    if not library.has_mve:
        return general
    # Its 1xN kernel copies one window together with the border.
    row = (window.kernel[1] + window.left + 1) * channels
    return max(general, row if window.height == 1 and groups == 1 else 0)


def _has_1x1(library: CmsisNn, window: Window, channels: int) -> bool:
    """Whether a kernel for 1x1 takes this shape; muRISCV-NN has one for some shapes only."""
    return library.product != MURISCV_NN or (window.strides == (1, 1) and channels % 4 == 0)


def transpose_convolution(
    library: CmsisNn,
    image: Sequence[int],
    outputs: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
) -> tuple[int, int]:
    """arm_transpose_conv_wrapper_s8: its sums or columns, and its weights in reverse.

    ``image`` is [batch, rows, columns, channels].
    """
    rows, columns = kernel
    channels = image[3]
    if max(strides) <= _TRANSPOSED_STRIDE and channels > _TRANSPOSED_CHANNELS:
        taps = rows * columns * channels
        return _round_up(_columns(library, taps), 8), taps * outputs
    # It takes the vertical stride for the horizontal one here.
    across = (image[2] - 1) * strides[1] + max(columns, *strides)
    return across * outputs * max(rows, strides[0]) * _INT32_BYTES, 0


def depthwise(
    library: CmsisNn, window: Window, channels: int, outputs: int, *, is_int16: bool = False
) -> int:
    """arm_depthwise_conv_wrapper_s8, or of int16 _s16."""
    taps = window.kernel[0] * window.kernel[1]
    if is_int16:
        is_fast = (
            window.dilations == (1, 1) and channels == outputs and taps < _INT16_DEPTHWISE_TAPS
        )
        columns, beyond = (_MVE_COLUMNS, _INT16_DEPTHWISE_BEYOND) if library.has_mve else (1, 0)
        return columns * channels * taps * _INT16_BYTES + beyond if is_fast else 0
    is_single = window.batch == 1 and window.dilations == (1, 1) and channels == outputs
    if library.has_vectors:
        return 4 * _MVE_DEPTHWISE_CHANNELS * taps if is_single else 0
    if library.has_mve:
        if channels == 1:
            # It may become a convolution, whose weights are transposed into scratch.
            as_convolution = convolution(library, window, channels) + taps * outputs
            return max(as_convolution, _columns(library, taps) + taps * outputs)
        return 4 * _MVE_DEPTHWISE_CHANNELS * taps if is_single else 0
    if not is_single or (window.kernel == (3, 3) and window.top <= 1 and window.left <= 1):
        return 0
    return channels * taps * _INT16_BYTES


def dense(library: CmsisNn, outputs: int) -> int:
    """arm_fully_connected_s8, where the caller gives no sums: what it asks for and never reads."""
    return _INT32_BYTES * outputs if library.has_vectors else 0


def average_pool(library: CmsisNn, channels: int) -> int:
    """arm_avgpool_s8 and arm_avgpool_s16."""
    return 0 if library.has_mve or library.has_vectors else channels * _INT32_BYTES


def _columns(library: CmsisNn, taps: int) -> int:
    """arm_convolve_s8: the part of the image for a few outputs."""
    if library.has_vectors:
        return 4 * _round_up(taps, _VECTOR_BYTES)
    if library.has_mve:
        return _MVE_COLUMNS * _round_up(taps, _MVE_LANES)
    return 2 * _round_up(taps, 4) * _INT16_BYTES


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
