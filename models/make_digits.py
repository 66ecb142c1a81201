"""Make digits.tflite and digits_test.npz: train, quantize, run LiteRT's reference kernels.

TensorFlow and scikit-learn are needed here and nowhere else, so this script has a venv of its own
(Python 3.11, Linux x86-64; about 30 seconds on two cores):

    python3.11 -m venv /tmp/digits-venv
    /tmp/digits-venv/bin/pip install tensorflow-cpu==2.21.0 keras==3.15.1 scikit-learn==1.9.1
    /tmp/digits-venv/bin/pip install ai-edge-litert==2.3.0 numpy==2.4.6
    /tmp/digits-venv/bin/python models/make_digits.py            # writes next to this file
    /tmp/digits-venv/bin/python models/make_digits.py -o OTHER   # or into the folder OTHER

Everything random is seeded. The split is fixed: 1437 images to train on and 360 held out, which
neither training nor calibration sees. It printed:

    float accuracy: 355 of 360 held-out images, 98.61%
    int8  accuracy: 355 of 360 held-out images, 98.61%
    digits.tflite: 16544 bytes
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, when TensorFlow is imported

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20240
HELD_OUT = 360  # a fifth of the 1797 images
EPOCHS = 40
PIXEL_MAX = 16.0  # scikit-learn's digits have pixel values 0..16
CALIBRATION_SAMPLES = 500

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.uint8]
Int8s = npt.NDArray[np.int8]


def split() -> tuple[Pixels, Labels, Pixels, Labels]:
    """The fixed, stratified split: images and labels to train on, images and labels held out."""
    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.uint8),
        test_size=HELD_OUT,
        random_state=SEED,
        stratify=digits.target,
    )
    return train_x, train_y, test_x, test_y


def features(images: Pixels) -> Floats:
    """What the float model eats: (N, 8, 8, 1) in 0..1."""
    return (images[..., np.newaxis] / PIXEL_MAX).astype(np.float32)


def shifted(images: Pixels, labels: Labels) -> tuple[Pixels, Labels]:
    """The images and the same moved by one pixel each way, as more to train on."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    moves = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    moved = [padded[:, row : row + 8, column : column + 8] for row, column in moves]
    return np.concatenate(moved), np.tile(labels, len(moves))


def build() -> keras.Model:
    """A plain convolution, a depthwise separable one, two poolings and a dense layer."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(24, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.DepthwiseConv2D(3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(48, 1, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )


def train(images: Pixels, labels: Labels) -> keras.Model:
    """A trained float model."""
    images, labels = shifted(images, labels)
    batch_size = 64
    steps = EPOCHS * -(-len(images) // batch_size)
    model = build()
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps)),
        loss="sparse_categorical_crossentropy",
    )
    model.fit(features(images), labels, batch_size=batch_size, epochs=EPOCHS, verbose=0)
    return model


def quantize(model: keras.Model, samples: Floats) -> bytes:
    """The model as an int8 .tflite; ``samples`` (N, 8, 8, 1) set the range of every activation."""

    def representative_dataset() -> Iterator[list[Floats]]:
        for sample in samples:
            yield [sample[np.newaxis]]

    # A fixed batch of 1: with the batch left open, Flatten becomes SHAPE, STRIDED_SLICE and PACK.
    one = keras.Input(samples.shape[1:], batch_size=1)
    converter = tf.lite.TFLiteConverter.from_keras_model(keras.Model(one, model(one)))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative_dataset
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = tf.int8
    converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def reference(model: bytes, images: Floats) -> tuple[Int8s, Int8s]:
    """The quantized inputs (N, 1, 8, 8, 1) and LiteRT's reference outputs (N, 1, 10)."""
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    input_, output = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, zero_point = input_["quantization"]
    levels = np.round(images / np.float32(scale)) + zero_point
    inputs = np.clip(levels, -128, 127).astype(np.int8)[:, np.newaxis]
    outputs = []
    for image in inputs:
        interpreter.set_tensor(input_["index"], image)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(output["index"]))
    return inputs, np.stack(outputs)


def main() -> None:
    """Make both files and print how good the model is."""
    parser = argparse.ArgumentParser(description="make digits.tflite and digits_test.npz")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).resolve().parent)
    folder: Path = parser.parse_args().output

    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    train_x, train_y, test_x, test_y = split()
    model = train(train_x, train_y)
    tflite = quantize(model, features(train_x[:CALIBRATION_SAMPLES]))
    inputs, outputs = reference(tflite, features(test_x))

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.tflite").write_bytes(tflite)
    np.savez_compressed(
        folder / "digits_test.npz", images=test_x, labels=test_y, inputs=inputs, outputs=outputs
    )
    guesses = model.predict(features(test_x), verbose=0).argmax(axis=-1)
    right_float = int((guesses == test_y).sum())
    right_int8 = int((outputs[:, 0].argmax(axis=-1) == test_y).sum())
    for name, right in (("float", right_float), ("int8 ", right_int8)):
        print(f"{name} accuracy: {right} of {HELD_OUT} held-out images, {right / HELD_OUT:.2%}")
    print(f"digits.tflite: {len(tflite)} bytes")


if __name__ == "__main__":
    main()
