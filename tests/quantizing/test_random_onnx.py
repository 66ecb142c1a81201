"""Random float ONNX networks, quantized, compiled and compared with the reference kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from random_models.runner import Rig, Verdict
from random_onnx import outputs_of, random_network, save

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.quality.quantizing.facts import SCHEMES
from utvm_deploy.quality.quantizing.model_steps import quantize_model

REFUSED, EQUAL = "refused", "equal"
#: A generator whose networks are refused too often would test nothing.
FEWEST_EQUAL = 0.7


@dataclass(frozen=True)
class End:
    """What came of a network."""

    seed: int
    scheme: str
    kind: str  # REFUSED, EQUAL, or what is wrong
    detail: str = ""
    sqnr_db: float | None = None  # of the worst output; None if no output has an error

    @property
    def line(self) -> str:
        """All of it, for the log."""
        ratio = "" if self.sqnr_db is None else f" {self.sqnr_db:.1f} dB"
        return f"{self.seed} {self.scheme} {self.kind}{ratio} {self.detail}"


def end_of(seed: int, rig: Rig, folder: Path) -> End:
    """Quantize, compile and verify a network; every other one to int16x8."""
    scheme = SCHEMES[seed % 2]
    path, data = save(random_network(seed), folder)
    try:
        made = quantize_model(path, data, scheme=scheme)
    except UtvmError as error:
        text = str(error)
        kind = f"refused by {text!r}" if "\n" in text or "failed with" in text else REFUSED
        return End(seed, scheme, kind, text.partition(": ")[2])
    errors = [one.sqnr_db for one in made.outputs if one.sqnr_db is not None]
    target = folder / f"{path.stem}.tflite"
    made.save(target)
    outcome = rig.check_file(target, random_samples(load_model(target), 2).inputs)
    kind = EQUAL if outcome.verdict is Verdict.EQUAL else outcome.verdict.value
    floats = ", ".join(sorted({one.kind for one in made.float_operators}))
    detail = f"{outcome.detail} float: {floats}" if floats else outcome.detail
    return End(seed, scheme, kind, detail, min(errors, default=None))


def check(seeds: range, folder: Path) -> None:
    """Print what came of each network, and fail if anything is wrong."""
    with Rig("host") as rig:
        ends = [end_of(seed, rig, folder) for seed in seeds]
    print(*(end.line for end in ends), sep="\n")
    counts = Counter(end.kind for end in ends)
    print(dict(counts))
    assert set(counts) <= {EQUAL, REFUSED}
    assert counts[EQUAL] >= FEWEST_EQUAL * len(seeds)


@pytest.mark.tools
def test_random_networks_equal_the_reference(tmp_path: Path) -> None:
    check(range(20), tmp_path)


@pytest.mark.soak
@pytest.mark.tools
def test_five_hundred_random_networks_equal_the_reference(tmp_path: Path) -> None:
    check(range(500), tmp_path)


def test_a_seed_is_one_network(tmp_path: Path) -> None:
    for seed in range(5):
        paths = [tmp_path / name for name in "ab"]
        files = []
        for folder in paths:
            folder.mkdir(exist_ok=True)
            path, _ = save(random_network(seed), folder)
            files.append(path.read_bytes())
        assert files[0] == files[1]


def test_every_operator_comes_up_early() -> None:
    kinds: set[str] = set()
    for seed in range(100):
        net = random_network(seed)
        assert outputs_of(net)
        kinds.update(node.op_type for node in net.writer.nodes)
    assert kinds >= {
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "Concat", "Split"),
        *("Slice", "Reshape", "Transpose", "Pad", "Resize", "Softmax", "Sigmoid", "Tanh", "Clip"),
        *("LeakyRelu", "HardSwish", "Erf", "LayerNormalization", "ReduceMean", "ReduceMax"),
        *("ReduceMin", "Where", "Greater", "Gather", "GRU", "LSTM", "Div", "Sub", "Mul", "Add"),
    }
