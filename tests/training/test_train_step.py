"""The C and Python of training: what is refused, what is undone, and weights as bytes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator, UsageError
from utvm_deploy.bundling import check_bundle
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.frontend.training.model import Trainable
from utvm_deploy.frontend.training.optimizers import (
    BETA_1,
    BETA_2,
    MOMENTUM,
    MOST_GRADIENT,
    MOST_RATE,
    MOST_WEIGHT,
)

HERE = Path(__file__).parent
MODELS = HERE.parents[1] / "models"


def dense(operator: Any = relax.op.nn.relu, classes: int = 3) -> Any:
    """Two dense layers with an operator between."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return relax.const(rng.standard_normal(shape).astype(np.float32) / 3)

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(relax.op.matmul(x, weights(6, 8)), weights(8)))
            y = builder.emit(relax.op.matmul(operator(y), weights(8, classes)))
            y = builder.emit_output(relax.op.nn.softmax(y))
        builder.emit_func_output(y)
    return builder.get()


@pytest.fixture(scope="module")
def learner() -> Trainable:
    return utvm_deploy.trainable(dense(), layers="all", optimizer="momentum", rate=0.1, name="net")


@pytest.fixture(scope="module")
def compiled(learner: Trainable) -> Any:
    return utvm_deploy.compile(learner, "host", name="net")


def samples() -> tuple[Any, Any]:
    """Three classes that a line does not separate."""
    x = np.random.default_rng(3).standard_normal((60, 6)).astype(np.float32)
    return x, (np.abs(x[:, 0]) > 0.7).astype(np.int64) + (x[:, 1] > 0.5)


@pytest.mark.parametrize("where", ["flash", "ram"])
def test_a_model_learns_and_its_weights_come_back(where: str, compiled: Any, host: Device) -> None:
    model = host.load(compiled, into=where)
    inputs, labels = samples()
    before = model(inputs[:1])
    curve = model.train((inputs, labels), epochs=20)
    assert len(curve.losses) == 20 * 60 and len(curve.epochs) == 20 and curve.ticks > 0
    assert curve.epochs[-1] < 0.5 * curve.epochs[0]
    after, stored = model(inputs[:1]), model.weights()
    model.reset_state()
    assert (model(inputs[:1]) == before).all()
    model.restore(stored)
    assert (model(inputs[:1]) == after).all()
    model.unload()


def test_data_may_come_step_by_step(compiled: Any, host: Device) -> None:
    model = host.load(compiled)
    inputs, labels = samples()
    given = ((inputs[i], labels[i]) for i in range(5))
    assert len(model.train(given).losses) == 5
    for data, told in (
        (given, "the data is empty"),
        (((one,) for one in inputs), "pairs"),
        ((inputs, labels[:4]), "60 inputs and 4 labels"),
    ):
        with pytest.raises(UsageError, match=told):
            model.train(data)
    model.unload()


def test_a_step_with_a_wrong_label_or_an_infinite_loss_changes_nothing(
    compiled: Any, host: Device
) -> None:
    model = host.load(compiled)
    inputs, _ = samples()
    stored = model.weights()
    for label, told in (([3], "0 to 2"), ([-1], "label -1"), ([0.5], "float64"), ([1, 1], "shape")):
        with pytest.raises(ModelError, match=told):
            model.train_step((inputs[:1],), label)
    with pytest.raises(ModelError, match="infinite values or NaN"):
        model.train_step((np.full((1, 6), np.nan, np.float32),), [0])
    with pytest.raises(ModelError, match=r"the loss of net is (nan|inf), so this step has changed"):
        model.train_step((np.full((1, 6), 3e38, np.float32),), [0])
    assert model.weights() == stored
    with pytest.raises(ModelError, match="damaged"):
        model.restore(stored[:-1] + b"\1")
    with pytest.raises(ModelError, match="not weights of net"):
        model.restore(b"another model" * 10)
    assert model.weights() == stored
    model.unload()


def huge_gradients() -> Any:
    """Two dense layers; the gradient of the first one is 1e40 times that of its output."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.const(np.zeros((4, 4), np.float32))))
            for _ in range(2):
                y = builder.emit(relax.op.multiply(y, relax.const(1e20, "float32")))
            y = builder.emit(relax.op.matmul(y, relax.const(np.eye(4, dtype=np.float32))))
            y = builder.emit_output(relax.op.add(y, relax.const(np.ones(4, np.float32))))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_weights_stay_finite_where_a_gradient_overflows(optimizer: str, host: Device) -> None:
    made = utvm_deploy.trainable(huge_gradients(), layers="all", optimizer=optimizer)
    model = host.load(utvm_deploy.compile(made, "host"))
    assert model.compiled.training is not None

    def values() -> dict[str, Any]:
        named = zip(model.compiled.states, model.state(), strict=True)
        found = {one.name: np.frombuffer(raw, "<f4") for one, raw in named if one.dtype != "uint8"}
        return {name: one for name, one in found.items() if name != "rate of the updates"}

    before = values()
    with pytest.raises(ModelError, match="an update of model would overflow float32"):
        model.train_step((np.full((1, 4), 0.5, np.float32),), [1])
    after = values()
    assert all(np.isfinite(one).all() for one in after.values())
    is_kept = {name: (before[name] == after[name]).all() for name in made.weights}
    # Updates come from the end to the front.
    assert list(is_kept.values()) == [True, True, False], is_kept
    model.unload()


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_weights_stay_finite_at_a_huge_rate(optimizer: str, host: Device) -> None:
    made = utvm_deploy.trainable(dense(), layers="all", optimizer=optimizer, rate=1e38)
    model = host.load(utvm_deploy.compile(made, "host"))
    inputs, labels = samples()
    stored = model.weights()
    with pytest.raises(ModelError, match="take a smaller learning rate"):
        model.train((100 * inputs, labels))
    assert len(stored) == len(model.weights())
    assert np.isfinite(np.frombuffer(model.weights()[32:], "<f4")).all()
    model.train((inputs[:3], labels[:3]), rate=0.01)
    model.restore(model.weights())
    model.train((inputs[:3], labels[:3]))
    model.unload()


def test_updates_stay_within_the_largest_weight() -> None:
    """No sum of float32 leaves the range that weights are allowed, whatever the steps were."""
    most, step = np.float32(MOST_WEIGHT), np.float32(2.0**100)
    assert most + step == most and -most - step == -most
    gradient = np.float32(MOST_GRADIENT)
    for signs in ([1], [1, -1], [1, 1, -1, 1]):
        velocity, mean, variance, largest = np.zeros(4, np.float32)
        for t in range(1, 200):
            g = gradient * np.float32(signs[t % len(signs)])
            velocity = np.float32(MOMENTUM) * velocity + g
            mean = np.float32(BETA_1) * mean + np.float32(1 - BETA_1) * g
            variance = np.float32(BETA_2) * variance + np.float32(1 - BETA_2) * g * g
            adam = (mean / (1 - BETA_1**t)) / np.sqrt(variance / (1 - BETA_2**t))
            largest = max(largest, abs(velocity), abs(adam))
        assert np.isfinite(variance) and largest * MOST_RATE <= step


def test_infinite_weights_do_not_train() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 4), "float32"))
    weights = relax.const(np.full((4, 3), np.inf, np.float32))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.matmul(x, weights))
        builder.emit_func_output(y)
    with pytest.raises(ModelError, match=r"lv.weight has infinite or huge values|gv.weight has"):
        utvm_deploy.trainable(builder.get())


def test_c_alone_trains_stores_and_refuses(compiled: Any, tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: sudo apt install gcc")
    for name, text in compiled.sources.items():
        (tmp_path / name).write_text(text)
    sources = [str(path) for path in tmp_path.glob("*.c")]
    warnings = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    program = tmp_path / "program"
    command = [compiler, *warnings, f"-I{tmp_path}", *sources, str(HERE / "train.c"), "-lm"]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=60)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "trained\n")


def test_an_archive_keeps_what_trains(compiled: Any, tmp_path: Path) -> None:
    write_library(compiled, tmp_path / "net.tar")
    assert read_library(tmp_path / "net.tar").training == compiled.training


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": "hinge"}, "loss 'hinge' is unknown; give one of cross_entropy, mse"),
        ({"optimizer": "rprop"}, "give one of sgd, momentum, adam"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"layers": [5]}, r"no layer 5 can train; those that can: 0: lv \(matmul 6x8\)"),
        ({"layers": [0.0]}, r"no layer 0.0 can train"),
        ({"layers": []}, "no layers are given"),
    ],
)
def test_what_cannot_be_chosen(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        utvm_deploy.trainable(dense(), **options)


def test_an_operator_without_a_gradient_is_named_with_its_place() -> None:
    with pytest.raises(UnsupportedOperator, match=r"no gradient is known for round, which makes"):
        utvm_deploy.trainable(dense(relax.op.round), layers="all")
    # In front of what trains it needs none.
    assert utvm_deploy.trainable(dense(relax.op.round)).weights == ("lv3.weight",)


def test_a_model_without_layers_that_train_is_refused() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(y)
    with pytest.raises(UnsupportedOperator, match="no layer of the model can train"):
        utvm_deploy.trainable(builder.get())


def test_layers_with_the_same_weights_do_not_train() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 4), "float32"))
    weights = relax.const(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.tanh(relax.op.matmul(x, weights)))
            y = builder.emit_output(relax.op.matmul(y, weights))
        builder.emit_func_output(y)
    with pytest.raises(UnsupportedOperator, match="have the same weights"):
        utvm_deploy.trainable(builder.get())


def test_a_file_of_relax_trains(tmp_path: Path) -> None:
    path = tmp_path / "dense.relax"
    path.write_text(tvm.ir.save_json(dense()))
    made = utvm_deploy.trainable(path)
    assert made.graph.name == "dense" and made.weights == ("lv3.weight",)


@pytest.mark.parametrize("verb", [utvm_deploy.profile, utvm_deploy.verify])
def test_verbs_of_models_refuse_a_train_step(verb: Any, learner: Trainable) -> None:
    with pytest.raises(UsageError, match=r"train step of net cannot be taken here; .* run_timed"):
        verb(learner, "host")


def test_other_models_do_not_train(host: Device) -> None:
    model = host.load(utvm_deploy.compile(dense(), "host"))
    for call in (lambda: model.train((np.zeros((1, 6)), np.zeros(1))), model.weights):
        with pytest.raises(UsageError, match="cannot train; compile what utvm"):
            call()
    model.unload()


@pytest.mark.parametrize(
    ("layers", "body", "made"), [("last", 7, "RESHAPE"), ([-2, -1], 4, "DEPTHWISE_CONV_2D")]
)
def test_the_body_of_a_quantized_file_keeps_its_bytes(
    layers: Any, body: int, made: str, host: Device
) -> None:
    path = MODELS / "digits.tflite"
    graph = load_model(path)
    assert graph.operators[body - 1].kind == made
    learner = utvm_deploy.trainable(path, layers=layers, rate=0.05)
    assert [one.kind for one in learner.graph.operators[: body + 1]] == [
        *(one.kind for one in graph.operators[:body]),
        "DEQUANTIZE",
    ]
    with np.load(MODELS / "digits_test.npz") as digits:
        inputs, labels = digits["inputs"][:40, 0], digits["labels"][:40].astype(np.int64)
    whole = host.load(utvm_deploy.compile(path, "host"))
    made_there = [
        {run.layer.name: run.outputs[0] for run in whole.run_layers(image)} for image in inputs[:2]
    ]
    model = host.load(utvm_deploy.compile(learner, "host"))
    model.train((inputs[20:], labels[20:]))
    right = [model(one)[0].argmax() == label for one, label in zip(inputs, labels, strict=True)]
    assert sum(right) >= 38
    for image, wanted in zip(inputs, made_there, strict=False):
        runs = [run for run in model.run_layers(image) if run.layer.name in wanted]
        assert len(runs) >= 4
        assert all((run.outputs[0] == wanted[run.layer.name]).all() for run in runs)
    model.unload()


def test_a_bundle_trains_and_passes_its_self_test(learner: Trainable, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: sudo apt install cmake")
    result = utvm_deploy.bundle(learner, "host", tmp_path / "bundle", samples=2, name="net")
    check_bundle(result.path)
    assert "int32_t net_train_step(" in (tmp_path / "bundle" / "include" / "net.h").read_text()
    for command in (["-S", "bundle", "-B", "build"], ["--build", "build"]):
        subprocess.run(["cmake", *command], cwd=tmp_path, check=True, timeout=120)
    program = str(tmp_path / "build" / "net_selftest")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "PASS net: 2 sample(s), every output byte equal\n"


def test_what_is_stored_ends_with_the_last_weight() -> None:
    # In some plans the weights are at the end of the arena, which is no multiple of 16.
    for classes in (2, 3, 5):
        learner = utvm_deploy.trainable(dense(classes=classes), layers=[-1])
        model = utvm_deploy.compile(learner, "host")
        part = model.training
        assert part is not None
        (last,) = (one for one in model.states if one.name == learner.weights[-1])
        assert part.stored.offset + part.stored.size_bytes == last.offset + last.size_bytes
        assert part.stored.offset + part.stored.size_bytes <= model.arena_bytes
