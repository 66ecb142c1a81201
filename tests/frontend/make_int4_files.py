"""Makes the files ``int4_*`` beside this script: weights of int4 by other people's tools.

    python tests/frontend/make_int4_files.py converter       # needs tensorflow; 2.21 made them
    python tests/frontend/make_int4_files.py quantizer       # needs ai-edge-quantizer; 0.10
    python tests/frontend/make_int4_files.py torchao         # needs torch and torchao; 0.18

The converter writes the float model, too, from which the quantizer makes its files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FLOAT = HERE / "int4_float.tflite"
SHAPE = (1, 4, 4, 4)
#: Scales of weights, whose integers are from -7 to 7.
STEP = 0.25


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.integers(-7, 8, shape) * STEP).astype(np.float32)


def converter() -> None:
    """A float model, and the same with fake-quantized weights of four bits."""
    import tensorflow as tf

    rng = np.random.default_rng(4)
    tables = [weights(rng, *one) for one in ((3, 3, 4, 8), (3, 3, 8, 1), (128, 32), (32, 10))]
    biases = [rng.normal(size=one).astype(np.float32) for one in (8, 8, 32, 10)]

    def network(is_quantized: bool) -> Any:
        def stored(table: np.ndarray) -> Any:
            if not is_quantized:
                return tf.constant(table)
            limits = {"min": -7 * STEP, "max": 7 * STEP, "num_bits": 4, "narrow_range": True}
            return tf.quantization.fake_quant_with_min_max_args(tf.constant(table), **limits)

        def ranged(x: Any) -> Any:
            if not is_quantized:
                return x
            return tf.quantization.fake_quant_with_min_max_args(x, min=-32, max=31.75, num_bits=8)

        def call(x: Any) -> Any:
            y = tf.nn.conv2d(ranged(x), stored(tables[0]), 1, "SAME") + biases[0]
            y = ranged(tf.nn.relu(y))
            y = tf.nn.depthwise_conv2d(y, stored(tables[1]), [1] * 4, "SAME") + biases[1]
            y = tf.reshape(ranged(y), (1, 128))
            y = ranged(tf.nn.relu(tf.matmul(y, stored(tables[2])) + biases[2]))
            return ranged(tf.matmul(y, stored(tables[3])) + biases[3])

        return tf.function(call, input_signature=[tf.TensorSpec(SHAPE, name="x")])

    for is_quantized, path in ((False, FLOAT), (True, HERE / "int4_converter.tflite")):
        module = tf.Module()
        module.call = network(is_quantized)
        function = module.call.get_concrete_function()
        made = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
        if is_quantized:
            made.optimizations = [tf.lite.Optimize.DEFAULT]
            made._experimental_low_bit_qat = True
        path.write_bytes(made.convert())


def quantizer() -> None:
    """Static, dynamic and weight-only quantization."""
    from ai_edge_quantizer import quantizer as tool
    from ai_edge_quantizer import recipe

    rng = np.random.default_rng(5)
    samples = [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(8)]

    def of_four_bits(made: Any) -> Any:
        for one in made:
            one["op_config"]["weight_tensor_config"]["num_bits"] = 4
        return made

    recipes = {
        "static": of_four_bits(recipe.static_wi8_ai8()),
        "static_ai16": of_four_bits(recipe.static_wi8_ai16()),
        "weight_only": recipe.weight_only_wi4_afp32(),
        "dynamic": recipe.dynamic_wi4_afp32(),
        "dynamic_blocks": recipe.dynamic_wi4b32_afp32(),
        "int2": recipe.dynamic_wi2c_afp32(),
    }
    for name, one in recipes.items():
        made = tool.Quantizer(str(FLOAT))
        made.load_quantization_recipe(one)
        known = made.calibrate({"serving_default": samples}) if made.need_calibration else None
        result = made.quantize(known).quantized_model
        (HERE / f"int4_{name}.tflite").write_bytes(bytes(result))


def torchao() -> None:
    """Linear layers with scales of channels and of blocks; activations are float32 or dynamic."""
    import torch
    from torchao import quantization as ao

    x, four = torch.zeros(1, 32), vars(torch)["int4"]
    configs = {
        "torchao_blocks": ao.IntxWeightOnlyConfig(four, ao.PerGroup(16)),
        "torchao_dynamic": ao.Int8DynamicActivationIntxWeightConfig(four, ao.PerAxis(0)),
    }
    for name, config in configs.items():
        torch.manual_seed(4)
        net = torch.nn.Sequential(
            torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
        ).eval()
        ao.quantize_(net, config)
        torch.export.save(torch.export.export(net, (x,)), HERE / f"int4_{name}.pt2")


if __name__ == "__main__":
    {"converter": converter, "quantizer": quantizer, "torchao": torchao}[sys.argv[1]]()
