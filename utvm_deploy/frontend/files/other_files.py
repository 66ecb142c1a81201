"""Recognises files of other frameworks, which are given instead of a model that can be read.

Nothing is read from them but their first bytes and the names in an archive.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

_HDF5 = b"\x89HDF\r\n\x1a\n"
# torch.save wrote these before archives: a pickled number, which marks its files.
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF"
_KERAS_NAMES = frozenset(("config.json", "model.weights.h5"))
_SAVED_MODEL = "saved_model.pb"

_TORCH = (
    "holds a pickle of weights or of a module, as torch.save wrote, and no program; write one: "
    "torch.export.save(torch.export.export(model.eval(), (example,)), 'MODEL.pt2')"
)
_SCRIPT = (
    "is TorchScript, as torch.jit.trace or torch.jit.script saved it; export the module that it "
    "was made of: torch.export.save(torch.export.export(model.eval(), (example,)), 'MODEL.pt2')"
)
_KERAS = (
    "is a file of Keras; convert the model, and write the bytes into a .tflite file: "
    "tf.lite.TFLiteConverter.from_keras_model(model).convert()"
)
_TENSORFLOW = (
    "is a SavedModel of TensorFlow; convert it, and write the bytes into a .tflite file: "
    "tf.lite.TFLiteConverter.from_saved_model('FOLDER').convert()"
)
_EXPORTED = "is a program that torch.export.save wrote; give it a name that ends in .pt2"


def other_framework(path: Path) -> str | None:
    """What a file or folder of another framework is, and what to do; None for anything else.

    The text continues a sentence that begins with the path.
    """
    try:
        if path.is_dir():
            return _TENSORFLOW if (path / _SAVED_MODEL).is_file() else None
        if path.name == _SAVED_MODEL:
            return _TENSORFLOW
        if not path.is_file():
            return None  # to open a pipe may take forever
        with path.open("rb") as file:
            first = file.read(len(_HDF5))
        if first == _HDF5:
            return _KERAS
        return _TORCH if first == _OLD_TORCH else _archive(path)
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return None


def is_pickled(path: Path) -> bool:
    """Whether a file is one of torch.save or TorchScript, whose data are pickled."""
    return other_framework(path) in (_TORCH, _SCRIPT)


def _archive(path: Path) -> str | None:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any(re.fullmatch("[^/]+/data[.]pkl", name) for name in names):
        # TorchScript also holds its program, as text.
        is_script = any(re.fullmatch("[^/]+/(code/.+|constants[.]pkl)", name) for name in names)
        return _SCRIPT if is_script else _TORCH
    if names and _KERAS_NAMES.issubset(names):
        return _KERAS
    is_program = any(
        re.fullmatch("[^/]+/models/[^/]+[.]json|serialized_exported_program[.]json", name)
        for name in names
    )
    return _EXPORTED if is_program else None
