"""Write a bundle: a folder or a .zip that is either whole or absent."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.files import check_writable, sync, sync_tree, write_atomically
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board, board_names, load_board
from utvm_deploy.boards.facts import ESP_IDF
from utvm_deploy.bundling.browser import browser_files, check_browser
from utvm_deploy.bundling.check import check_bundle
from utvm_deploy.bundling.contents import bundle_files
from utvm_deploy.bundling.layout import FORMATS
from utvm_deploy.bundling.manifest import MANIFEST, manifest_text
from utvm_deploy.bundling.mlperf_tiny import MLPERF_TINY, check_benchmark, mlperf_files
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.graph.model import Array
from utvm_deploy.project.model_code import ModelCode

#: The reference that golden vectors come from unless the caller says otherwise.
DEFAULT_ORACLE = "LiteRT's reference kernels"

# The earliest date that a .zip can hold: equal bundles give equal archives.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def check_format(format: str, board: Board, benchmark: str | None = None) -> None:
    """BundleError if there is no such format, or no chip that it is for has the board's core.

    ``benchmark`` is as for ``write_bundle``.
    """
    if format not in FORMATS:
        raise BundleError(f"no bundle format {format!r}; choose one of {', '.join(FORMATS)}")
    if format == MLPERF_TINY:
        check_benchmark(benchmark, board)
    elif benchmark is not None:
        raise BundleError(
            f"a benchmark is for the format {MLPERF_TINY!r}; leave it out, or give it"
        )
    templates = board.cpu.target.templates
    if FORMATS[format].is_for_browsers:
        check_browser(board)
    if format != ESP_IDF or board.is_host or ESP_IDF in templates.folders:
        return
    names = [name for name in board_names() if load_board(name, trust=True).template == ESP_IDF]
    raise BundleError(
        f"ESP-IDF does not build for {board.name} ({board.cpu.core}); give --board "
        f"{' or '.join(names)}, or --board host: plain C, which each chip of ESP-IDF compiles"
    )


def write_bundle(
    compiled: CompiledModel,
    board: Board,
    model_path: Path,
    destination: Path,
    *,
    format: str = "cmake",
    benchmark: str | None = None,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    oracle: str = DEFAULT_ORACLE,
    tolerance: float = 0.0,
    report: Mapping[str, Any] | None = None,
    code: ModelCode | None = None,
) -> Path:
    """Write the bundle of ``compiled``, which was made for ``board``, to a folder or a .zip file.

    ``inputs[sample][i]`` and ``expected[sample][i]`` are the self-test's golden vectors, and
    ``oracle`` says where the expected outputs come from. With a ``tolerance``, an output of float32
    may differ by that part of its tensor's largest magnitude; else all bytes must be equal.
    ``report`` is a profile, which goes into the manifest as it is; the README has its figures, and
    what ``code`` says of flash. ``benchmark`` is MLPerf Tiny's, for the format "mlperf-tiny". An
    older bundle is replaced; a folder that holds anything else is not.
    """
    check_format(format, board, benchmark)
    if compiled.board != board.name:
        raise BundleError(
            f"{compiled.name} was compiled for {compiled.board}, not for {board.name}; "
            "compile it for the board of the bundle"
        )
    if compiled.linked and not FORMATS[format].takes_library:
        others = ", ".join(name for name, layout in FORMATS.items() if layout.takes_library)
        raise BundleError(
            f"{compiled.name} calls {compiled.linked[0].name}, which no bundle carries, and a "
            f"bundle of the format {format!r} cannot name your copy; choose one of {others}, or "
            "compile with our kernels"
        )
    golden = (inputs, expected, oracle, tolerance)
    layout = FORMATS[format]
    needs_more = compiled.input_rows is not None or compiled.initialized
    if needs_more and not layout.calls_all:
        others = ", ".join(
            name
            for name, one in FORMATS.items()
            if one.calls_all and not one.is_for_browsers and name != MLPERF_TINY
        )
        raise BundleError(
            f"a bundle of the format {format!r} gives {compiled.name} whole inputs and prepares no "
            f"backend; leave --input-rows and such backends out, or choose one of {others}"
        )
    if benchmark is not None:
        files = mlperf_files(compiled, board, benchmark, inputs, expected)
    elif layout.is_for_browsers:
        files = browser_files(compiled, board, model_path.name, *golden)
    else:
        texts = bundle_files(compiled, board, model_path.name, layout, *golden, code, report)
        files = {path: text.encode() for path, text in texts.items()}
    manifest = manifest_text(
        compiled, format, model_path.name, len(inputs), oracle, report, code, files
    )
    # The manifest comes last: where it is, everything is.
    files[MANIFEST] = manifest.encode()
    if destination.suffix in _archives(format):
        root = "" if destination.suffix == FORMATS[format].archive else f"{compiled.name}/"
        _write_zip(destination, root, files)
    else:
        _write_folder(destination, files)
    return destination


def _write_zip(destination: Path, root: str, files: Mapping[str, bytes]) -> None:
    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in files.items():
                member = zipfile.ZipInfo(f"{root}{path}", _ZIP_DATE)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o100644 << 16
                archive.writestr(member, data)

    write_atomically(destination, write)


def _write_folder(destination: Path, files: Mapping[str, bytes]) -> None:
    is_replaced = _is_replaceable(destination)
    try:
        work = TemporaryFolder(destination.name, destination.parent, hidden=True)
    except OSError as exc:
        raise BundleError(
            f"cannot write next to {destination}: {exc.strerror}; make room there, or name another "
            "folder"
        ) from exc
    workplace = work.path
    try:
        made = workplace / "new"
        for path, data in files.items():
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        sync_tree(made)
        if is_replaced:
            destination.rename(workplace / "old")
        try:
            made.rename(destination)
        except BaseException:
            if is_replaced:
                (workplace / "old").rename(destination)
            raise
        sync(destination.parent)
    except OSError as exc:
        raise BundleError(
            f"cannot write {destination}: {exc.strerror}; make room there, or name another folder"
        ) from exc
    finally:
        work.close()


def _archives(format: str) -> tuple[str, str]:
    """How the names of files end that a bundle of the format may be written to."""
    return ".zip", FORMATS[format].archive or ".zip"


def check_destination(destination: Path, format: str = "cmake") -> None:
    """Refuse a place that ``write_bundle`` could not write to, before there is a bundle."""
    if destination.suffix in _archives(format):
        check_writable(destination)
    elif not destination.absolute().parent.is_dir():
        raise BundleError(
            f"cannot write {destination}: there is no folder {destination.parent}; make it first"
        )
    elif not os.access(destination.absolute().parent, os.W_OK):
        raise BundleError(
            f"cannot write {destination}: nothing may be written to "
            f"{destination.absolute().parent}; name another folder"
        )
    else:
        _is_replaceable(destination)


def _is_replaceable(destination: Path) -> bool:
    """Whether there is an older bundle, or an empty folder, to replace; BundleError if more."""
    if not os.path.lexists(destination):
        return False
    if destination.is_symlink() or not destination.is_dir():
        raise BundleError(f"{destination} is not a folder; move it away or choose another name")
    if not any(destination.iterdir()):
        return True
    try:
        check_bundle(destination)
    except BundleError as exc:
        raise BundleError(
            f"{destination} would be replaced, and is not an unchanged bundle ({exc}); move it "
            "away or choose another folder"
        ) from exc
    return True
