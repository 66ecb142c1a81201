"""The gates of an LSTM in assembly: values of 16 bits as the C of the reference has them."""

from __future__ import annotations

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.device import INSTRUCTIONS
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.kernels.native.dsp.assembly.gates_code import gates_table, gates_text
from utvm_deploy.kernels.native.dsp.dense_six_outputs import SixOutputs, pack_bias
from utvm_deploy.kernels.native.dsp.lstm import gate_sums_text

pytestmark = pytest.mark.tools

# By input v / 2 + v / 2, rounded, and by hidden state 0: every value, and beyond. A cell is made of
# 4 v / 4, and shows what its tanh is more than that of the cell in the middle.
COUNT = """
void count_wrong(int32_t function, int32_t bits, int32_t pitch, const int32_t *table,
                 int32_t *wrong) {
    static const int32_t scaling[10] = {2, 32, 0, 1 << 30, 0, 1, 31, 1, 1 << 30, 1};
    int32_t of_cells[9] = {bits, 2, 2, INT32_MAX - 32768, INT32_MAX - 32767, 1 << 30, 1, 1, 0};
    for (int32_t first = -32768; first < 32768; first += pitch) {
        int32_t pairs[24] = {0}, kept[3], expected[3];
        int8_t shown[3];
        for (int32_t i = 0; i < 3; i++) {
            int32_t value = utvm_int16(first + i);
            pairs[2 * i] = value;
            pairs[2 * i + 1] = value;
            pairs[2 * i + 6] = i;
            pairs[2 * i + 12] = 4;
            pairs[2 * i + 18] = 4;
            kept[i] = 0;
            if (function != 2) {
                value = utvm_int16(value + utvm_requantize(value, 1 << 30, -1));
            }
            expected[i] = function == 0 ? utvm_logistic16(value)
                                        : utvm_tanh16(value, function == 1 ? 3 : bits + 2);
        }
        of_cells[8] = -expected[1];
        if (function == 2) {
            utvm_cells_run(pairs, 3, of_cells, table, kept, shown);
        } else {
            (function == 0 ? utvm_logistic_run : utvm_tanh_run)(pairs, 3, scaling, table);
        }
        for (int32_t i = 0; i < 3; i++) {
            const int32_t more = utvm_clamp(expected[i] - expected[1], -128, 127);
            const int32_t made = function == 2 ? kept[i] : pairs[2 * i];
            *wrong += made != (function == 2 ? utvm_int16(first + i) : expected[i]);
            *wrong += function == 2 && shown[i] != more;
        }
    }
}
"""


@pytest.mark.parametrize(
    ("on", "core", "pitch"),
    [("mps2_an500", "cortex-m7", 3), ("mps2_an386", "cortex-m4", 61), ("mps2_an385", "", 61)],
)
def test_values(on: str, core: str, pitch: int) -> None:
    texts = [gates_text(core or "cortex-m7", one) for one in ("logistic", "tanh", "cells")]
    text = "\n".join(["#include <stdint.h>", header(), shared_text("utvm_gates16"), *texts, COUNT])
    with utvm_deploy.connect(on, timing=INSTRUCTIONS) as device:
        module = device.load_module(text)
        table = device.tensor(gates_table())
        rare = ((2, bits, 61) for bits in (0, 1, 3, 4, 5))
        calls = [(0, 0, pitch), (1, 0, pitch), (2, 2, pitch), *rare]
        wrong = device.tensor(np.zeros(len(calls), np.int32))
        for number, call in enumerate(calls):
            place = wrong.address + 4 * number
            module["count_wrong"](*call, table.address, place, timeout_s=30)
        device.sync()
        np.testing.assert_array_equal(wrong.numpy(), 0)


SUMS = """
void sums(const int8_t *vector, int16_t *wide, const int8_t *weights, const int32_t *bias,
          int32_t *output, int32_t inputs, int32_t padded, int32_t outputs) {
    utvm_gate_sums_STEP(vector, wide, weights, bias, output, inputs, padded, outputs);
}
"""


@pytest.mark.parametrize("on", ["mps2_an500", "mps2_an385"])
def test_sums(on: str) -> None:
    rng = np.random.default_rng(5)
    with utvm_deploy.connect(on, timing=INSTRUCTIONS) as device:
        for step, rows, inputs in ((4, 6, 5), (8, 42, 28), (16, 12, 16)):
            text = ["#include <stdint.h>", header(), gate_sums_text("cortex-m7", step)]
            product = SixOutputs(per_channel=False, step=step, preload=False)
            weights = rng.integers(-128, 128, (rows, inputs)).astype(np.int8)
            bias = rng.integers(-(2**31), 2**31, rows).astype(np.int32)
            vector = rng.integers(-128, 128, inputs).astype(np.int8)
            padded = product.padded(inputs)
            made = np.zeros(2 * rows, np.int32)
            buffers = [
                device.tensor(one)
                for one in (
                    vector,
                    np.zeros(padded, np.int16),
                    product.pack_weights(weights),
                    pack_bias(bias),
                    made,
                )
            ]
            with device.load_module("\n".join([*text, SUMS.replace("STEP", str(step))])) as module:
                module["sums"](*(one.address for one in buffers), inputs, padded, rows)
                device.sync()
            made[::2] = weights.astype(np.int32) @ vector + bias
            np.testing.assert_array_equal(buffers[-1].numpy(), made)
