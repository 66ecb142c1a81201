"""How much working memory CMSIS-NN's functions want: the arithmetic of its get_buffer_size family.

The library answers only on the device, and the arena is planned here, so the sums are done again.
They are a forecast: the generated C asks the library itself at start-up (``NAME_check_library``),
and may get less, never more.
"""

from __future__ import annotations

from utvm_deploy.compiler.cmsis_nn.library import CmsisNn
from utvm_deploy.kernels.window import Window

_INT16_BYTES = 2
_INT32_BYTES = 4
# The Helium kernels take 16 bytes at a time, convolutions 4 columns, depthwise ones 124 channels.
_MVE_LANES = 16
_MVE_COLUMNS = 4
_MVE_DEPTHWISE_CHANNELS = 124


def convolution(library: CmsisNn, window: Window, channels: int) -> int:
    """arm_convolve_wrapper_s8."""
    is_plain = not window.is_padded and window.dilations == (1, 1)
    if window.kernel == (1, 1) and is_plain:
        # Only with armclang the 1x1 kernel without strides expands two columns.
        expands = library.is_armclang and not library.has_mve and window.strides == (1, 1)
        return 2 * channels * _INT16_BYTES if expands else 0
    column = window.kernel[0] * window.kernel[1] * channels
    if not library.has_mve:
        return 2 * _round_up(column, 4) * _INT16_BYTES
    general = _MVE_COLUMNS * _round_up(column, _MVE_LANES)
    # Its 1xN kernel copies one window with the border beside it.
    row = (window.kernel[1] + window.left + 1) * channels
    return max(general, row if window.height == 1 else 0)


def depthwise(library: CmsisNn, window: Window, channels: int, outputs: int) -> int:
    """arm_depthwise_conv_wrapper_s8."""
    taps = window.kernel[0] * window.kernel[1]
    is_single = window.batch == 1 and window.dilations == (1, 1) and channels == outputs
    if library.has_mve:
        if channels == 1:
            # It may become a convolution, whose weights are transposed into scratch.
            as_convolution = convolution(library, window, channels) + taps * outputs
            return max(as_convolution, _MVE_COLUMNS * _round_up(taps, _MVE_LANES) + taps * outputs)
        return 4 * _MVE_DEPTHWISE_CHANNELS * taps if is_single else 0
    if not is_single or (window.kernel == (3, 3) and window.top <= 1 and window.left <= 1):
        return 0
    return channels * taps * _INT16_BYTES


def average_pool(library: CmsisNn, channels: int) -> int:
    """arm_avgpool_s8."""
    return 0 if library.has_mve else channels * _INT32_BYTES


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
