"""PyTorch modules in memory: quantized, compiled and called with tensors."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UsageError, UtvmError
from utvm_deploy.device import Device, DeviceModel
from utvm_deploy.frontend.torch.modules import quiet_torch
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.quality.quantizing.torch.module import quantized_program
from utvm_deploy.torch import explain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

torch = pytest.importorskip(
    "torch",
    reason="PyTorch is not installed; its installation page has builds for the CPU",
)

from torch_modules import MODULES, Mixed, module_named  # noqa: E402

# To load PyTorch takes seconds.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: A seeded few of all, with each kind of layer: the whole runs under -m soak.
FEW = ("gru", "residual", "attention", "decoder", "strange")


@pytest.fixture(scope="module", autouse=True)
def with_torchao() -> None:
    """Loaded when these tests run, and not by each process that lists them."""
    pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    with utvm_deploy.connect("host") as device:
        yield device


def check_module(name: str, scheme: str, device: Device, folder: Path) -> float:
    """Quantize and run; the least SQNR against eager, in dB, of a sample that was calibrated on."""
    module, shape = module_named(name)
    torch.manual_seed(1)
    data = torch.randn(16, *shape[1:])
    quantized = utvm_deploy.quantize(module, data, scheme=scheme)
    path = folder / f"{name}.tflite"
    quantized.save(path)
    samples = [data[i : i + 1] for i in range(4)]
    reference = run_reference(path, [[x.numpy()] for x in samples])
    model = device.load(utvm_deploy.compile(quantized, device.board, name=name), into="ram")
    with torch.no_grad():
        found = [model(x) for x in samples]
        real = [module(x) for x in samples]
    for ours, theirs in zip(found, reference.outputs, strict=True):
        assert isinstance(ours, torch.Tensor)
        np.testing.assert_array_equal(ours.numpy(), theirs[0])
    noise = sum(float(((y - e) ** 2).sum()) for y, e in zip(found, real, strict=True))
    power = sum(float((e**2).sum()) for e in real)
    ratio = 10 * math.log10(power / noise)
    print(f"{name} {scheme} on {device.board.name}: {ratio:.1f} dB")
    return ratio


def test_explain_asks_for_what_is_missing() -> None:
    module = torch.nn.Linear(4, 2)
    with pytest.raises(UsageError, match="give an example, too, such as"):
        explain(module)
    with pytest.raises(UsageError, match="an object of type int is not an nn"):
        explain(42, torch.zeros(1, 4))
    with pytest.raises(UsageError, match="'int4' is not a scheme; the schemes: float, int8"):
        explain(module, torch.zeros(1, 4), scheme="int4")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (42, "an object of type int"),
        (None, "an object of type NoneType"),
        (torch.nn.Linear, "the class Linear"),
    ],
)
def test_objects_that_cannot_be_compiled(given: Any, told: str) -> None:
    with pytest.raises(UsageError, match=f"{told} cannot be compiled; give the path of a model"):
        utvm_deploy.compile(given, "host")


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_modules_equal_the_reference_of_the_file(name: str, host: Device, tmp_path: Path) -> None:
    assert check_module(name, "int8", host, tmp_path) >= 20


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_int16_is_closer_than_int8(host: Device, tmp_path: Path) -> None:
    assert check_module("layer_norm", "int16x8", host, tmp_path) >= 40


@pytest.mark.tools
@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore")
def test_a_module_on_an_emulated_board(tmp_path: Path) -> None:
    with utvm_deploy.connect("mps2_an500", timing="instructions") as device:
        assert check_module("conv", "int8", device, tmp_path) >= 20


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("name", MODULES)
def test_every_module(name: str, scheme: str, host: Device, tmp_path: Path) -> None:
    assert check_module(name, scheme, host, tmp_path) >= (20 if scheme == "int8" else 35)


def check_float(name: str, device: Device) -> None:
    module, shape = module_named(name)
    x = torch.randn(shape)
    compiled = utvm_deploy.compile(module, device.board, inputs=(x,), name=name)
    with torch.no_grad():
        found, real = device.load(compiled, into="ram")(x), module(x)
    torch.testing.assert_close(found, real, atol=1e-5, rtol=1e-4)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_float_modules_equal_eager(host: Device) -> None:
    # Its head reads the last step by the index -1.
    check_float("lstm", host)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_additive", [True, False])
def test_a_mask_hides_what_it_hides_in_eager(is_additive: bool) -> None:
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    mask = torch.zeros(6, 6).masked_fill(~seen, -torch.inf) if is_additive else seen

    class Masked(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    torch.manual_seed(0)
    made = utvm_deploy.quantize(Masked(), torch.randn(40, 6, 8))
    assert made.outputs[0].sqnr_db is not None and made.outputs[0].sqnr_db >= 20
    assert not made.float_operators


@pytest.mark.filterwarnings("ignore")
def test_a_module_without_an_operator_to_quantize_is_refused() -> None:
    with pytest.raises(ModelError, match="PT2E quantizes none of its operators"):
        utvm_deploy.quantize(torch.nn.Identity(), torch.randn(40, 4))


@pytest.mark.soak
@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_every_float_module(name: str, host: Device) -> None:
    check_float(name, host)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_arrays_stay_arrays_and_gradients_are_refused(host: Device) -> None:
    layer = torch.nn.Linear(4, 2).eval()
    program = torch.export.export(layer, (torch.zeros(1, 4),))
    model = host.load(utvm_deploy.compile(program, "host"), into="ram")
    x = torch.randn(1, 4)
    y = model(x.numpy())
    assert isinstance(y, np.ndarray)
    torch.testing.assert_close(model(x), torch.from_numpy(y.copy()))
    with pytest.raises(ModelError, match=r"input 0 requires a gradient.*torch\.no_grad"):
        model(x.requires_grad_())


class Pairs:
    """A dataset of inputs with labels."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / 10.0), index % 2


@pytest.mark.filterwarnings("ignore")
def test_what_data_may_be() -> None:
    layer = torch.nn.Linear(4, 2)
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=7)
    whole = torch.stack([Pairs()[i][0] for i in range(40)])
    made = [
        utvm_deploy.quantize(layer, data)
        for data in (
            loader,
            whole,
            whole.numpy(),
            whole.numpy().astype(float),
            iter(whole.split(8)),
            torch.utils.data.TensorDataset(whole, torch.zeros(40)),
            [{"input": row, "label": 1} for row in whole.split(1)],
        )
    ]
    assert [one.samples for one in made] == [40] * 7
    assert len({one.data for one in made}) == 1
    assert not made[0].warnings and not made[0].float_operators
    assert layer.training, "it was in training before"
    assert "3 samples are few" in utvm_deploy.quantize(layer, whole[:3]).warnings[0]


def nan_weights() -> Any:
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight[0, 0] = math.nan
    return layer


class Branch(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Its results depend on a branch that values decide."""

    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


REFUSALS = {
    "empty": (lambda: torch.nn.Linear(4, 2), lambda: torch.zeros(0, 4), "are empty"),
    "nan": (
        lambda: torch.nn.Linear(4, 2),
        lambda: torch.full((3, 4), math.nan),
        "sample 0 has NaN or infinity in input 0",
    ),
    "weights": (nan_weights, lambda: torch.zeros(3, 4), "'weight' has NaN or infinity"),
    "shape": (
        lambda: torch.nn.Linear(4, 2),
        lambda: [torch.zeros(2, 4), torch.zeros(2, 5)],
        r"sample 2 has \(1, 5\) for input 0, which takes \(1, 4\)",
    ),
    "kind": (lambda: torch.nn.Linear(4, 2), lambda: 7, "of type int cannot be read"),
    "inputs": (
        lambda: torch.nn.Bilinear(4, 4, 2),
        lambda: [torch.zeros(2, 4)],
        "1 tensors for 2 inputs",
    ),
    "width": (
        lambda: torch.nn.Linear(4, 2),
        lambda: torch.zeros(3, 9),
        r"cannot be called with float32 \(1, 9\): .*; give inputs of the shapes and types",
    ),
    "branch": (Branch, lambda: torch.ones(40, 4), "depends on the values of a tensor, as in"),
    "double": (
        lambda: torch.nn.Linear(4, 2).double(),
        lambda: torch.zeros(3, 4).double(),
        r"'weight' is float64; call module.float\(\)",
    ),
    "half": (
        lambda: torch.nn.Linear(4, 2).bfloat16(),
        lambda: torch.zeros(3, 4),
        r"'weight' is bfloat16; call module.float\(\)",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSALS)
def test_bad_data_and_modules_get_a_sentence(kind: str) -> None:
    make, data, told = REFUSALS[kind]
    with pytest.raises(ModelError, match=told):
        utvm_deploy.quantize(make(), data())


def test_pytorch_logs_nothing_about_a_module_that_is_refused(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError, match="cannot be called with float32"):
        utvm_deploy.quantize(torch.nn.Linear(4, 2), torch.zeros(3, 9))
    with pytest.raises(ModelError, match="cannot be called with float32"):
        utvm_deploy.compile(torch.nn.Linear(4, 2), "host", inputs=(torch.zeros(1, 9),))
    assert not caplog.records and capfd.readouterr() == ("", "")


class Spectrum(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A step with complex numbers between others."""

    def forward(self, x: Any) -> Any:
        return torch.fft.rfft(torch.relu(x)).abs()


def test_operators_on_complex_numbers_stay_in_eager() -> None:
    found = explain(Spectrum(), torch.ones(1, 8))
    assert found.board is not None and found.board.operators == ("relu",)
    assert "abs" in found.eager


def test_loggers_print_again_after_pytorch_was_called(caplog: pytest.LogCaptureFixture) -> None:
    with quiet_torch():
        logging.getLogger("torchao").warning("held back")
    logging.getLogger("torchao").warning("printed")
    assert [one.message for one in caplog.records] == ["printed"]


OPTIONS = {
    "number": (lambda: 7, {}, "of type int cannot be quantized"),
    "weights": (lambda: torch.nn.Linear(4, 2).state_dict(), {}, "of type OrderedDict cannot be"),
    "program": (
        lambda: torch.export.export(torch.nn.Linear(4, 2), (torch.zeros(1, 4),)),
        {},
        r"give program.module\(\)",
    ),
    "loss": (lambda: torch.nn.Linear(4, 2), {"max_loss": 1.0}, "max_loss goes with scheme='mixed'"),
    "range": (lambda: torch.nn.Linear(4, 2), {"input_range": (1, 0)}, "1, 0 is not a range"),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_what_quantize_cannot_take_gets_a_sentence(kind: str) -> None:
    make, more, told = OPTIONS[kind]
    with pytest.raises(UsageError, match=told):
        utvm_deploy.quantize(make(), torch.zeros(40, 4), **more)


def test_samples_that_say_little_are_told(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 2)
    made = utvm_deploy.quantize(layer, torch.ones(40, 4))
    assert "all samples are equal" in made.warnings[0]
    assert "is 1 everywhere in all samples" in made.warnings[1]
    made = utvm_deploy.quantize(layer, torch.rand(40, 4), input_range=(0.0, 0.25))
    assert "outside the declared range 0 to 0.25" in made.warnings[0]
    with pytest.raises(UsageError, match=r"does not end in \.tflite"):
        made.save(tmp_path / "made.onnx")
    assert not list(tmp_path.iterdir())


def test_unknown_schemes_and_missing_shapes_get_a_sentence() -> None:
    layer = torch.nn.Linear(4, 2)
    with pytest.raises(UtvmError, match="'int3' is not a scheme"):
        utvm_deploy.quantize(layer, torch.zeros(3, 4), scheme="int3")
    with pytest.raises(ModelError, match="a module says no shapes"):
        utvm_deploy.compile(layer, "host")


@pytest.mark.filterwarnings("ignore")
def test_dead_channels_keep_a_sane_scale(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[1] = 0
        layer.bias[:] = torch.tensor([0.1, 0.9, -0.2])
    data = torch.rand(40, 4) / 100
    quantized = utvm_deploy.quantize(layer, data)
    assert quantized.outputs[0].largest < 0.02
    quantized.save(tmp_path / "dead.tflite")
    (y,) = run_reference(tmp_path / "dead.tflite", [[data[:1].numpy()]]).outputs[0]
    assert abs(float(y[0, 1]) - 0.9) < 0.02


@pytest.fixture
def backend_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend, found as torch.compile finds that of an installed package."""
    from torch._dynamo.backends import registry

    with (ROOT / "pyproject.toml").open("rb") as file:
        group = tomllib.load(file)["project"]["entry-points"]["torch_dynamo_backends"]
    ((name, value),) = group.items()
    torch._dynamo.list_backends()  # fills the table
    entry = metadata.EntryPoint(name, value, "torch_dynamo_backends")
    monkeypatch.setitem(registry._BACKENDS, name, entry)
    torch._dynamo.reset()
    return str(name)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the first inputs of all runs of models on devices."""
    found: list[tuple[int, ...]] = []
    run = DeviceModel.run

    def spied(self: DeviceModel, inputs: Any) -> Any:
        found.append(tuple(inputs[0].shape))
        return run(self, inputs)

    monkeypatch.setattr(DeviceModel, "run", spied)
    return found


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_the_backend_runs_the_largest_partition(
    backend_name: str, host: Device, runs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    module = Mixed().eval()
    compiled = torch.compile(module, backend=backend_name, options={"device": host})
    with torch.no_grad():
        # Dynamo captures a graph for each of the first sizes of the batch; they share the device.
        for count in (1, 1, 3, 5, 1):
            x = torch.randn(count, 4)
            torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-4)
    # The first sample of each graph runs in eager; a batch runs sample by sample.
    assert set(runs) == {(1, 4)} and len(runs) >= 1 + 2 + 4 + 1
    assert "no kernel: linalg_inv" in caplog.text
    with pytest.raises(ModelError, match=r"computes no gradients; .*torch\.no_grad"):
        compiled(torch.randn(1, 4))


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_the_backend_calibrates_on_its_first_calls(
    backend_name: str, host: Device, runs: list[Any]
) -> None:
    module, shape = module_named("residual")
    options = {"device": host, "scheme": "int8", "calibrate": 4}
    compiled = torch.compile(module, backend=backend_name, options=options)
    torch.manual_seed(1)
    data = [torch.randn(shape) for _ in range(4)]
    with torch.no_grad():
        for x in data:
            assert torch.equal(compiled(x), module(x))
        assert not runs
        noise = sum(float(((compiled(x) - module(x)) ** 2).sum()) for x in data)
        power = sum(float((module(x) ** 2).sum()) for x in data)
    assert len(runs) == 4
    assert 10 * math.log10(power / noise) > 20


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_the_backend_takes_what_pt2e_quantized(
    backend_name: str, host: Device, runs: list[Any]
) -> None:
    data = torch.randn(32, 4)
    samples = [(row,) for row in data.split(1)]
    layer = torch.nn.Linear(4, 2).eval()
    module = quantized_program(torch, layer, samples, samples[0], "int8").module()
    compiled = torch.compile(module, backend=backend_name, options={"device": host})
    with torch.no_grad():
        for _ in range(2):
            y = compiled(data[:1])
        torch.testing.assert_close(y, module(data[:1]), atol=0.05, rtol=0)
    assert runs


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give the board"),
        ({"boards": "host"}, "no option 'boards'"),
        ({"board": "host", "scheme": "int4"}, "'int4' is not a scheme"),
        ({"board": "host", "calibrate": 0}, "calibrate is 0"),
    ],
)
def test_options_of_the_backend_are_checked(options: Any, told: str) -> None:
    from utvm_deploy.torch.options import checked_options

    with pytest.raises(UtvmError, match=told):
        checked_options(options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scheme", ["float", "int8"])
def test_explain_shows_the_partitions(scheme: str) -> None:
    told = explain(Mixed().eval(), torch.zeros(1, 4), scheme=scheme)
    assert told.board is not None and {"linear", "relu"} <= set(told.board.operators)
    assert "linalg_inv" in told.eager
    assert "eager, because there is no kernel: " in str(told)
    whole = explain(torch.nn.Linear(4, 2), (torch.zeros(1, 4),), scheme=scheme)
    assert str(whole) == "on the board: 1 operator (linear)"


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_the_lines_of_the_guide_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "guides" / "pytorch.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    (tmp_path / "models").mkdir()
    copy(ROOT / "models" / "digits_labelled.npz", tmp_path / "models")
    torch.manual_seed(0)
    from utvm_deploy.torch.backend import backend

    # An installed package has its name in a table; a checkout may have an older one.
    names: dict[str, Any] = {"utvm": backend}
    for block in blocks:
        exec(block.replace('backend="utvm"', "backend=utvm"), names)
    told = capsys.readouterr().out
    # Accuracy of the reference kernels and of the board: the same bytes have the same.
    found = re.findall(r"^(reference|device) \(.*\): accuracy (\S+),", told, re.MULTILINE)
    assert [engine for engine, _ in found] == ["reference", "device"]
    assert found[0][1] == found[1][1] and float(found[0][1]) >= 0.8
    assert "on the board: 3 operators (2 linear, relu)" in told
    assert names["y"].shape == (1, 4) and (tmp_path / "model.tflite").exists()


@pytest.mark.filterwarnings("ignore")
def test_tables_of_embeddings_are_quantized() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 3))
    quantized = utvm_deploy.quantize(module, torch.randint(0, 10, (40, 5)))
    assert not quantized.float_operators
    assert quantized.outputs[0].sqnr_db is not None and quantized.outputs[0].sqnr_db > 25


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_a_module_is_evaluated_without_an_example() -> None:
    """The data say the shapes; a loader's labels follow its inputs."""
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3))
    x = torch.randn(12, 2, 4)
    labels = module(x).argmax(1)
    labels[0] = (labels[0] + 1) % 3
    loader = torch.utils.data.DataLoader(list(zip(x, labels, strict=True)), batch_size=4)
    for data in ({"inputs": x.numpy(), "labels": labels.numpy()}, loader):
        found = utvm_deploy.evaluate(module, data).to_dict()
        assert "0.91666" in str(found)
