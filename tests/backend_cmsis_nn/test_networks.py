"""The networks that benchmarks/cmsis_nn/networks.py compares: compilable, with living channels."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import LOWERINGS
from utvm_deploy.oracle.program import built

#: Operators whose channels are counted, and the share of these that may be constant.
WITH_WEIGHTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
MOST_DEAD = 0.05
SAMPLES = 8
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "cmsis_nn"


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # It imports its neighbour.
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("networks", FOLDER / "networks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "networks", module)
    spec.loader.exec_module(module)
    return module


def test_each_is_a_model_of_known_operators(networks: ModuleType, tmp_path: Path) -> None:
    kinds: set[str] = set()
    for name, write in networks.NETWORKS.items():
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(write())
        assert write() == path.read_bytes()
        kinds |= {operator.kind for operator in simplify(load_model(path)).operators}
    assert kinds <= set(LOWERINGS)
    assert {"ADD", "MUL", "HARD_SWISH", "TRANSPOSE_CONV", "CONCATENATION", "MEAN"} <= kinds


def test_few_channels_are_constant_and_nothing_overflows(networks: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models = {
            name: write() for name, write in {**networks.NETWORKS, **networks.PUBLISHED}.items()
        }
    for name, data in models.items():
        dead, channels, cut = of_channels(data)
        assert dead <= MOST_DEAD * channels, f"{dead} of {channels} channels of {name} are dead"
        assert cut < 0.05, f"{cut:.1%} of the values of {name} are at an end of int8"


def test_counting_finds_dead_channels(networks: ModuleType) -> None:
    n = networks.Network((1, 8, 8, 3))
    n.conv(16, 3)
    # No sum reaches the zero point.
    bias = n.writer.tensors[n.writer.operators[-1].inputs[2]]
    values = np.frombuffer(bias.data, np.int32).copy()
    values[:5] = -(2**24)
    bias.data = values.tobytes()
    assert of_channels(n.finish(n.end))[:2] == (5, 16)


def of_channels(data: bytes) -> tuple[int, int, float]:
    """Constant channels of layers with weights, all of them, and the share of values at 127."""
    from calibration import samples

    interpreter = built(data, "BUILTIN_WITHOUT_DEFAULT_DELEGATES", keeps_all=True)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    layers = [op for op in interpreter._get_ops_details() if op["op_name"] in WITH_WEIGHTS]
    found: dict[int, list[np.ndarray]] = {int(op["outputs"][0]): [] for op in layers}
    for sample in samples(given["shape"], np.random.default_rng(7), SAMPLES):
        interpreter.set_tensor(given["index"], sample)
        interpreter.invoke()
        for number, rows in found.items():
            values = interpreter.get_tensor(number)
            rows.append(values.reshape(-1, values.shape[-1]).copy())
    outputs = [np.concatenate(rows) for rows in found.values()]
    dead = sum(int((values == values[0]).all(0).sum()) for values in outputs)
    flat = np.concatenate([values.ravel() for values in outputs])
    return dead, sum(values.shape[1] for values in outputs), float((flat == 127).mean())
