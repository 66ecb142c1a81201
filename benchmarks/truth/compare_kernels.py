"""All kernels of each operator of random models: which are far from the operator in float32?

    python benchmarks/truth/compare_kernels.py --count 2000 [--types int8 int16] [--tflm PYTHON]

Every operator runs alone, on what LiteRT's reference kernels made before it: by these, by LiteRT's
default kernels, by XNNPACK, and by TFLite Micro. PYTHON is an interpreter that has the package
``tflite-micro``. The table has, for each operator and type, the largest distance in steps of the
output's scale. Rows where one of the kernels is far away belong into ``oracle/truths.py``, or they
have an allowance in ``oracle/shadow.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

#: Kernels, as LiteRT's OpResolverType calls them; the last ones are those of TFLite Micro.
RESOLVERS = ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "BUILTIN")
MICRO = "TFLite Micro"
NAMES = {"BUILTIN_REF": "reference", "BUILTIN_WITHOUT_DEFAULT_DELEGATES": "default"}
NAMES |= {"BUILTIN": "XNNPACK", MICRO: MICRO}
#: LiteRT aborts on some models, so a process runs so many of them.
_PORTION = 25
_SECONDS = 300

_MICRO_SCRIPT = """
import json, sys
import numpy as np
from tflite_micro import runtime
for line in sys.stdin:
    try:
        with np.load(line.strip() + ".npz") as file:
            inputs = [file[name] for name in file.files]
        made = runtime.Interpreter.from_file(line.strip() + ".tflite")
        for index, array in enumerate(inputs):
            made.set_input(array, index)
        made.invoke()
        np.save(line.strip() + ".npy", np.array(made.get_output(0)))
        print("done", flush=True)
    except Exception as error:
        print("failed", flush=True)
"""


class Micro:
    """TFLite Micro in the process of another Python."""

    def __init__(self, python: str, folder: Path) -> None:
        self._folder = folder
        self._command = [python, "-c", _MICRO_SCRIPT]
        self._child = self._started()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, data: bytes, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
        """The first output; None if it cannot."""
        base = self._folder / "operator"
        base.with_suffix(".tflite").write_bytes(data)
        np.savez(base.with_suffix(".npz"), **{f"i{i}": a for i, a in enumerate(inputs)})
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(f"{base}\n")
            self._child.stdin.flush()
            said = self._child.stdout.readline()
        except BrokenPipeError:
            said = ""
        if not said:
            self._child = self._started()
        return np.load(base.with_suffix(".npy")) if said == "done\n" else None


def rows_of(seed: int, of_float: bool, micro: Micro | None) -> Iterator[dict[str, Any]]:
    """For each operator of a model, how far each of the kernels is from float32."""
    from random_models.generator import generate
    from random_models.recipe import write

    from utvm_deploy.frontend.files import tflite_schema as schema
    from utvm_deploy.oracle.program import Program
    from utvm_deploy.oracle.shadowing import Layer, distance
    from utvm_deploy.oracle.single_operators import scaled, single_operator

    data = write(generate(seed, of_float=of_float)).to_bytes()
    model = schema.read_model(data)
    rng = np.random.default_rng(seed)
    program = Program(data)
    known = program.one([_random(rng, *form) for form in program.forms])
    for node in program.nodes:
        tensor = model.subgraphs[0].tensors[node.outputs[0]] if node.outputs else None
        if tensor is None or node.outputs[0] not in known:
            continue
        try:
            shadow = Layer(model, node).run(known)[node.outputs[0]]
        except Exception:
            shadow = None
        row: dict[str, Any] = {"kind": node.kind, "dtype": node.dtype, "seed": seed}
        alone = single_operator(model, node.position, in_float=False)
        given = [known[number] for number in alone.inputs]
        truth = known[node.outputs[0]]
        for resolver in RESOLVERS[1:] if not micro else (*RESOLVERS[1:], MICRO):
            try:
                if resolver == MICRO:
                    made = micro.run(alone.data, given)
                else:
                    other = Program(alone.data, resolver)
                    made = other.one(given)[other.outputs[0]]
            except Exception:
                continue
            if made is None or made.size != truth.size or not truth.size:
                continue
            made = made.reshape(truth.shape)
            row[f"{NAMES[resolver]} from reference"] = _apart(made, truth)
            if shadow is not None and scaled(tensor):
                row[NAMES[resolver]] = distance(tensor, made, shadow)
        if shadow is not None and scaled(tensor) and truth.size:
            row["reference"] = distance(tensor, truth, shadow)
        yield row


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    if one.dtype != other.dtype:
        return float("inf")
    if one.dtype.kind == "f":
        most = np.abs(other[np.isfinite(other)]).max(initial=1e-30)
        return float(np.nan_to_num(np.abs(one - other), posinf=0.0).max(initial=0) / most)
    return float(np.abs(one.astype(float) - other.astype(float)).max(initial=0))


def _random(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    name = np.dtype(dtype).name
    if name == "float32":
        return rng.normal(0, 1, shape).astype(np.float32)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in ("int32", "int64"):
        return rng.integers(0, 3, shape).astype(name)
    limits = np.iinfo(name)
    return rng.integers(limits.min, limits.max, shape, name, endpoint=True)


def main() -> None:
    """Run all models in child processes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--float", action="store_true", help="models of float32")
    parser.add_argument("--tflm", metavar="PYTHON", help="a Python that has tflite-micro")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _work(args)
        return
    rows: list[dict[str, Any]] = []
    seed, end = args.seed, args.seed + args.count
    while seed < end:
        command = [sys.executable, __file__, "--worker", "--seed", str(seed)]
        command += ["--count", str(min(_PORTION, end - seed)), *(["--float"] if args.float else [])]
        command += ["--tflm", args.tflm] if args.tflm else []
        child = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
        lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith(b"{")]
        rows += [line for line in lines if "kind" in line]
        seed = max((line["seed"] for line in lines), default=seed) + 1
    print_table(rows)


def _work(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        micro = Micro(args.tflm, Path(folder)) if args.tflm else None
        for seed in range(args.seed, args.seed + args.count):
            print(json.dumps({"seed": seed}), flush=True)
            try:
                for row in rows_of(seed, args.float, micro):
                    print(json.dumps(row), flush=True)
            except Exception as error:
                print(f"seed {seed}: {error}", file=sys.stderr)
    os._exit(0)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row for each operator and type: how often it was met, and the largest distances."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["kind"], row["dtype"]].append(row)
    columns = [*NAMES.values(), *(f"{name} from reference" for name in list(NAMES.values())[1:])]
    print("| operator | type | layers | " + " | ".join(columns) + " |")
    print("|---|---|" + "--:|" * (1 + len(columns)))
    for (kind, dtype), found in sorted(groups.items()):
        cells = []
        for name in columns:
            values = [(row[name], row["seed"]) for row in found if name in row]
            worst = max(values, default=None)
            cells.append("" if worst is None else f"{worst[0]:.3g} ({worst[1]})")
        print(f"| {kind} | {dtype} | {len(found)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
