"""Tune a Relax module on a board by TVM's search, and compile it with what was found.

    python tune_relax.py --board mps2_an500 --trials 96

The module is a block of attention in float32 whose weights are random.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tvm import IRModule, relax

import utvm_deploy
from utvm_deploy.tuning.searching.meta_schedule import DeviceTuning
from utvm_deploy.tuning.tvm_records import save_records


def network() -> IRModule:
    """Attention with one head over 24 tokens of 32 features."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, 24, 32), "float32"))
    builder = relax.BlockBuilder()

    def projected() -> Any:
        weights = (rng.standard_normal((32, 32)) * 0.2).astype(np.float32)
        return builder.emit(relax.op.matmul(x, relax.const(weights)))

    with builder.function("main", [x]):
        with builder.dataflow():
            query, key, value = projected(), projected(), projected()
            scores = relax.op.matmul(query, relax.op.permute_dims(key, [0, 2, 1]))
            y = relax.op.matmul(builder.emit(relax.op.nn.softmax(scores)), value)
            y = builder.emit_output(relax.op.add(x, y))
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
