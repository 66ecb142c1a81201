"""Conversions in the cache: to load PyTorch takes ten seconds, and each verb needs the conversion.

    CACHE/conversions/KEY/model.tflite

The key is a digest of the file's name and content, the given shapes, the versions of the packages
that read it, and the code of our converters. Refusals are not kept: a package that is installed, or
a file that is mended, may end them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
from functools import lru_cache
from pathlib import Path

import utvm_deploy
from utvm_deploy.base import cache
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder

#: What reads files of other formats, or writes what they become.
_PACKAGES = (
    *("onnx", "torch", "torchao", "apache-tvm", "apache-tvm-ffi", "numpy"),
    *("flatbuffers", "tflite", "ai-edge-litert"),
)
#: Our packages with the code of the converters.
_CONVERTERS = ("base", "graph", "frontend")
_FILE = "model.tflite"


def conversion_key(name: str, content: str, shapes: str) -> str:
    """The key of a conversion: of a file's name, the digest of its content, and given shapes."""
    parts = (name, content, shapes, *map(_version, _PACKAGES), _code_digest())
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def kept_conversion(key: str) -> bytes | None:
    """What was kept under this key; None if there is nothing, or if it is damaged."""
    reader = cache.User()
    with contextlib.suppress(OSError, UtvmError):
        entry = _folder() / key
        if cache.take(entry, reader):
            return (entry / _FILE).read_bytes()
    return None


def keep_conversion(key: str, data: bytes) -> None:
    """Keep a conversion; where the cache cannot be written, the next verb converts again."""
    with contextlib.suppress(OSError, UtvmError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder("new", folder) as fresh:
            (fresh / _FILE).write_bytes(data)
            cache.seal(fresh, [fresh / _FILE])
            cache.keep(fresh, folder / key)


def _folder() -> Path:
    return cache_dir() / "conversions"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@lru_cache(maxsize=1)
def _code_digest() -> str:
    found = hashlib.sha256(utvm_deploy.__version__.encode())
    package = Path(utvm_deploy.__file__).parent
    for name in _CONVERTERS:
        for file in sorted((package / name).rglob("*.py")):
            found.update(f"\0{file.relative_to(package).as_posix()}\0".encode())
            found.update(file.read_bytes())
    return found.hexdigest()
