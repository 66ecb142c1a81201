"""``utvm train`` and ``--weights``: the weights as a file, and what is refused."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import utvm_deploy
from utvm_deploy.base.errors import DataError, ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.device import Device
from utvm_deploy.frontend.files.given_shapes import with_chosen
from utvm_deploy.frontend.relax.facts import loaded
from utvm_deploy.frontend.relax.passes import prepared_module
from utvm_deploy.frontend.relax.road import module_of_text, relax_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.frontend.trained import with_trained
from utvm_deploy.frontend.training.model import Trainable
from utvm_deploy.frontend.training.recipe import Recipe
from utvm_deploy.frontend.training.stored import HEADER, MAGIC, TrainedWeights, digest_of
from utvm_deploy.frontend.training.weights import identity_of, trainable_layers
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.quality.datasets import Dataset

MODELS = Path(__file__).parents[2] / "models"
DIGITS = MODELS / "digits.tflite"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits to learn, others to judge, and files of wrong data."""
    folder = tmp_path_factory.mktemp("data")
    with np.load(MODELS / "digits_labelled.npz") as found:
        inputs, labels = found["inputs"], found["labels"]
    np.savez(folder / "new.npz", inputs=inputs[:30], labels=labels[:30])
    np.savez(folder / "held.npz", inputs=inputs[30:70], labels=labels[30:70])
    np.savez(folder / "wide.npz", inputs=inputs[:30], labels=labels[:30] + 5)
    np.savez(folder / "bare.npz", inputs=inputs[:30])
    return folder


@pytest.fixture(scope="module")
def weights(data: Path) -> Path:
    """What a training on the host wrote."""
    path = data / "digits.weights"
    options = ["--held-out", str(data / "held.npz"), "--epochs", "2", "--rate", "0.02"]
    page = ["--html", str(data / "curve.html")]
    assert run("train", data, "-o", str(path), *options, *page) == 0
    return path


def run(verb: str, data: Path, *options: str) -> int:
    board = ["--board", "host"] if verb == "train" else []
    given = [] if "--data" in options else ["--data", str(data / "new.npz")]
    return main([verb, str(DIGITS), *given, *board, *options])


def test_the_reference_judges_the_weights_as_the_board_did(
    weights: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (data / "curve.html").read_text()
    assert page.count("<polyline") == 2 and "accuracy: 0." in page
    again = data / "again.weights"
    options = ["--held-out", str(data / "held.npz"), "--weights", str(weights), "--json"]
    assert run("train", data, "-o", str(again), *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "utvm.train/1" and found["steps"] == found["samples"] == 30
    first, last = found["epochs"]
    assert first["loss"] is None and last["loss"] > 0
    assert run("eval", data, "--data", str(data / "held.npz"), *options[2:4], "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["accuracy"] == first["accuracy"]
    assert TrainedWeights.read(again).stored != TrainedWeights.read(weights).stored


def test_what_does_not_fit_is_one_sentence(
    weights: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn, other = tmp_path / "torn.weights", tmp_path / "other.weights"
    text = weights.read_text()
    torn.write_text(text.replace(text[-20:-3], text[-20:-3].swapcase()))
    other.write_text('{"format": "utvm.profile/1"}')
    before = other.read_bytes()
    for options, told in (
        (("--held-out", str(data / "wide.npz"), "--dry-run"), "have labels 5 to 14, and the model"),
        (("--data", str(data / "bare.npz"), "--dry-run"), "have no labels, which the loss cross"),
        (("--rate", "1e39"), "rate is 1e+39; give a number above 0 that float32 has, such as 0.01"),
        (("--data", str(data / "wide.npz")), "have labels 5 to 14, and the model has classes 0"),
        (("--data", str(data / "bare.npz")), "have no labels, which the loss cross_ent"),
        (("--loss", "mse"), "have no targets, which the loss mse needs"),
        (("--layers", "dense"), "no layer 'dense' can train; those that can: 0: "),
        (("--layers", "all", "--weights", str(weights)), "of other layers; give those that were"),
        (("--weights", str(torn)), "the weights of this file are damaged"),
        (("--weights", str(other)), "damaged, or another file; give a file that utvm train"),
        (("--weights", str(DIGITS)), "digits.tflite: it is damaged, or another file"),
    ):
        assert run("train", data, "-o", str(tmp_path / "made.weights"), *options) == 1 or (
            options[0] in ("--layers", "--rate")
        )
        assert told in capsys.readouterr().err
    assert run("train", data, "-o", str(data / "new.npz")) == 1
    assert "is the data itself" in capsys.readouterr().err
    assert not (tmp_path / "made.weights").exists() and other.read_bytes() == before
    narrow = tmp_path / "narrow.weights"
    narrow.write_text(text.replace("[192, 10]", "[96, 10]"))
    assert narrow.read_text() != text
    for model, path in (("digits_float", weights), ("digits", narrow)):
        with pytest.raises(ModelError, match=rf"of another model than {model}\.tflite"):
            utvm_deploy.inspect(MODELS / f"{model}.tflite", weights=path)


def test_a_dry_run_shows_what_plans_cost(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dry-run", "-o", str(data / "none.weights")]
    assert run("train", data, *options) == 0
    assert "--optimize ram shows what other plans cost" in capsys.readouterr().out
    assert run("train", data, *options, "--optimize", "ram", "--layers=-3,-1") == 0
    told = capsys.readouterr().out
    assert re.search(r"computed again +layers in strips +arena bytes +\w+\n", told), told
    assert re.search(r"\n +0 +\d+ +[\d,]+ +[\d,]+\n", told), told
    # A plan with scratch in a pool is compared with no other one.
    assert run("train", data, *options, "--ram-budget", "20000", "--board", "mps2_an500") == 0
    told = capsys.readouterr().out
    assert re.search(r"cycles\n +0 +\d+ +[\d,]+ +[\d,]+\n", told), told


def test_ctrl_c_keeps_the_last_whole_epoch_and_what_overflows_writes_none(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.weights"

    def interrupted(*given: Any, on_epoch: Any, output: Path, **_options: Any) -> None:
        output.write_text("")
        on_epoch({"epoch": 3, "loss": 0.5})
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(utvm_deploy, "train", interrupted)
        assert run("train", data, "-o", str(path), "--epochs", "9") == 130
    assert f"interrupted; {path} has the weights after 3 epochs" in capsys.readouterr().err
    path.unlink()
    assert run("train", data, "-o", str(path), "--epochs", "9", "--rate", "1e37") == 1
    told = capsys.readouterr().err
    assert "of digits would overflow float32" in told or "has changed no weight" in told
    assert not path.exists()


def test_samples_are_read_as_steps_need_them_and_a_rest_waits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((10, 1, 4)).astype(np.float32)
    read = list[int]()

    def one(start: int, stop: int) -> Any:
        read.append(stop - start)
        return (samples[start:stop],)

    path = tmp_path / "net.relax"
    path.write_text(tvm.ir.save_json(net()))
    given = Dataset(10, one, "of the test", targets=rng.standard_normal((10, 3)))
    options: dict[str, Any] = {"layers": "all", "loss": "mse", "epochs": 2, "held_out": given}
    found = utvm_deploy.train(path, given, "host", **options)
    first, _, last = found.table
    assert found.to_dict()["batch"] == found.to_dict()["steps"] == 4
    # All of what is held out judges; its last step has two.
    assert read == [4, 4, 2, *(2 * [*(8 * [1]), 4, 4, 2])]
    assert last["mse"] < 0.99 * first["mse"]
    # TVM computes the file with these weights as the board did.
    found.weights.write(tmp_path / "net.weights")
    with with_chosen(weights=tmp_path / "net.weights"):
        made = run_oracle(path, [(samples[at : at + 4, 0],) for at in (0, 4, 6)], outputs_only=True)
    outputs = [one[0] for one in made.outputs]
    wrong = np.concatenate([*outputs[:2], outputs[2][2:]]) - given.targets
    assert np.square(wrong).mean() == pytest.approx(last["mse"], rel=1e-5)


def test_what_judges_and_what_it_is_asked_for_fit_the_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = rng.standard_normal((6, 5, 4)).astype(np.float32)
    path, output = tmp_path / "net.relax", tmp_path / "net.weights"
    path.write_text(tvm.ir.save_json(net(samples=5, folded=True)))

    def read(start: int, stop: int) -> Any:
        return (frames[start:stop],)

    given = Dataset(6, read, "of the test", targets=rng.standard_normal((6, 15)))
    judged = list[int]()

    def stopped(start: int, stop: int) -> Any:
        judged.append(start)
        if len(judged) > 6:
            raise KeyboardInterrupt
        return read(start, stop)

    # The input's first extent is not that of the output, so a run is one sample.
    options: dict[str, Any] = {"loss": "mse", "held_out": replace(given, read=stopped)}
    with pytest.raises(KeyboardInterrupt):
        utvm_deploy.train(path, given, "host", output=output, **options)
    assert len(judged) == 7 and not output.exists()
    path.write_text(tvm.ir.save_json(net()))
    for wrong, told in (
        ({"labels": np.array([0, 1, 2, -1])}, "have labels -1 to 2, and the model has classes"),
        ({"labels": np.arange(4) % 2, "class_names": ("a", "b")}, "name 2 classes, and the mod"),
        ({"labels": np.arange(2)}, "have 2 samples, and a step takes 4"),
        ({"targets": np.zeros((4, 2))}, "have no labels, which the loss cross_entropy needs"),
    ):
        count = len(next(iter(wrong.values())))
        with pytest.raises(DataError, match=told):
            utvm_deploy.train(path, Dataset(count, read, "of the test", **wrong), "host")


def test_a_constant_that_two_layers_read_stays_as_it_was_in_one() -> None:
    bias = relax.const(np.zeros(4, np.float32))
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for scale in (1, 2):
                product = relax.op.matmul(y, relax.const(scale * np.eye(4, dtype=np.float32)))
                y = builder.emit(relax.op.tanh(builder.emit(builder.emit(product) + bias)))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    model = relax_model(builder.get())
    values = [np.full((4, 4), 3.0), np.full(4, 5.0)]
    stored = b"".join(one.astype("<f4").tobytes() for one in values)
    layers = trainable_layers(prepared_module(module_of_text(model.given))["main"], {})
    names = [one.name for one in layers[-1].weights]
    identity = identity_of(module_of_text(model.given), "main")
    digest = bytes.fromhex(digest_of(identity, names))[:16]
    header = HEADER.pack(MAGIC, digest, HEADER.size + len(stored), zlib.crc32(stored))
    parts = zip(names, ((4, 4), (4,)), (32, 96), strict=True)
    weights = TrainedWeights(Recipe("mse", "sgd", "last", 0.1), tuple(parts), header + stored)
    made = loaded(with_trained(model.dumped(), Path("net.relax"), weights.text))
    found = trainable_layers(prepared_module(module_of_text(made.given))["main"], {})
    kept = [weight.values.max() for layer in found for weight in layer.weights]
    assert kept == [1.0, 0.0, 3.0, 5.0]


def test_weights_fit_each_batch_of_a_file_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "net.relax"
    path.write_text(tvm.ir.save_json(net(tvm.tirx.Var("n", "int64"))))
    learner = utvm_deploy.trainable(path, layers="all", inputs={"x": (4, 4)})
    assert learner.graph.tensors[learner.graph.inputs[0]].shape == (4, 4)
    moved(learner).write(tmp_path / "net.weights")
    again = utvm_deploy.trainable(path, layers="all", weights=tmp_path / "net.weights")
    assert again.graph.tensors[again.graph.inputs[0]].shape == (1, 4)
    assert utvm_deploy.inspect(path, weights=tmp_path / "net.weights").found.macs == 4 * 8 + 8 * 3
    path.write_text(tvm.ir.save_json(net(1, seed=2)))
    with pytest.raises(ModelError, match=r"of another model than net\.relax"):
        utvm_deploy.inspect(path, weights=tmp_path / "net.weights")


def net(samples: Any = 4, *, folded: bool = False, seed: int = 1) -> Any:
    """Two dense layers for samples at once; or all are one sample, as its output says."""
    rng, builder = np.random.default_rng(seed), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((samples, 4), "float32"))
    first, second = (relax.const(rng.standard_normal(s).astype("f4")) for s in ((4, 8), (8, 3)))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, first))))
            y = builder.emit(relax.op.matmul(y, second))
            y = builder.emit_output(relax.op.reshape(y, (1, -1) if folded else (samples, 3)))
        builder.emit_func_output(y)
    return builder.get()


def test_the_file_with_weights_computes_what_the_train_step_does(host: Device) -> None:
    path = MODELS / "digits_int16x8.tflite"
    # Behind the first of these layers are others, pools, a reshape and ReLUs.
    learner = utvm_deploy.trainable(path, layers=(-2, -1))
    weights = moved(learner)
    trained = host.load(utvm_deploy.compile(learner.begun_with(weights), "host"))
    with with_chosen(weights=weights):
        inputs = random_samples(load_model(path), 3).inputs
        made = run_oracle(path, inputs, outputs_only=True)
    for given, (wanted,) in zip(inputs, made.outputs, strict=True):
        ((found,), _) = trained.run(given)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    trained.unload()


def moved(learner: Trainable) -> TrainedWeights:
    """Weights near the first ones of a model."""
    rng, stored, parts = np.random.default_rng(0), b"", []
    assert learner.graph.training is not None
    for number, _ in learner.graph.states[1 : 1 + learner.graph.training.weights]:
        tensor = learner.graph.tensors[number]
        parts.append((tensor.name, tensor.shape, HEADER.size + len(stored)))
        stored += (tensor.first * rng.uniform(0.9, 1.1, tensor.shape)).astype("<f4").tobytes()
    digest = bytes.fromhex(learner.graph.digest)[:16]
    header = HEADER.pack(MAGIC, digest, HEADER.size + len(stored), zlib.crc32(stored))
    return TrainedWeights(learner.recipe, tuple(parts), header + stored)
