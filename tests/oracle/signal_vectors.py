"""What TFLite Micro makes of the cases of ``signal_cases``, kept in ``signals.npz``.

    PYTHONPATH=tests:. .venv/bin/python tests/oracle/signal_vectors.py

makes the file anew. It needs the package tflite-micro (the extra ``micro``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from signal_cases import front_end, signal_cases

VECTORS = Path(__file__).with_name("signals.npz")
#: The release of tflite-micro whose outputs these are.
MICRO = "0.dev20261023182759"
_SECONDS = 120
# In a child, because it may crash.
_CHILD = """
import json, sys
import numpy as np
from tflite_micro.python.tflite_micro import runtime

jobs, target = json.loads(sys.stdin.read()), {}
for name, (model, file, outputs) in jobs.items():
    interpreter = runtime.Interpreter.from_file(model, arena_size=1 << 20)
    made = []
    for sample in zip(*np.load(file).values()):
        for number, array in enumerate(sample):
            interpreter.set_input(array, number)
        interpreter.invoke()
        made.append([interpreter.get_output(number) for number in range(outputs)])
    target |= {f"{name}/{number}": np.stack(one) for number, one in enumerate(zip(*made))}
np.savez_compressed(sys.argv[1], **target)
"""


def micro_outputs() -> Mapping[str, np.ndarray]:
    """CASE/OUTPUT -> what TFLite Micro makes of each run."""
    with TemporaryDirectory() as folder:
        jobs: dict[str, tuple[str, str, int]] = {}
        for name, case in signal_cases().items():
            model = case.save(Path(folder) / f"{len(jobs)}.tflite")
            jobs[name] = _job(model, case.inputs, len(case.outputs))
        model, sound = front_end(Path(folder) / "front.tflite")
        jobs["front end"] = _job(model, [np.stack(sound)], 2)
        target = Path(folder) / "made.npz"
        subprocess.run(
            [sys.executable, "-c", _CHILD, str(target)],
            input=json.dumps(jobs),
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        with np.load(target) as made:
            return dict(made)


def _job(model: Path, inputs: Sequence[np.ndarray], outputs: int) -> tuple[str, str, int]:
    file = model.with_suffix(".npz")
    np.savez(file, **{str(number): one for number, one in enumerate(inputs)})
    return str(model), str(file), outputs


if __name__ == "__main__":
    np.savez_compressed(VECTORS, **micro_outputs())
