"""Tune a Relax module on a board by TVM's search, and compile it with what was found.

    python tune_relax.py --board mps2_an500 --trials 96

The module is a small convolutional network of float32 whose weights are random.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tvm import IRModule, relax

import utvm_deploy
from utvm_deploy.tuning.meta_schedule import DeviceTuning
from utvm_deploy.tuning.tvm_records import save_records


def network() -> IRModule:
    """Two convolutions with pools, a dense layer and a softmax."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Any:
        return relax.const((rng.standard_normal(shape) * 0.2).astype(np.float32))

    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 1)}
    x = relax.Var("x", relax.TensorType((1, 16, 16, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for inputs, outputs in ((3, 8), (8, 16)):
                y = builder.emit(relax.op.nn.conv2d(y, random(3, 3, inputs, outputs), **layout))
                y = builder.emit(relax.op.nn.relu(relax.op.add(y, random(outputs))))
                y = builder.emit(relax.op.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC"))
            y = builder.emit(relax.op.matmul(relax.op.reshape(y, (1, 256)), random(256, 10)))
            y = builder.emit_output(relax.op.nn.softmax(y))
        builder.emit_func_output(y)
    return builder.finalize()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Tune a Relax module.")
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder for TVM's files")
    parser.add_argument("--records", type=Path, default=Path("records.jsonl"))
    arguments = parser.parse_args()

    module = network()
    graph = utvm_deploy.from_relax(module)
    link = None if arguments.board == "host" else "debug"
    with utvm_deploy.connect(arguments.board, link=link) as device:
        tuning = DeviceTuning(device, graph)
        database = tuning.tune(arguments.work, arguments.trials)
        run = save_records(database, graph, device, arguments.records)
        unit = f"{'modelled ' if device.is_modelled else ''}{device.hello.tick_unit}"

    compiled = utvm_deploy.compile(module, arguments.board, records=arguments.records)
    for layer in compiled.layers:
        print(f"{layer.origin:14} {layer.why}")
    if run.after is None:
        print("no schedule is faster than the default")
    else:
        print(f"whole model: {run.before} -> {run.after} {unit}")


if __name__ == "__main__":
    main()
