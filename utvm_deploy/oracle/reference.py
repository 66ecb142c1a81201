"""The reference that all output bytes are compared with: LiteRT's reference kernels.

    run_reference ──inputs.npz──▶ python -m utvm_deploy.oracle.reference
                 ──results.npz──▶ ReferenceRun

A file with control flow is run twice: unrolled, for its layers, and as it is. The outputs must be
equal.

A Relax model has TVM's builds for this computer as its reference (``relax_reference.py``). Where
the reference kernels are wrong, others serve (``truths.py``).

LiteRT aborts the process on some odd models and prints to both streams, so it is imported and run
only in a child process; one child serves all samples.
"""

from __future__ import annotations

import importlib.metadata
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utvm_deploy.base import process
from utvm_deploy.base.errors import FileRefused, ModelError, UtvmError, VerifyError
from utvm_deploy.base.process import limit_memory
from utvm_deploy.base.readable import utf8
from utvm_deploy.base.temporary import TemporaryFolder, has_no_room
from utvm_deploy.frontend.formats import converted, model_bytes
from utvm_deploy.frontend.relax.facts import is_relax
from utvm_deploy.frontend.tflite import given_bytes, load_model, tflite_bytes
from utvm_deploy.graph.macs import total_macs
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.interpreter import Interpreted, Refused, interpret
from utvm_deploy.oracle.shadow import Shadow, loaded, saved
from utvm_deploy.oracle.truths import named

_PACKAGE = "ai-edge-litert"
_VERSION = "2.3.0"
_INSTALL = f"pip install {_PACKAGE}=={_VERSION}"

#: The oracle's name for reports: results are only comparable to this version and these kernels.
REFERENCE = f"LiteRT {_VERSION} reference kernels (BUILTIN_REF)"

# Starting the child and loading the model takes 0.3 s; a loaded machine may need a hundred times
# that.
_START_TIMEOUT_S = 60.0
# Each sample: a floor, and the multiply-accumulates at this rate. The reference kernels do at least
# 20 million in a second; a loaded machine may need ten times as long.
_SAMPLE_TIMEOUT_S = 10.0
_MACS_PER_S = 2_000_000

#: What the child may take; LiteRT itself maps less than 1 GiB, models here need some megabytes.
MEMORY_BYTES = 8 * 1024**3

_INPUTS, _RESULTS, _REFUSAL = "inputs.npz", "results.npz", "refusal.txt"
#: Where a file is refused before any run: the operator, or nothing.
_FILE_REFUSED = "file_refused.txt"
#: The model with its control flow, if the file for LiteRT is without it.
_WHOLE = "whole.tflite"
#: A file of this name in the folder asks for the outputs alone.
_OUTPUTS_ONLY = "outputs_only"
#: This one says how many samples follow each other.
_APART = "apart"
#: This one asks for the shadow, which is left in the other one.
_WITH_SHADOW, _SHADOW = "with_shadow", "shadow.json"
#: Of the results: the numbers of the outputs, and the name of what computed them.
_NUMBERS, _NAME = "outputs", "reference"


@dataclass(frozen=True, eq=False)
class ReferenceRun:
    """What the reference computed, one entry per sample."""

    # outputs[sample][i]: the model's outputs, in the file's order.
    outputs: tuple[tuple[Array, ...], ...]
    # tensors[sample][number]: model inputs and everything an operator makes, by file position.
    tensors: tuple[Mapping[int, Array], ...]
    reference: str = REFERENCE  # who computed, for reports
    # How far operators are from their float computation; None if nobody asked, and for Relax.
    shadow: Shadow | None = None


def run_reference(
    model_path: str | Path,
    inputs: Sequence[Array | Sequence[Array]],
    *,
    timeout_s: float | None = None,
    outputs_only: bool = False,
    apart: int = 0,
    with_shadow: bool = False,
) -> ReferenceRun:
    """Run every sample through the reference kernels in one child process.

    ``inputs`` has one entry per sample: the model's inputs in order, or the array alone if there is
    a single input. With ``outputs_only``, no other tensors are kept. Each sequence of ``apart``
    samples finds the state that a model has before its first run; 0: all are one sequence.
    ``with_shadow`` compares each quantized operator with its float computation.

    Raises FileRefused if LiteRT refuses the model. Raises VerifyError if LiteRT is missing, crashes
    or takes longer than ``timeout_s`` (default: by the number of samples and the model's size).
    """
    _check_installed()
    path = Path(model_path).resolve()
    samples = [[s] if isinstance(s, np.ndarray) else list(s) for s in inputs]
    if not all(samples):
        raise VerifyError(f"a sample for {path.name} has no arrays; give one per model input")
    with TemporaryFolder("utvm-oracle") as directory:
        file = _readable(path, directory)
        if timeout_s is None:
            timeout_s = _START_TIMEOUT_S + _sample_timeout_s(file) * len(samples)
        save_samples(directory, samples)
        if outputs_only:
            (directory / _OUTPUTS_ONLY).touch()
        if apart:
            (directory / _APART).write_text(str(apart), "ascii")
        if with_shadow:
            (directory / _WITH_SHADOW).touch()
        completed = process.run(
            [sys.executable, "-m", __name__, str(file), str(directory)],
            timeout_s=timeout_s,
            env=process.child_environment(),
        )
        if (directory / _FILE_REFUSED).exists():
            refused = (directory / _FILE_REFUSED).read_text("utf-8")
            raise FileRefused(_refusal(path.name, refused))
        if not completed.is_ok:
            raise VerifyError(_explanation(path, directory, completed, timeout_s))
        return load_results(path, directory, len(samples))


def _sample_timeout_s(file: Path) -> float:
    """What one sample may take. LiteRT also runs files that we refuse: those get the floor."""
    try:
        return _SAMPLE_TIMEOUT_S + total_macs(load_model(file, is_quiet=True)) / _MACS_PER_S
    except UtvmError:
        return _SAMPLE_TIMEOUT_S


def save_samples(directory: Path, samples: Sequence[Sequence[Array]]) -> None:
    """Leave the samples where the child looks for them."""
    arrays = {f"{s}_{i}": a for s, sample in enumerate(samples) for i, a in enumerate(sample)}
    np.savez(directory / _INPUTS, **arrays)  # type: ignore[arg-type]


def _readable(path: Path, directory: Path) -> Path:
    """The file for LiteRT or TVM: what the model becomes without control flow, with all zeros."""
    data = converted(path)
    try:
        whole, made = given_bytes(path), tflite_bytes(path)
        if made != whole:
            (directory / _WHOLE).write_bytes(whole)
        if made != model_bytes(path):
            data = made
    except ModelError:
        pass  # LiteRT also runs files that we refuse
    if data is None:
        return path
    file = directory / "model.tflite"
    file.write_bytes(data)
    return file


def _check_installed() -> None:
    try:
        version = importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as exc:
        raise VerifyError(
            f"the reference interpreter {_PACKAGE} is not installed; install it: {_INSTALL}"
        ) from exc
    if version != _VERSION:
        raise VerifyError(
            f"{_PACKAGE} {version} is installed, but outputs are compared with version {_VERSION}, "
            f"whose rounding the kernels follow; install it: {_INSTALL}"
        )


def _explanation(
    path: Path, directory: Path, completed: process.Completed, timeout_s: float
) -> str:
    if completed.timed_out:
        return (
            f"the reference interpreter took more than {timeout_s:g} s on {path.name}; "
            "use fewer samples"
        )
    # An empty one: the disk was too full to say why; standard error holds the reason.
    if reason := read_refusal(directory):
        return (
            f"the reference interpreter refuses {path.name}: {reason}; if random samples are why, "
            "give samples that the model takes: --golden G.npz"
        )
    if has_no_room(directory):
        return (
            f"the reference interpreter has no room for its results in {directory.parent}; make "
            "room there, or set TMPDIR to another folder"
        )
    lines = completed.output.strip().splitlines()
    last_words = f" ({lines[-1].strip()})" if lines else ""
    how = f"exited with status {completed.returncode}"
    if completed.returncode < 0:
        how = f"crashed with {signal.Signals(-completed.returncode).name}"
    return (
        f"the reference interpreter {how} on {path.name}{last_words}; "
        "there is nothing to compare with"
    )


def _refusal(name: str, refused: str) -> str:
    where, _, why = refused.partition("\n")
    place = f" at {where}" if where else ""
    cause = f"; LiteRT says: {why}" if why else ""
    return (
        f"LiteRT {_VERSION} refuses {name}{place}, so there is nothing to be exact to; repair "
        f"that, or convert the model again{cause}"
    )


def read_refusal(directory: Path) -> str:
    """Why the child refused the model, or an empty string."""
    refusal = directory / _REFUSAL
    return refusal.read_text("utf-8") if refusal.exists() else ""


def load_results(path: Path, directory: Path, samples: int) -> ReferenceRun:
    """What the child left; ``path`` is the model's, for messages."""
    try:
        with np.load(directory / _RESULTS, allow_pickle=False) as file:
            stacked = {int(key): file[key] for key in file.files if key not in (_NUMBERS, _NAME)}
            numbers = [int(number) for number in file[_NUMBERS]]
            reference = str(file[_NAME])
    except (OSError, ValueError, KeyError) as exc:
        raise VerifyError(
            f"the reference interpreter left no results for {path.name}: {exc}"
        ) from exc
    tensors = tuple({n: a[sample] for n, a in stacked.items()} for sample in range(samples))
    outputs = tuple(tuple(sample[n] for n in numbers) for sample in tensors)
    shadow = directory / _SHADOW
    found = loaded(shadow.read_text("utf-8")) if shadow.exists() else None
    return ReferenceRun(outputs, tensors, reference, found)


def interpret_or_explain(model: str, directory: Path) -> int:
    """In the child: run all samples, leave results or a refusal; the exit status."""
    limit_memory(MEMORY_BYTES)
    file = Path(model)
    try:
        with np.load(directory / _INPUTS, allow_pickle=False) as arrays:
            samples = _samples(arrays)
        outputs_only = (directory / _OUTPUTS_ONLY).exists()
        several = directory / _APART
        apart = int(several.read_text("ascii")) if several.exists() else 0
        with_shadow = (directory / _WITH_SHADOW).exists()
        found, reference = _interpret(file, samples, outputs_only, apart, with_shadow)
        if (directory / _WHOLE).exists() and not found.truths:
            # Only the reference kernels can compute in what control flow calls.
            whole = interpret(directory / _WHOLE, samples, outputs_only=outputs_only, apart=apart)
            _check_unrolled(whole, found)
        kept = found.outputs if outputs_only else found.tensors[0] if found.tensors else ()
        results = {str(n): np.array([tensors[n] for tensors in found.tensors]) for n in kept}
        results[_NUMBERS] = np.array(found.outputs, np.int64)
        results[_NAME] = np.array(reference)
        if found.shadow is not None:
            (directory / _SHADOW).write_text(saved(found.shadow), encoding="utf-8")
        np.savez(directory / _RESULTS, **results)  # type: ignore[arg-type]
    except Refused as exc:
        (directory / _FILE_REFUSED).write_bytes(utf8(str(exc)))
        (directory / _REFUSAL).write_bytes(utf8(_refusal("this file", str(exc))))
        return 1
    except Exception as exc:  # any exception is LiteRT's or the model's: the parent reports it
        (directory / _REFUSAL).write_bytes(utf8(" ".join(str(exc).split())))
        return 1
    return 0


def _interpret(
    file: Path,
    samples: Sequence[Sequence[Array]],
    outputs_only: bool,
    apart: int,
    with_shadow: bool,
) -> tuple[Interpreted, str]:
    """What the reference of this file computes, and its name."""
    with file.open("rb") as opened:
        is_tvms = is_relax(opened.read(64))
    if is_tvms:
        # With TVM's kernels, it takes most of the start, which no other model needs.
        from utvm_deploy.oracle import relax_reference

        return relax_reference.interpret(file, samples), relax_reference.REFERENCE
    found = interpret(
        file, samples, outputs_only=outputs_only, apart=apart, with_shadow=with_shadow
    )
    return found, named(REFERENCE, found.truths)


def _check_unrolled(whole: Interpreted, made: Interpreted) -> None:
    """Raise ValueError unless the file with its control flow makes the same outputs."""
    for expected, found in zip(whole.tensors, made.tensors, strict=True):
        for one, other in zip(whole.outputs, made.outputs, strict=True):
            if expected[one].tobytes() != found[other].tobytes():
                raise ValueError(
                    "unrolled, it makes other outputs than with its control flow, which is a bug "
                    "of utvm_deploy; report it"
                )


def _samples(file: Mapping[str, Array]) -> list[list[Array]]:
    samples: list[list[Array]] = []
    for key in file:  # savez keeps the order: sample by sample, input by input
        if int(key.split("_")[0]) == len(samples):
            samples.append([])
        samples[-1].append(file[key])
    return samples


if __name__ == "__main__":
    sys.exit(interpret_or_explain(sys.argv[1], Path(sys.argv[2])))
