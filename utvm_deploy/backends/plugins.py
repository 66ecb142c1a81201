"""Loads a plug-in: a Python file, or an entry point of an installed package, by its name.

A plug-in is code: it runs with the user's rights. So only a command line or a Python caller names
one. No configuration file, no model and no server does.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from utvm_deploy.backends.asking import BUILD_SECONDS, asked
from utvm_deploy.backends.checks import check_backend
from utvm_deploy.backends.interface import Backend, CText
from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.plugin_names import GROUP, installed_plugins
from utvm_deploy.base.python_file import is_file_name, loaded, module_of, shown
from utvm_deploy.records.candidate import PLUGIN_PREFIX

_NAME = "backend"


def load_plugin(plugin: str | Path) -> Backend:
    """The backend that a file has under the name ``backend``, or that a package offers.

    Text that ends with ".py" or has a slash is a path. PluginError if there is none, or if it is
    not what the interface asks for.
    """
    text = str(plugin)
    if is_file_name(plugin):
        where = f"plug-in {text}"
        backend, file = _of_file(Path(plugin), where), Path(plugin)
    else:
        where = f"plug-in {text}"
        backend, file = _of_package(text, where)
    checked = check_backend(backend, where)
    family = PLUGIN_PREFIX + re.sub(r"[^a-z0-9]+", "-", checked.name.lower()).strip("-")
    python = hashlib.sha256(file.read_bytes()).hexdigest()
    checked = replace(checked, origin=where, family=family, python_digest=python, functions=None)
    return _with_digest(checked, f"C text of {text}")


def for_file(backend: Backend, path: Path) -> Backend:
    """The backend for a model's file, if it wants to see that. PluginError if it gives none."""
    of_file = backend.of_file
    if of_file is None:
        return backend
    found = asked(backend, "of_file", lambda: of_file(path), BUILD_SECONDS)
    if not backend.python_digest:
        return replace(found, has_seen_file=True)
    if not isinstance(found, Backend):
        raise PluginError(f"{backend.origin}: of_file gives {shown(found)}; return a Backend")
    found = check_backend(found, f"{backend.origin}: of_file")
    if found.code != backend.code and not isinstance(found.code, CText):
        raise PluginError(f"{backend.origin}: of_file gives another library; keep Backend.code")
    names = ("name", "origin", "family", "python_digest", "functions", "digest", "built_with")
    kept = replace(found, **{name: getattr(backend, name) for name in names})
    kept = replace(kept, of_file=of_file, has_seen_file=True)
    return _with_digest(kept, backend.built_with)


def _with_digest(backend: Backend, built_with: str) -> Backend:
    if not isinstance(backend.code, CText):
        return backend
    digest = hashlib.sha256(backend.code.text.encode()).hexdigest()
    return replace(backend, digest=digest, built_with=built_with)


def _of_file(path: Path, where: str) -> object:
    if not path.is_file():
        raise PluginError(f"{where}: there is no such file; give a Python file, or the name of an "
                          "installed plug-in (utvm doctor lists them)")  # fmt: skip
    module = module_of(path, where)
    if not hasattr(module, _NAME):
        raise PluginError(f"{where} defines no name '{_NAME}'; set {_NAME} = Backend(...)")
    return getattr(module, _NAME)


def _of_package(name: str, where: str) -> tuple[object, Path]:
    """What the package offers, and the file of the module that has it."""
    found: list[EntryPoint] = [one for one in entry_points(group=GROUP) if one.name == name]
    if not found:
        known = ", ".join(installed_plugins()) or "none"
        raise PluginError(
            f"{where}: no installed package offers it; installed are: {known}. For a file, give "
            "its path with .py at the end"
        )
    if len(found) > 1:
        raise PluginError(
            f"{where}: {len(found)} installed packages offer it; uninstall all but one, or name "
            "the file"
        )

    backend = loaded(found[0].load, where)
    return backend, Path(sys.modules[found[0].module].__file__ or where)
