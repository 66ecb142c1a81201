"""Writes small model files as the converters of others write them: TensorFlow, PyTorch, quantizers.

    python benchmarks/converters/make.py FOLDER

It writes those whose packages are installed, each in a child process: some converters crash. What
TensorFlow wrote is kept, so two environments may write into one folder. ai-edge-quantizer reads
TensorFlow's files there. The packages: tensorflow; torch, torchao, onnx, onnxruntime and
onnxscript; ai-edge-quantizer. ``table.py`` judges the files.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

IMAGE, SERIES = (1, 16, 16, 3), (1, 12, 6)
CALIBRATION = 16
TIMEOUT_S = 300


@dataclass(frozen=True)
class Maker:
    """One file: its name, the packages it takes, and what returns or writes it."""

    file: str
    packages: tuple[str, ...]
    make: Callable[[Path], bytes | None]


def samples(shape: Sequence[int]) -> Iterator[np.ndarray[Any, Any]]:
    """Inputs to calibrate with."""
    rng = np.random.default_rng(1)
    for _ in range(CALIBRATION):
        yield rng.standard_normal(tuple(shape)).astype(np.float32)


# TensorFlow and Keras 3


def keras_network(kind: str) -> Any:
    """A small Keras model of this kind."""
    keras = importlib.import_module("keras")
    layers = keras.layers
    keras.utils.set_random_seed(1)
    shape = IMAGE if kind in ("cnn", "resnet", "mobilenet_v3", "unet") else SERIES
    x = start = keras.Input(shape[1:], batch_size=1)
    if kind == "cnn":
        x = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
        x = layers.DepthwiseConv2D(3, strides=2, padding="same")(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.Softmax()(layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))
    elif kind == "resnet":
        x = layers.Conv2D(8, 3, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(x)))
        x = layers.ReLU()(layers.Add()([x, layers.Conv2D(8, 3, padding="same")(y)]))
        x = layers.Dense(4)(layers.Flatten()(layers.AveragePooling2D(4)(x)))
    elif kind == "mobilenet_v3":
        x = y = layers.Conv2D(8, 3, strides=2, padding="same", activation="hard_silu")(x)
        y = layers.Conv2D(2, 1, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(y))
        x = layers.Multiply()([x, layers.Conv2D(8, 1, activation="hard_sigmoid")(y)])
        x = layers.Dense(4)(layers.GlobalAveragePooling2D()(x))
    elif kind == "unet":
        x = kept = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(8, 3, padding="same", activation="elu")(layers.MaxPooling2D()(x))
        x = layers.Concatenate()([kept, layers.Conv2DTranspose(4, 2, strides=2)(x)])
        x = layers.Conv2D(2, 1)(layers.UpSampling2D(2, interpolation="bilinear")(x))
    elif kind == "tcn":
        for rate in (1, 2):
            x = layers.Conv1D(8, 3, dilation_rate=rate, padding="causal", activation="swish")(x)
        x = layers.Dense(3)(layers.GlobalMaxPooling1D()(x))
    elif kind == "mha":
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, x)]))
        x = layers.Dense(3)(layers.Flatten()(layers.Dense(8, activation="gelu")(x)))
    else:
        cells = {
            "lstm": layers.LSTM(8),
            "gru": layers.GRU(8),
            "rnn": layers.SimpleRNN(8),
            "bilstm": layers.Bidirectional(layers.LSTM(8)),
            "lstm_unrolled": layers.LSTM(8, unroll=True),
        }
        x = layers.Dense(3)(cells[kind](x))
    return keras.Model(start, x)


def from_keras(kind: str, scheme: str) -> bytes:
    """What TensorFlow's converter makes of a Keras model."""
    tf: Any = importlib.import_module("tensorflow")
    network = keras_network(kind)
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    if scheme != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if scheme == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if scheme in ("int8", "int16x8"):
        sets = tf.lite.OpsSet
        converter.representative_dataset = lambda: ([x] for x in samples(network.input_shape))
        converter.target_spec.supported_ops = [
            sets.TFLITE_BUILTINS_INT8
            if scheme == "int8"
            else sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
        kind_of_ends = tf.int8 if scheme == "int8" else tf.int16
        converter.inference_input_type = converter.inference_output_type = kind_of_ends
    return bytes(converter.convert())


def from_function(kind: str) -> bytes:
    """What TensorFlow's converter makes of a function with a loop."""
    tf: Any = importlib.import_module("tensorflow")
    weights = tf.constant(np.random.default_rng(1).standard_normal((4, 4)) * 0.4, tf.float32)

    def scan(x: Any) -> Any:
        return tf.scan(lambda a, b: tf.tanh(a @ weights + b), x, initializer=tf.zeros((1, 4)))

    def branches(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            even = tf.equal(i % 2, 0)
            return i + 1, tf.cond(even, lambda: tf.tanh(x @ weights), lambda: x * 2.0)

        return tf.while_loop(lambda i, x: i < 4, step, [tf.constant(0), x])[1]

    def until(x: Any) -> Any:
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: (x * 2 + 1,), [x])[0]

    shape = (5, 1, 4) if kind == "scan" else (1, 4)
    function = {"scan": scan, "branches": branches, "until": until}[kind]
    traced = tf.function(function, input_signature=[tf.TensorSpec(shape, tf.float32)])
    made = tf.lite.TFLiteConverter.from_concrete_functions([traced.get_concrete_function()])
    return bytes(made.convert())


# ai-edge-quantizer


def by_aeq(source: str, recipe: str) -> Callable[[Path], bytes | None]:
    """A float .tflite file of the folder, quantized by a recipe of the package."""

    def make(folder: Path) -> bytes:
        quantizer: Any = importlib.import_module("ai_edge_quantizer.quantizer")
        recipes: Any = importlib.import_module("ai_edge_quantizer.recipe")
        made = quantizer.Quantizer(str(folder / source), getattr(recipes, recipe)())
        result = None
        if made.need_calibration:
            interpreter: Any = importlib.import_module("ai_edge_litert.interpreter")
            runner = interpreter.Interpreter(str(folder / source)).get_signature_runner()
            ((name, detail),) = runner.get_input_details().items()
            data = [{name: x} for x in samples(detail["shape"])]
            result = made.calibrate({"serving_default": data})
        return bytes(made.quantize(result).quantized_model)

    return make


# PyTorch


def torch_network(kind: str) -> tuple[Any, Any]:
    """A small module in evaluation mode, and an example input."""
    torch: Any = importlib.import_module("torch")
    nn = torch.nn
    torch.manual_seed(1)
    image, series = torch.randn(1, 3, 16, 16), torch.randn(1, 12, 6)

    class Last(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, cell: Any) -> None:
            super().__init__()
            self.cell, self.head = cell, nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.cell(x)[0][:, -1])

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.norm, self.head = nn.LayerNorm(6), nn.Sequential(nn.Linear(6, 3), nn.GELU())

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(x + self.attention(x, x, x)[0]))

    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    networks: Mapping[str, tuple[Any, Any]] = {
        "cnn": (cnn, image),
        "lstm": (Last(nn.LSTM(6, 8, batch_first=True)), series),
        "gru": (Last(nn.GRU(6, 8, batch_first=True)), series),
        "attention": (Attention(), series),
    }
    network, example = networks[kind]
    return network.eval(), example


def to_onnx(kind: str, *, is_traced: bool) -> Callable[[Path], bytes | None]:
    """An ONNX file by one of PyTorch's exporters: that of TorchScript, or of torch.export."""

    def make(folder: Path) -> None:
        torch: Any = importlib.import_module("torch")
        network, example = torch_network(kind)
        file = folder / f"torch_{kind}_{'script' if is_traced else 'dynamo'}.onnx"
        options = {} if is_traced else {"external_data": False}
        torch.onnx.export(network, (example,), str(file), dynamo=not is_traced, **options)

    return make


def exported(kind: str) -> Callable[[Path], bytes | None]:
    """A float .pt2 file."""

    def make(folder: Path) -> None:
        torch: Any = importlib.import_module("torch")
        network, example = torch_network(kind)
        torch.export.save(torch.export.export(network, (example,)), folder / f"torch_{kind}.pt2")

    return make


def by_torchao(kind: str, quantizer: str) -> Callable[[Path], bytes | None]:
    """A .pt2 file that torchao quantized."""

    def make(folder: Path) -> None:
        torch: Any = importlib.import_module("torch")
        pt2e: Any = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
        network, example = torch_network(kind)
        if quantizer == "xnnpack":
            module: Any = importlib.import_module("torchao.testing.pt2e._xnnpack_quantizer")
            chosen = module.XNNPACKQuantizer().set_global(
                module.get_symmetric_quantization_config(is_per_channel=True)
            )
        else:
            module = importlib.import_module(
                "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
            )
            config = module.get_default_x86_inductor_quantization_config()
            chosen = module.X86InductorQuantizer().set_global(config)
        exported_one = torch.export.export(network, (example,)).module()
        prepared = pt2e.prepare_pt2e(exported_one, chosen)
        for x in samples(example.shape):
            prepared(torch.from_numpy(x))
        made = torch.export.export(pt2e.convert_pt2e(prepared), (example,))
        torch.export.save(made, folder / f"torchao_{kind}_{quantizer}.pt2")

    return make


# onnxruntime's quantizers


def by_onnxruntime(kind: str, scheme: str) -> Callable[[Path], bytes | None]:
    """A file of PyTorch's exporter, quantized."""

    def make(folder: Path) -> None:
        ort: Any = importlib.import_module("onnxruntime.quantization")
        source = folder / f"torch_{kind}_script.onnx"
        target = str(folder / f"ort_{kind}_{scheme}.onnx")
        if scheme == "dynamic":
            ort.quantize_dynamic(str(source), target)
            return
        example = torch_network(kind)[1]
        onnx: Any = importlib.import_module("onnx")
        name = onnx.load(str(source)).graph.input[0].name

        class Reader(ort.CalibrationDataReader):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                self.left = [{name: x} for x in samples(example.shape)]

            def get_next(self) -> Any:
                return self.left.pop() if self.left else None

        types = ort.QuantType
        ort.quantize_static(
            str(source),
            target,
            Reader(),
            quant_format=ort.QuantFormat.QOperator
            if scheme == "qoperator"
            else ort.QuantFormat.QDQ,
            activation_type=types.QInt16 if scheme == "int16x8" else types.QInt8,
            weight_type=types.QInt8,
            per_channel=scheme == "per_channel",
            extra_options={"ActivationSymmetric": scheme == "int16x8"},
        )

    return make


_TF, _TORCH, _ONNX = ("tensorflow",), ("torch",), ("torch", "onnx", "onnxscript")
_ORT, _AEQ = ("torch", "onnx", "onnxruntime"), ("ai_edge_quantizer",)


def _keras(kind: str, scheme: str) -> Maker:
    return Maker(f"keras_{kind}_{scheme}.tflite", _TF, lambda _: from_keras(kind, scheme))


MAKERS = (
    *(_keras("cnn", one) for one in ("float32", "float16", "dynamic", "int8", "int16x8")),
    *(_keras(one, "int8") for one in ("resnet", "mobilenet_v3", "unet", "tcn", "mha")),
    *(_keras(one, "float32") for one in ("unet", "mha", "lstm", "gru", "rnn", "bilstm")),
    _keras("gru", "dynamic"),
    _keras("lstm_unrolled", "int8"),
    Maker("tf_scan.tflite", _TF, lambda _: from_function("scan")),
    Maker("tf_branches_in_loop.tflite", _TF, lambda _: from_function("branches")),
    Maker("tf_until.tflite", _TF, lambda _: from_function("until")),
    *(
        Maker(f"aeq_{kind}_{recipe}.tflite", _AEQ, by_aeq(f"keras_{kind}_float32.tflite", recipe))
        for kind, recipe in (
            ("cnn", "static_wi8_ai8"),
            ("cnn", "static_wi8_ai16"),
            ("cnn", "dynamic_wi8_afp32"),
            ("mha", "static_wi8_ai8"),
        )
    ),
    *(
        Maker(f"torch_{kind}_{name}.onnx", _ONNX, to_onnx(kind, is_traced=name == "script"))
        for kind in ("cnn", "lstm", "attention")
        for name in ("script", "dynamo")
    ),
    *(Maker(f"torch_{kind}.pt2", _TORCH, exported(kind)) for kind in ("cnn", "gru")),
    *(
        Maker(f"torchao_{kind}_{name}.pt2", (*_TORCH, "torchao"), by_torchao(kind, name))
        for kind, name in (("cnn", "xnnpack"), ("cnn", "x86"))
    ),
    *(
        Maker(f"ort_{kind}_{scheme}.onnx", _ORT, by_onnxruntime(kind, scheme))
        for kind, scheme in (
            ("cnn", "per_channel"),
            ("cnn", "int16x8"),
            ("cnn", "qoperator"),
            ("cnn", "dynamic"),
            ("attention", "per_tensor"),
        )
    ),
)


def main(folder: Path) -> int:
    """Write what can be written; the number of converters that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for maker in MAKERS:
        target = folder / maker.file
        if target.exists() or not all(map(importlib.util.find_spec, maker.packages)):
            continue
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os._exit(_written(maker, folder))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        failed += bool(status)
        (folder / f"{maker.file}.failed").unlink(missing_ok=True)
        if status:
            (folder / f"{maker.file}.failed").write_text(f"{status}\n", encoding="utf-8")
        print(f"{maker.file}: {'written' if not status else f'the converter ended with {status}'}")
    return failed


def _written(maker: Maker, folder: Path) -> int:
    """In a child: write a file; 1 where its converter raised something."""
    try:
        made = maker.make(folder)
        if made is not None:
            (folder / maker.file).write_bytes(made)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
