"""Model files of other formats: each becomes a .tflite file before anything else reads it.

So does a .tflite file of which something must be chosen (``tflite_choice.py``).

    converted ──path──▶ conversion.py, in a child ──model.tflite──▶ bytes

So all of them share one reader, one graph and one oracle. Other people's C++ reads them, which may
crash, take all memory or never end on a hostile file. So it runs in a child process with limits.
What it made is kept in the cache (``kept_conversions.py``).
"""

from __future__ import annotations

import contextvars
import hashlib
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from utvm_deploy.base import process
from utvm_deploy.base.errors import ModelError, UnsupportedOperator, refused_with
from utvm_deploy.base.files import check_regular
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend import conversion
from utvm_deploy.frontend.conversion import CHOSEN, CONVERTERS, REFUSAL, RESULT
from utvm_deploy.frontend.files.given_shapes import chosen_now
from utvm_deploy.frontend.files.kept_conversions import (
    conversion_key,
    keep_conversion,
    kept_conversion,
)
from utvm_deploy.frontend.files.limits import MAX_FILE_BYTES, SECONDS_VARIABLE, import_seconds
from utvm_deploy.frontend.files.other_files import other_framework
from utvm_deploy.frontend.files.tflite_choice import Choice, choice_of
from utvm_deploy.frontend.number_format import in_format
from utvm_deploy.frontend.relax.facts import is_relax, loaded
from utvm_deploy.graph.quantize_hint import quantize_command

#: What the name of a model's file may end with -> the format.
FORMATS: Mapping[str, str] = {
    ".tflite": "LiteRT",
    **{ending: one.name for ending, one in CONVERTERS.items()},
}

#: The formats whose quantized models become .tflite files.
QUANTIZED = (".onnx", ".pt2")

#: The formats whose files may have symbolic shapes.
SHAPED = (".onnx", ".relax", ".tflite")

#: What is at bytes 4 to 8 of a .tflite file.
IDENTIFIER = b"TFL3"

# PyTorch takes five seconds to load; a loaded machine may need many times that.
_START_TIMEOUT_S = 120.0
_REFUSALS: Mapping[str, type[ModelError]] = {
    kind.__name__: kind for kind in (ModelError, UnsupportedOperator)
}


def converted(path: Path) -> bytes | None:
    """The .tflite file that a file of another format becomes, or that is chosen of a .tflite file.

    None if it is a .tflite file that stays as it is. Raises only ModelError or UnsupportedOperator,
    even if the format's reader crashes, and PluginError for a number format that is wrong.
    """
    data, own = _converted_or_chosen(path), chosen_now().number_format
    return data if own is None else in_format(data or model_bytes(path), own, path)


def _converted_or_chosen(path: Path) -> bytes | None:
    check_shapes_apply(path)
    is_other, choice = path.suffix.lower() in CONVERTERS, _choice(path)
    return _kept_or_made(path, choice) if is_other or choice.rewrites else None


def unsigned_tensors(path: Path) -> frozenset[int]:
    """The numbers of a .tflite file's quantized uint8 tensors; of other files, none."""
    return _choice(path).unsigned


def _signed_tflite(path: Path) -> bytes:
    """A .tflite file as it was chosen, with int8 in the place of uint8."""
    choice = _choice(path)
    if not replace(choice, weights=None).rewrites and not choice.unsigned:
        raise ModelError(
            f"{path} is a .tflite file already, of which nothing is uint8 or left open; to "
            f"quantize a float one, run {quantize_command(path)}"
        )
    return _kept_or_made(path, replace(choice, is_signed=bool(choice.unsigned)))


def _kept_or_made(path: Path, choice: Choice) -> bytes:
    """What the child makes of a file, once for all verbs."""
    content, text = _content(path), choice.to_json()
    found = _converted(path, content, conversion_key(path.name, content, text), text)
    if isinstance(found, ModelError):
        raise type(found)(str(found))
    return found


def choice_notes(path: Path) -> tuple[str, ...]:
    """Messages for the user on what was chosen of a .tflite file; none on other files."""
    return _choice(path).notes


def _choice(path: Path) -> Choice:
    """What is chosen of a file. Where it is not a model, its reader says so."""
    now = chosen_now()
    weights = None if now.weights is None else now.weights.text
    if path.suffix.lower() in CONVERTERS:
        if now.signature is not None:
            raise ModelError(f"{path} has no signatures; --signature is for .tflite files")
        made = Choice(states=now.states, stream=now.stream, image=now.words, weights=weights)
        return replace(made, shapes=dict(now.shapes))
    data = model_bytes(path)
    with refused_with(path):
        return replace(choice_of(data) if data[4:8] == IDENTIFIER else Choice(), weights=weights)


def check_shapes_apply(path: Path) -> None:
    """Raise ModelError if the user gave shapes, and files of this format have fixed ones."""
    if chosen_now().shapes and path.suffix.lower() not in SHAPED:
        raise ModelError(
            f"{path} has fixed shapes, so --shape does not apply; it is for "
            f"{', '.join(SHAPED[:-1])} and {SHAPED[-1]} files"
        )


def quantized_tflite(path: Path) -> bytes:
    """The .tflite file that a quantized model of another format becomes.

    Of a .tflite file, it is what was chosen of it, with int8 in the place of uint8. Raises
    ModelError for a float model and for files that are or become something else.
    """
    ending = path.suffix.lower()
    if ending == ".tflite":
        return _signed_tflite(path)
    if ending not in QUANTIZED:
        check_known(path)
        kinds = " and ".join(QUANTIZED)
        raise ModelError(f"{path} cannot become a .tflite file; only {kinds} files can")
    data = converted(path)
    if data is None or is_relax(data):
        raise ModelError(f"{path} is a float model; quantize it: {quantize_command(path)}")
    return data


def prefilled_tflite(path: Path, block: Path) -> bytes:
    """The .tflite file of a step, with a second signature: a block of steps, of another file.

    Raises ModelError for a block that is none of this step, and for files that become no .tflite
    file.
    """
    check_shapes_apply(path)
    prefill = str(block.resolve()), _content(block)
    return _kept_or_made(path, replace(_choice(path), prefill=prefill))


def kinds_in(path: Path) -> tuple[str, ...]:
    """The kinds of operators in a float .onnx or .pt2 file; empty for all other files."""
    data = converted(path)
    return loaded(data).kinds if data is not None and is_relax(data) else ()


def _content(path: Path) -> str:
    return hashlib.sha256(model_bytes(path)).hexdigest()


@lru_cache(maxsize=4)
def _converted(path: Path, content: str, key: str, chosen: str) -> bytes | ModelError:
    """Once for the import and for the oracle, and once for all verbs.

    A refusal is remembered as long as this process runs: ``utvm inspect`` asks twice.
    """
    kept = kept_conversion(key)
    if kept is not None:
        return kept
    made = _convert(path, chosen)
    # The child may have read a file that was written after we looked.
    is_same = _content(path) == content
    if is_same and isinstance(made, bytes) and not process.is_dry_run():
        keep_conversion(key, made)
    return made


def _convert(path: Path, chosen: str) -> bytes | ModelError:
    """The conversion in its child process, or why the child refused the file.

    Raises ModelError if the child ended without an answer.
    """
    with TemporaryFolder("utvm-convert") as folder:
        (folder / CHOSEN).write_text(chosen, encoding="utf-8")
        # A dry run, too, needs to know the model: nothing of the board's is touched.
        done = contextvars.Context().run(
            process.run,
            [sys.executable, "-m", conversion.__name__, str(path), str(folder)],
            timeout_s=_START_TIMEOUT_S + import_seconds(),
            env=process.child_environment(),
        )
        if done.is_ok:
            return (folder / RESULT).read_bytes()
        if (folder / REFUSAL).exists():
            kind, _, text = (folder / REFUSAL).read_text("utf-8").partition("\n")
            return _REFUSALS[kind](text)
        raise ModelError(f"{path} cannot be imported: {explanation(done)}")


def model_bytes(path: Path) -> bytes:
    """A model file's bytes; ModelError where it cannot be read, or is too large."""
    try:
        check_known(path)
        check_regular(path)
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ModelError(
                f"{path} has {size:,} bytes, more than {MAX_FILE_BYTES:,}; "
                "choose a model for microcontrollers"
            )
        return path.read_bytes()
    except OSError as exc:
        raise unreadable(path, exc) from exc


def check_known(path: Path) -> None:
    """Raise ModelError for a file or folder of another framework, with the way to a model.

    A file with an ending in CONVERTERS is left to the reader of that format.
    """
    if path.suffix.lower() in CONVERTERS and path.is_file():
        return
    what = other_framework(path)
    if what is not None:
        raise ModelError(f"{path} {what}")


def check_readable(path: Path) -> None:
    """Raise ModelError for a model that is not there, or that nobody may look at."""
    try:
        path.stat()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> ModelError:
    """What to say of a model that the system does not hand out."""
    return ModelError(
        f"cannot read the model {path}: {error.strerror or error}; give the path of a .tflite, "
        ".onnx, .pt2 or .relax file that you may read"
    )


def explanation(done: process.Completed) -> str:
    """Why a child that reads a file ended without a result."""
    if done.timed_out or done.returncode == -signal.SIGPROF:
        return (
            f"its import takes more than {import_seconds()} s of processor time; set "
            f"{SECONDS_VARIABLE} to a larger number, or choose a smaller model"
        )
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"its reader crashed with {name}; the file is damaged or asks for too much memory"
    lines = done.output.strip().splitlines() or ["no reason given"]
    return f"its reader ended with status {done.returncode} ({lines[-1].strip()})"
