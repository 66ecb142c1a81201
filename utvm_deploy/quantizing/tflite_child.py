"""The child process that runs LiteRT and ai-edge-quantizer; ``tflite_parent`` starts it.

    model.tflite, input_0.npy ... ──calibrate──▶ prepared.tflite, facts.json, output_0.npy ...
    prepared.tflite, job.json     ──quantize───▶ 0.tflite, 1.tflite ... and results.json

Both libraries print, and may end their process on odd files.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import ModelError
from utvm_deploy.quantizing import tflite_schema as schema
from utvm_deploy.quantizing.facts import SCHEMES, Range, Recipe
from utvm_deploy.quantizing.tflite_aeq import quantized_by_aeq
from utvm_deploy.quantizing.tflite_calibrate import observe, outputs_of
from utvm_deploy.quantizing.tflite_clean import clean
from utvm_deploy.quantizing.tflite_files import (
    FACTS,
    JOB,
    MODEL,
    PREPARED,
    REFUSAL,
    RESULTS,
    load_arrays,
    save_arrays,
)
from utvm_deploy.quantizing.tflite_prepare import prepared
from utvm_deploy.quantizing.tflite_rewrite import Rewriting
from utvm_deploy.quantizing.tflite_weights import mend_channel_scales

#: What the child may map; LiteRT itself takes less than 1 GiB.
MEMORY_BYTES = 8 * 1024**3


def calibrate(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Prepare the file, and observe it on the samples."""
    data = prepared((folder / MODEL).read_bytes())
    (folder / PREPARED).write_bytes(data)
    inputs = load_arrays(folder, "input", mapped=True)
    seen, outputs = observe(data, inputs, job["kept"], tell)
    model = schema.read_model(data)
    ranges = {name: one for name, one in seen.items() if name in computed_tensors(model)}
    if job["declared"] is not None:
        ends = [schema.name_of(model, number) for number in model.subgraphs[0].inputs]
        ranges |= {name: Range(*job["declared"]) for name in ends if name in ranges}
    facts = {
        "ranges": {name: (one.low, one.high) for name, one in ranges.items()},
        "operators": [
            (schema.kind_of(model, one), schema.name_of(model, one.outputs[0]))
            for one in model.subgraphs[0].operators
            if schema.numbers(one.outputs)
        ],
    }
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")
    save_arrays(folder, "output", outputs)


def computed_tensors(model: Any) -> set[str]:
    """The names of all tensors except constants."""
    tensors = model.subgraphs[0].tensors
    return {
        schema.name_of(model, number)
        for number, tensor in enumerate(tensors)
        if schema.constant(model, tensor) is None
    }


def quantize(folder: Path, job: Mapping[str, Any], tell: Callable[[int, int], None]) -> None:
    """Make a file for each recipe, and run it on the samples."""
    data = (folder / PREPARED).read_bytes()
    stored = json.loads((folder / FACTS).read_text("utf-8"))
    ranges = {name: Range(*one) for name, one in stored["ranges"].items()}
    inputs = load_arrays(folder, "input", mapped=True)
    results = []
    for index, facts in enumerate(job["recipes"]):
        facts["ranges"] = {name: Range(*one) for name, one in facts["ranges"].items()}
        recipe = Recipe(**facts)
        made, rewritten = quantized(data, ranges, recipe)
        (folder / f"{index}.tflite").write_bytes(made)
        if inputs and len(inputs[0]):
            save_arrays(folder, f"{index}_output", outputs_of(made, inputs, is_exact=job["exact"]))
        results.append(rewritten)
        tell(index + 1, len(job["recipes"]))
    (folder / RESULTS).write_text(json.dumps(results), encoding="utf-8")


def quantized(
    data: bytes, ranges: Mapping[str, Range], recipe: Recipe
) -> tuple[bytes, list[tuple[str, str]]]:
    """The file that a recipe describes, and what our rewriting quantized."""
    model = schema.read_model(quantized_by_aeq(data, ranges, recipe))
    mend_channel_scales(model, schema.read_model(data))
    rewritten = []
    for scheme in SCHEMES:
        rewriting = Rewriting(model, scheme, {**ranges, **recipe.ranges}, recipe)
        rewriting.run()
        rewritten += rewriting.rewritten
    clean(model)
    return schema.model_bytes(model), rewritten


def main(step: str, folder: Path) -> int:
    """Do one step; leave its results or a refusal; the exit status."""
    # Only progress goes to standard output: the libraries print there, too.
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(done: int, total: int) -> None:
        print(done, total, file=stdout, flush=True)

    _limit_memory()
    steps = {"calibrate": calibrate, "quantize": quantize}
    try:
        steps[step](folder, json.loads((folder / JOB).read_text("utf-8")), tell)
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
    (folder / REFUSAL).write_text(text, encoding="utf-8")
    return 1


def _limit_memory() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
