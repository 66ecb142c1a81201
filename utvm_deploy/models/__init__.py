"""The networks that ship with utvm_deploy, with data to try them on.

    import utvm_deploy

    model = utvm_deploy.models.path("digits")
    utvm_deploy.models.get("digits_float", "my_folder")

``models/README.md`` of the sources says where each comes from, and its licences.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import check_writable, write_atomically
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.toml_table import did_you_mean, read_toml

__all__ = ["Model", "find", "get", "names", "path"]


@dataclass(frozen=True)
class Model:
    """One network: ``weights`` is "trained" or "random", and the first of ``files`` the network.

    The other files are data (.npz), or the network in another type. All of them exist.
    """

    name: str
    description: str
    weights: str
    files: tuple[Path, ...]


def _all() -> dict[str, Model]:
    folder = data_dir("models")
    table = read_toml(folder / "models.toml")
    models = {}
    for name in table.keys_present:
        one = table.table(name)
        models[name] = Model(
            name,
            one.text("description"),
            one.text("weights", ("trained", "random")),
            tuple(folder / file for file in one.strings("files")),
        )
        one.finish()
    return models


def names() -> list[str]:
    """The names of the networks."""
    return list(_all())


def find(name: str) -> Model:
    """What is known of one network. Raises UtvmError for an unknown name."""
    models = _all()
    if name not in models:
        hint = did_you_mean(name, models) or f"; there are {', '.join(models)}"
        raise UtvmError(f"no model {name!r} ships with utvm_deploy{hint}")
    return models[name]


def path(name: str) -> Path:
    """The file of one network, to read and not to change. Raises UtvmError for an unknown name."""
    return find(name).files[0]


def get(name: str, folder: str | Path = ".") -> list[Path]:
    """Copy the files of one network into ``folder``, which is made if it is not there.

    Returns the copies, the network first. Raises UtvmError for an unknown name, or if one of the
    files is already there; then nothing is copied.
    """
    model = find(name)
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise UtvmError(f"{target} is a file; give a folder for the files of {name}")
    copies = [target / file.name for file in model.files]
    for copy in copies:
        if copy.exists() or copy.is_symlink():
            raise UtvmError(f"{copy} exists; give another folder, and it is copied there")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UtvmError(f"cannot make the folder {target}: {error.strerror}") from error
    for copy in copies:
        check_writable(copy)
    for file, copy in zip(model.files, copies, strict=True):
        with file.open("rb") as source:
            write_atomically(copy, lambda opened: shutil.copyfileobj(source, opened))
    return copies
