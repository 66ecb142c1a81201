"""What every quantizing child does: limit its memory, report progress, leave a refusal.

The libraries print, raise all kinds of exceptions, and may end their process on odd files.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.process import limit_memory
from utvm_deploy.base.readable import utf8
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing import child_files
from utvm_deploy.quality.quantizing.facts import Recipe
from utvm_deploy.quality.quantizing.tflite.calibrate import outputs_of

#: Given the folder, the job, and what reports progress.
Step: TypeAlias = Callable[[Path, Mapping[str, Any], Callable[[int, int], None]], None]

#: What a child may map; LiteRT itself takes less than 1 GiB.
MEMORY_BYTES = 8 * 1024**3


def run_step(steps: Mapping[str, Step], step: str, name: str) -> int:
    """Do one step in the folder of that name; the exit status."""
    folder = Path(name)
    # The libraries' own temporary files go with the folder, however this process ends.
    tempfile.tempdir = name
    # Only progress goes to standard output: the libraries print there, too.
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(done: int, total: int) -> None:
        print(done, total, file=stdout, flush=True)

    limit_memory(MEMORY_BYTES)
    try:
        steps[step](folder, json.loads((folder / child_files.JOB).read_text("utf-8")), tell)
        return 0
    except ModelError as error:
        text = str(error)
    except OSError as error:
        text = f"the system refused: {error.strerror or error}; make room for temporary files"
    except MemoryError:
        text = f"its quantization takes more than {MEMORY_BYTES >> 30} GiB of memory"
    except Exception as error:  # the libraries raise all kinds
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"its quantization failed with {said} ({Path(where.filename).name}:{where.lineno})"
    (folder / child_files.REFUSAL).write_bytes(utf8(text))
    return 1


def make_files(
    folder: Path,
    job: Mapping[str, Any],
    tell: Callable[[int, int], None],
    inputs: Sequence[Array],
    make: Callable[[Recipe], tuple[bytes, list[tuple[str, str]]]],
) -> None:
    """Make the file of each recipe of a job, and run it on the samples.

    ``make`` also returns the kind and the first output of each operator that we quantized.
    """
    results = []
    for index, facts in enumerate(job["recipes"]):
        made, rewritten = make(child_files.recipe_of(facts))
        (folder / f"{index}.tflite").write_bytes(made)
        if inputs and len(inputs[0]):
            outputs = outputs_of(made, inputs, is_exact=job["exact"])
            child_files.save_arrays(folder, f"{index}_output", outputs)
        results.append(rewritten)
        tell(index + 1, len(job["recipes"]))
    (folder / child_files.RESULTS).write_text(json.dumps(results), encoding="utf-8")
