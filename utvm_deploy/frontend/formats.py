"""Model files of other formats: each becomes a .tflite file before anything else reads it.

So does a .tflite file of which something must be chosen (``tflite_choice.py``).

    converted ──path──▶ python -m utvm_deploy.frontend.formats ──model.tflite──▶ bytes

So all of them share one reader, one graph and one oracle. Other people's C++ reads them, which may
crash, take all memory or never end on a hostile file. So it runs in a child process with limits.
What it made is kept in the cache (``kept_conversions.py``).
"""

from __future__ import annotations

import contextvars
import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from utvm_deploy.base import process
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.base.files import check_regular
from utvm_deploy.base.process import limit_memory
from utvm_deploy.base.readable import utf8
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import (
    Chosen,
    States,
    Stream,
    chosen_now,
    given_only,
    shapes_for,
)
from utvm_deploy.frontend.files.image_input import image_of_words
from utvm_deploy.frontend.files.kept_conversions import (
    conversion_key,
    keep_conversion,
    kept_conversion,
)
from utvm_deploy.frontend.files.limits import (
    IMPORT_BYTES,
    MAX_FILE_BYTES,
    SECONDS_VARIABLE,
    import_seconds,
)
from utvm_deploy.frontend.files.other_files import other_framework
from utvm_deploy.frontend.files.tflite_choice import Choice, choice_of
from utvm_deploy.frontend.files.tflite_chosen import chosen_file, load_schema
from utvm_deploy.frontend.files.tflite_states import with_states
from utvm_deploy.frontend.number_format import in_format
from utvm_deploy.frontend.onnx.model import load_onnx, onnx_to_model
from utvm_deploy.frontend.relax.facts import is_relax, loaded
from utvm_deploy.frontend.relax.road import load_tvm, module_of_text, relax_model
from utvm_deploy.frontend.tflite_images import with_image
from utvm_deploy.frontend.tflite_prefill import joined, with_block
from utvm_deploy.frontend.torch.export import load_torch, torch_to_model
from utvm_deploy.frontend.trained import with_trained
from utvm_deploy.graph.quantize_hint import quantize_command


def load_relax(_path: Path) -> object:
    """Load TVM, which takes seconds."""
    return load_tvm()


def relax_file(path: Path) -> bytes:
    """The module of a .relax file, lowered, in the form that the import reads."""
    try:
        module = module_of_text(path.read_text("utf-8"))
        return relax_model(module, shapes_for).dumped()
    except UnicodeDecodeError as exc:
        raise ModelError(
            f"{path} is not text, so it is not a module that tvm.ir.save_json wrote"
        ) from exc
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc


@dataclass(frozen=True)
class Converter:
    """How files of one format are read."""

    # Loads the packages that it takes, which may need much time and address space; ModelError
    # where they are not installed.
    load: Callable[[Path], object]
    convert: Callable[[Path], bytes]
    name: str  # of the format


#: A file name's ending -> what makes the .tflite file of it.
CONVERTERS: Mapping[str, Converter] = {
    ".onnx": Converter(load_onnx, onnx_to_model, "ONNX"),
    ".pt2": Converter(load_torch, torch_to_model, "PyTorch's export"),
    ".relax": Converter(load_relax, relax_file, "TVM's Relax"),
}

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
_CHOSEN, _RESULT, _REFUSAL = "chosen.json", "model.tflite", "refusal.txt"
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
    told: dict[str, object] = {"shapes": dict(chosen_now().shapes)}
    told |= _rewritten(chosen_now().states, chosen_now().stream, chosen_now().words)
    if path.suffix.lower() in CONVERTERS:
        if chosen_now().signature is not None:
            raise ModelError(f"{path} has no signatures; --signature is for .tflite files")
    else:
        choice = _choice(path)
        if not choice.rewrites and chosen_now().weights is None:
            return None
        told = _told(choice)
    return _kept_or_made(path, told)


def unsigned_tensors(path: Path) -> frozenset[int]:
    """The numbers of a .tflite file's quantized uint8 tensors; of other files, none."""
    return frozenset() if path.suffix.lower() in CONVERTERS else _choice(path).unsigned


def _signed_tflite(path: Path) -> bytes:
    """A .tflite file as it was chosen, with int8 in the place of uint8."""
    choice = _choice(path)
    if not choice.rewrites and not choice.unsigned:
        raise ModelError(
            f"{path} is a .tflite file already, of which nothing is uint8 or left open; to "
            f"quantize a float one, run {quantize_command(path)}"
        )
    return _kept_or_made(path, _told(choice) | {"is_signed": bool(choice.unsigned)})


def _told(choice: Choice) -> dict[str, object]:
    """What the child learns of a choice."""
    return {
        "subgraph": choice.subgraph,
        "block": choice.block,
        "shapes": choice.shapes or {},
        "mends_axes": choice.mends_axes,
        "is_signed": False,
        **_rewritten(choice.states, choice.stream, choice.image),
    }


def _rewritten(states: States, stream: Stream | None, image: str | None) -> dict[str, object]:
    """What the child learns of rewrites that files of all formats can have."""
    told, weights = None if stream is None else asdict(stream), chosen_now().weights
    text = None if weights is None else weights.text
    return {"states": states, "stream": told, "image": image, "weights": text}


def _kept_or_made(path: Path, told: Mapping[str, object]) -> bytes:
    """What the child makes of a file, once for all verbs."""
    content, text = _content(path), json.dumps(told)
    found = _converted(path, content, conversion_key(path.name, content, text), text)
    if isinstance(found, ModelError):
        raise type(found)(str(found))
    return found


def choice_notes(path: Path) -> tuple[str, ...]:
    """Messages for the user on what was chosen of a .tflite file; none on other files."""
    return () if path.suffix.lower() in CONVERTERS else _choice(path).notes


def _choice(path: Path) -> Choice:
    data = model_bytes(path)
    if data[4:8] != IDENTIFIER:
        return Choice()  # no model, as its reader says
    try:
        return choice_of(data)
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc


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
    told: dict[str, object] = {"shapes": {}, **_rewritten((), None, None)}
    if path.suffix.lower() not in CONVERTERS:
        told = _told(_choice(path))
    told["prefill"] = {"path": str(block.resolve()), "sha256": _content(block)}
    return _kept_or_made(path, told)


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
        (folder / _CHOSEN).write_text(chosen, encoding="utf-8")
        # A dry run, too, needs to know the model: nothing of the board's is touched.
        done = contextvars.Context().run(
            process.run,
            [sys.executable, "-m", __name__, str(path), str(folder)],
            timeout_s=_START_TIMEOUT_S + import_seconds(),
            env=process.child_environment(),
        )
        if done.is_ok:
            return (folder / _RESULT).read_bytes()
        if (folder / _REFUSAL).exists():
            kind, _, text = (folder / _REFUSAL).read_text("utf-8").partition("\n")
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


def main(path: Path, folder: Path) -> int:
    """In the child: leave the .tflite file or a refusal; the exit status."""
    converter = CONVERTERS.get(path.suffix.lower())
    chosen = json.loads((folder / _CHOSEN).read_text("utf-8"))
    shapes = {name: tuple(shape) for name, shape in chosen["shapes"].items()}
    states: list[tuple[str, str]] = [(found, left) for found, left in chosen.pop("states")]
    stream, words, weights = (chosen.pop(name) for name in ("stream", "image", "weights"))
    try:
        if states or stream or words or not converter or "prefill" in chosen:
            load_schema(path)
        if converter:
            converter.load(path)
        if weights:
            load_tvm()
        limit_import()
        with given_only(Chosen(shapes, states=tuple(states))):
            block, prefill = chosen.pop("block", None), chosen.pop("prefill", None)
            made = converter.convert(path) if converter else _chosen(path, chosen)
        if weights:
            made = with_trained(made, path, weights)
        if states or stream or words:
            made = _rewrite(path, made, states, stream, words)
        if block is not None:
            other = _chosen(path, chosen | {"subgraph": block, "shapes": {}})
            other = _rewrite(path, other, states, None, None) if states else other
            made = _joined(path, made, other, is_one=True)
        if prefill is not None:
            made = _joined(path, made, _read_block(Path(prefill["path"])), is_one=False)
        (folder / _RESULT).write_bytes(made)
        return 0
    except Exception as exc:
        (folder / _REFUSAL).write_bytes(utf8("\n".join(refusal(path, exc))))
    return 1


def _chosen(path: Path, chosen: dict[str, Any]) -> bytes:
    chosen["shapes"] = {int(number): shape for number, shape in chosen["shapes"].items()}
    try:
        return chosen_file(path.read_bytes(), **chosen)
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc


def _read_block(path: Path) -> bytes:
    converter = CONVERTERS.get(path.suffix.lower())
    if converter is None:
        return path.read_bytes()
    converter.load(path)
    return converter.convert(path)


def _joined(path: Path, step: bytes, block: bytes, *, is_one: bool) -> bytes:
    try:
        if is_relax(step) or is_relax(block):
            raise ModelError("a step or its block becomes no .tflite file: it has no state")
        return joined(step, block) if is_one else with_block(step, block)
    except ModelError as exc:
        raise ModelError(f"{path}: {exc}") from exc


def _rewrite(
    path: Path,
    data: bytes,
    states: Sequence[tuple[str, str]],
    stream: dict[str, Any] | None,
    words: str | None,
) -> bytes:
    from utvm_deploy.frontend.streams.rewrite import with_stream

    if is_relax(data):
        option = "--state" if states else "--stream" if stream else "--input"
        raise ModelError(
            f"{path} is a float model that becomes no .tflite file, so {option} does not apply; "
            f"quantize it, and give {option} with the result: {quantize_command(path)}"
        )
    try:
        made = with_states(data, states) if states else data
        made = with_stream(made, **stream) if stream else made
        image = image_of_words(words)
        return made if image is None else with_image(made, image)
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc


def refusal(path: Path, error: Exception) -> tuple[str, str]:
    """What came of the import of a file, as the name of a ModelError and its sentence."""
    if isinstance(error, ModelError):
        return type(error).__name__, str(error)
    if isinstance(error, MemoryError):
        most = IMPORT_BYTES >> 20
        return "ModelError", f"{path}: its import takes more than {most:,} MiB of memory"
    # Our bug; the caller still gets a sentence.
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return "ModelError", (
        f"{path}: its import failed with {said} ({Path(where.filename).name}:{where.lineno}), "
        "which is a bug of utvm_deploy or the file is damaged; report it"
    )


def limit_import() -> None:
    """In a child, from here on: so much more memory, and so much time of the processor."""
    signal.setitimer(signal.ITIMER_PROF, import_seconds())
    sizes = Path("/proc/self/statm")
    if not sizes.exists():  # only Linux reports it
        return
    used = int(sizes.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limit_memory(used + IMPORT_BYTES)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
