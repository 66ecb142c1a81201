"""The routine of fully connected layers: six outputs at a time, each weight is read once.

The routine widens the vector to int16 first, for all outputs. Without scratch, it widens each word
again for each group of outputs (``is_direct``). A pair of outputs shares words of weights, and one
SXTB16 for each word. The halfwords of a word are 256 b + a + 128, where a and b are weights of the
two outputs. Multiplied as they are, they sum up to 256 B + A + 128 X: A and B are the wanted sums,
X is the sum of the inputs. The high bytes, extracted, give B; A is the rest. Outputs beyond the
groups of six are computed in pairs, or together as one last group. An odd output of the last group
is multiplied by itself.

Weights of int4 are halves of bytes, 16 b + a + 8. Bytes as they are sum up to 16 B + A + 8 X, and
their lower halves to A + 8 X. What is scaled are 16 A and 16 B.

Layouts, for input k = 4 quad + 2 lane + phase:
    wide     int16 [quad][phase][lane], zeros beyond the inputs
    weights  int8  [group of six outputs, then of two][quad][phase][pair][lane][a + 128, b]
             a last group has the odd output's [lane][phase] after the pairs of each quad
    bias     int32 [pair][bias of a + 256 bias of b, bias of b]
and of int4, without a last group:
    weights  int8  [group of six outputs, then of two][quad][pair][input of the quad]
    bias     int32 [pair][bias of a, 16 bias of b + bias of a]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.native.dense import DenseRoutine, pack_scales
from utvm_deploy.kernels.native.dsp.assembly.dense_six_code import six_outputs_text
from utvm_deploy.kernels.native.dsp.assembly.dense_six_products import OUTPUTS, PAIR, SixOutputsForm
from utvm_deploy.kernels.native.layer_tables import DenseTables
from utvm_deploy.kernels.native.micro_kernel import HALVES_OFFSET

#: Inputs of a turn of the inner loop; the vector is filled up with zeros to a multiple of them.
STEPS = (16, 8)
#: The inner loop loads two words of weights beyond those that it needs.
_SLACK_BYTES = 8
#: Sixteen times a sum with weights of int4, and another sum, fit 32 bits.
HALVES_LIMIT = 1 << 26
#: With weights of int4, whose scales are often larger, multiples of the sums are scaled.
HALVES_FACTOR = 16
_PARAMETERS = """
    const int8_t *vector, int16_t *wide, const int8_t *weights, const int32_t *bias,
    const int32_t *scaling, int32_t scaling_step, const int32_t *limits, int8_t *output,
    int32_t inputs, int32_t padded, int32_t outputs
"""
_DIRECT_PARAMETERS = """
    const int8_t *vector, const int8_t *weights, const int32_t *bias, const int32_t *scaling,
    int32_t scaling_step, const int32_t *limits, int8_t *output, int32_t padded, int32_t outputs
"""


@dataclass(frozen=True)
class SixOutputs(DenseRoutine):
    """The routine, and what its code depends on."""

    step: int  # inputs of a turn of the inner loop
    preload: bool  # weights are preloaded into the cache
    tail: int = 0  # outputs of the last group; 0: what does not fill six is done in pairs
    is_direct: bool = False  # no scratch; the inputs are a multiple of ``step``
    halves: bool = False  # the weights are int4

    labels = ("dsp", "per_channel_dsp")

    @property
    def label(self) -> str:
        return f"{super().label}{'_int4' if self.halves else ''}"

    @property
    def parameters(self) -> str:
        return _DIRECT_PARAMETERS if self.is_direct else _PARAMETERS

    @property
    def why(self) -> str:
        how = ", no scratch" if self.is_direct else ""
        return f"DSP assembly, {OUTPUTS} outputs in registers, weights streamed once{how}"

    @property
    def function(self) -> str:
        channels = "_channels" if self.per_channel else ""
        tail = f"_and_{self.tail}" if self.tail else ""
        how = f"{'_preload' if self.preload else ''}{'_direct' if self.is_direct else ''}"
        weights = "_int4" if self.halves else ""
        return f"utvm_dense_{self.step}{channels}{how}{tail}{weights}"

    def text(self, core: str) -> str:
        how = self.per_channel, self.step, self.preload, self.tail, self.is_direct
        form = SixOutputsForm(*how, halves=self.halves)
        return six_outputs_text(core, self.parameters, self.function, form)

    def padded(self, inputs: int) -> int:
        return -(-inputs // self.step) * self.step

    def scratch(self, inputs: int) -> tuple[Operand, ...]:
        if self.is_direct:
            return ()
        return (Operand("wide", (self.padded(inputs),), "int16"),)

    def pack(self, layer: DenseTables) -> dict[str, Array]:
        return {
            "weights": self.pack_weights(layer.weights),
            "bias": pack_bias(layer.bias, halves=self.halves),
            **pack_scales(layer, -(-layer.bias.size // PAIR) * PAIR),
        }

    def pack_weights(self, weights: Array) -> Array:
        """[outputs, inputs] -> the layout above, with slack."""
        outputs, inputs = weights.shape
        missing = 0 if self.tail else outputs % PAIR
        full = np.pad(weights, ((0, missing), (0, self.padded(inputs) - inputs)))
        groups = outputs // OUTPUTS
        sixes, pairs, odd = np.split(full, [OUTPUTS * groups, len(full) // PAIR * PAIR])
        if self.halves:
            of_groups = _halves(sixes, groups), _halves(pairs, len(pairs) // PAIR)
            return np.concatenate([*of_groups, np.zeros(_SLACK_BYTES, dtype=np.int8)])
        rest = _paired(pairs, 1 if self.tail else len(pairs) // PAIR)
        if self.tail % PAIR:
            rest = np.concatenate([rest, odd.reshape(-1, 4)], axis=1)
        slack = np.zeros(_SLACK_BYTES, dtype=np.int8)
        return np.concatenate([_paired(sixes, groups).reshape(-1), rest.reshape(-1), slack])


def pack_bias(values: Array, *, halves: bool = False) -> Array:
    """[outputs] -> the layout above; ``halves``: for weights of int4."""
    bias = np.zeros((-(-values.size // PAIR), PAIR), dtype=np.int64)
    bias.reshape(-1)[: values.size] = values
    if halves:
        bias[:, 1] = 16 * bias[:, 1] + bias[:, 0]
    else:
        bias[:, 0] += 256 * bias[:, 1]
    packed: Array = bias.reshape(-1).astype(np.uint32).view(np.int32)
    return packed


def _halves(rows: Array, groups: int) -> Array:
    """[outputs, inputs] of int4 -> their bytes, in the layout above."""
    quads = rows.shape[1] // 4
    # group, pair, side, quad, input of it -> side, group, quad, pair, input
    split = rows.reshape(groups, -1, 2, quads, 4) if groups else rows.reshape(0, 1, 2, quads, 4)
    low, high = split.transpose(2, 0, 3, 1, 4)
    packed: Array = (high << 4 | low + HALVES_OFFSET).astype(np.int8).reshape(-1)
    return packed


def _paired(rows: Array, groups: int) -> Array:
    """[outputs, inputs] -> [group and quad, weights of the quad], in the layout above."""
    pairs, quads = len(rows) // max(groups, 1) // PAIR, rows.shape[1] // 4
    # group, pair, side, quad, lane, phase -> group, quad, phase, pair, lane, side
    split = rows.reshape(groups, pairs, 2, quads, 2, 2).transpose(0, 3, 5, 1, 4, 2)
    flipped: Array = split ^ np.array([-128, 0], np.int8)  # a + 128
    return flipped.reshape(groups * quads, 8 * pairs)
