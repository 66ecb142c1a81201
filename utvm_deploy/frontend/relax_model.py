"""Reads a file with a Relax module, which ``tvm.ir.save_json`` wrote."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files.given_shapes import shapes_for
from utvm_deploy.frontend.relax.road import load_tvm, module_of_text, relax_model


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
