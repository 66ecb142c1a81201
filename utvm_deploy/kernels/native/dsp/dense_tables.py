"""Tables of fully connected layers in the order in which ``dense_code.py`` reads them.

wide     int16 [quad][phase][lane], k = 4 q + 2 l + f
weights  int8  [group: six outputs, then two][quad][phase][pair of outputs][lane][a + 128, b]
     a last group has in each quad, behind its pairs, the odd output's [lane][phase]
bias     int32 [two outputs][bias of a + 256 bias of b, bias of b]
scaling  int32 [1, or outputs filled up to pairs][multiplier, low and high word of the offset,
         shift - 32]
"""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.model import Array

OUTPUTS = 6
PAIR = 2
# Layers of fewer outputs gain more than 1 % by a last group.
_MOST_WITH_TAIL = 36
#: The vector is padded with zeros to a multiple of the inner loop's step.
STEPS = (16, 8)
#: The loop's loads run ahead by two words of weights.
SLACK_BYTES = 8


def groups_of(outputs: int) -> tuple[int, int]:
    """How many times six outputs, and how many pairs."""
    return outputs // OUTPUTS, -(-(outputs % OUTPUTS) // PAIR)


def filled(outputs: int) -> int:
    """Outputs that tables have entries for."""
    return -(-outputs // PAIR) * PAIR


def pack_weights(weights: Array, step: int, tail: int) -> Array:
    """[outputs, inputs] -> the layout above, with slack."""
    outputs, inputs = weights.shape
    padded = padded_inputs(inputs, step)
    whole = groups_of(outputs)[0] * OUTPUTS
    full = np.zeros((filled(outputs), padded), dtype=np.int8)
    full[:outputs, :inputs] = weights
    parts = [_paired(full[:whole], OUTPUTS)]
    if tail:
        even = whole + tail // 2 * 2
        pairs = _paired(full[whole:even], even - whole).reshape(padded // 4, -1)
        parts.append(np.concatenate([pairs, full[even:outputs].reshape(padded // 4, -1)], axis=1))
    else:
        parts.append(_paired(full[whole:], PAIR))
    flat = [part.reshape(-1) for part in parts]
    return np.concatenate([*flat, np.zeros(SLACK_BYTES, dtype=np.int8)])


def _paired(rows: Array, size: int) -> Array:
    """Groups of so many outputs, an even number, in the layout above."""
    if not rows.size:
        return rows
    # group, pair, side, quad, lane, phase -> group, quad, phase, pair, lane, side
    split = rows.reshape(-1, size // 2, 2, rows.shape[1] // 4, 2, 2).transpose(0, 3, 5, 1, 4, 2)
    pairs: Array = split.reshape(-1, 2)
    pairs[:, 0] = np.bitwise_xor(pairs[:, 0], np.int8(-128))
    return pairs


def pack_bias(bias: Array) -> Array:
    """What the accumulators start with, so that a's is right when 256 b is taken off."""
    full = np.zeros((filled(bias.size) // PAIR, PAIR), dtype=np.int64)
    full.reshape(-1)[: bias.size] = bias
    full[:, 0] += 256 * full[:, 1]
    wrapped: Array = full.reshape(-1).astype(np.uint32).view(np.int32)
    return wrapped


def padded_inputs(inputs: int, step: int) -> int:
    """Inputs that the inner loop does."""
    return -(-inputs // step) * step


def best_step(inputs: int) -> int:
    """The longest step that pads least."""
    return min(STEPS, key=lambda step: padded_inputs(inputs, step))


def best_tail(outputs: int) -> int:
    """Outputs of the last group by default: where there are so many, it makes no difference."""
    tail = outputs % OUTPUTS
    return tail if tail != PAIR and outputs < _MOST_WITH_TAIL else 0
