"""In a child process: a model file of another format, or as it was chosen, becomes a .tflite file.

    python -m utvm_deploy.frontend.conversion FILE FOLDER

The folder has what is asked, as JSON of a ``Choice``, and gets the file, or why it was refused.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from utvm_deploy.base.errors import ModelError, refused_with
from utvm_deploy.base.process import limit_memory
from utvm_deploy.base.readable import utf8
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only, shapes_for
from utvm_deploy.frontend.files.image_input import image_of_words
from utvm_deploy.frontend.files.limits import IMPORT_BYTES, import_seconds
from utvm_deploy.frontend.files.tflite_choice import Choice
from utvm_deploy.frontend.onnx.model import load_onnx, onnx_to_model
from utvm_deploy.frontend.relax.facts import is_relax
from utvm_deploy.frontend.relax.road import load_tvm, module_of_text, relax_model
from utvm_deploy.frontend.torch.export import load_torch, torch_to_model
from utvm_deploy.frontend.trained import with_trained
from utvm_deploy.graph.quantize_hint import quantize_command

#: The files of the folder.
CHOSEN, RESULT, REFUSAL = "chosen.json", "model.tflite", "refusal.txt"


def load_relax(_path: Path) -> object:
    """Load TVM, which takes seconds."""
    return load_tvm()


def relax_file(path: Path) -> bytes:
    """The module of a .relax file, lowered, in the form that the import reads."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as exc:
        raise ModelError(
            f"{path} is not text, so it is not a module that tvm.ir.save_json wrote"
        ) from exc
    with refused_with(path):
        return relax_model(module_of_text(text), shapes_for).dumped()


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


def main(path: Path, folder: Path) -> int:
    """Leave the .tflite file or a refusal; the exit status."""
    try:
        asked = Choice.of_json((folder / CHOSEN).read_text("utf-8"))
        (folder / RESULT).write_bytes(_made(path, asked))
        return 0
    except Exception as exc:
        (folder / REFUSAL).write_bytes(utf8("\n".join(refusal(path, exc))))
    return 1


def _made(path: Path, asked: Choice) -> bytes:
    converter, is_rewritten = CONVERTERS.get(path.suffix.lower()), _is_rewritten(asked)
    if is_rewritten or not converter or asked.prefill:
        _load_litert()
    if converter:
        converter.load(path)
    if asked.weights:
        load_tvm()
    limit_import()
    if converter:
        shapes = {name: tuple(shape) for name, shape in (asked.shapes or {}).items()}
        states = tuple((found, left) for found, left in asked.states)
        with given_only(Chosen(shapes, states=states)):
            made = converter.convert(path)
    else:
        made = _chosen(path, asked)
    if asked.weights:
        made = with_trained(made, path, asked.weights)
    made = _rewritten(path, made, asked)
    if asked.block is not None:
        other = _chosen(path, replace(asked, subgraph=asked.block, shapes=None))
        other = _rewritten(path, other, replace(asked, stream=None, image=None))
        made = _joined(path, made, other, is_one=True)
    if asked.prefill is not None:
        made = _joined(path, made, _block_of(Path(asked.prefill[0])), is_one=False)
    return made


def _load_litert() -> object:
    """Load LiteRT and its schema."""
    from utvm_deploy.frontend.files import tflite_chosen

    return tflite_chosen


def _chosen(path: Path, asked: Choice) -> bytes:
    from utvm_deploy.frontend.files.tflite_chosen import chosen_file

    shapes = {int(number): shape for number, shape in (asked.shapes or {}).items()}
    with refused_with(path):
        return chosen_file(path.read_bytes(), replace(asked, shapes=shapes))


def _block_of(path: Path) -> bytes:
    converter = CONVERTERS.get(path.suffix.lower())
    if converter is None:
        return path.read_bytes()
    converter.load(path)
    return converter.convert(path)


def _joined(path: Path, step: bytes, block: bytes, *, is_one: bool) -> bytes:
    from utvm_deploy.frontend.tflite_prefill import joined, with_block

    with refused_with(path):
        if is_relax(step) or is_relax(block):
            raise ModelError("a step or its block becomes no .tflite file: it has no state")
        return joined(step, block) if is_one else with_block(step, block)


def _is_rewritten(asked: Choice) -> bool:
    return bool(asked.states or asked.stream or asked.image)


def _rewritten(path: Path, data: bytes, asked: Choice) -> bytes:
    """The file with the states, the stream and the image that are asked."""
    if not _is_rewritten(asked):
        return data
    if is_relax(data):
        option = "--state" if asked.states else "--stream" if asked.stream else "--input"
        raise ModelError(
            f"{path} is a float model that becomes no .tflite file, so {option} does not apply; "
            f"quantize it, and give {option} with the result: {quantize_command(path)}"
        )
    from utvm_deploy.frontend.files.tflite_states import with_states
    from utvm_deploy.frontend.streams.rewrite import with_stream
    from utvm_deploy.frontend.tflite_images import with_image

    with refused_with(path):
        made = with_states(data, asked.states) if asked.states else data
        made = with_stream(made, **asdict(asked.stream)) if asked.stream else made
        image = image_of_words(asked.image)
        return made if image is None else with_image(made, image)


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
