"""Is a bundle still as it was written? Reads folders and .zip files; extracts nothing."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from utvm_deploy.base.errors import BundleError
from utvm_deploy.bundling.manifest import MANIFEST, check_files, read_manifest

#: A bundle is C text for a microcontroller; nothing near this size is one.
MAX_BUNDLE_BYTES = 512 * 1024 * 1024


def check_bundle(path: Path) -> None:
    """Raise BundleError naming the file that is missing, altered or extra."""
    if path.is_dir():
        if not (path / MANIFEST).is_file():  # before a large folder is read for nothing
            raise _no_bundle(path)
        files = _read_folder(path)
    elif path.is_file():
        files = _read_zip(path)
    else:
        raise BundleError(f"there is no bundle at {path}; give a folder or a .zip file")
    if MANIFEST not in files:
        raise _no_bundle(path)
    manifest = read_manifest(files.pop(MANIFEST))
    check_files(manifest, files)


def _no_bundle(path: Path) -> BundleError:
    return BundleError(f"{MANIFEST} is missing: {path} is not a bundle that `utvm bundle` wrote")


def _read_folder(folder: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    try:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise BundleError(f"{name} is neither a file nor a folder; no bundle holds links")
            if path.is_file():
                total += path.stat().st_size
                _check_size(total, folder)
                files[name] = path.read_bytes()
            elif not any(path.iterdir()):
                raise BundleError(f"{name} is an empty folder, which no bundle has")
    except OSError as exc:
        raise BundleError(f"cannot read {exc.filename or folder}: {exc.strerror}") from exc
    return files


def _read_zip(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_size(sum(member.file_size for member in members), path)
            # Everything is in one folder, which the archive's maker named after the model; a CMSIS
            # pack has none.
            names = archive.namelist()
            root = f"{names[0].split('/')[0]}/" if names and MANIFEST not in names else ""
            for member in members:
                name = member.filename.removeprefix(root)
                if not member.filename.startswith(root) or name in files or not name:
                    raise BundleError(f"{member.filename} does not belong to the bundle")
                files[name] = archive.read(member)
    except OSError as exc:
        raise BundleError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        ValueError,
        EOFError,
    ) as exc:
        raise BundleError(
            f"{path} is no .zip file, or a damaged one ({exc}); give what `utvm bundle` wrote"
        ) from exc
    return files


def _check_size(size: int, path: Path) -> None:
    if size > MAX_BUNDLE_BYTES:
        raise BundleError(f"{path} holds more than {MAX_BUNDLE_BYTES} bytes, which no bundle does")
